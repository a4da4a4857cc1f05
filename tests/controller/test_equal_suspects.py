"""What probes cannot tell apart: hosts and the switches that only they are at, two NICs that only
probe each other, a host whose agent hangs and one that lost its NICs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.controller.judged import Control, dark_leaf, finding, port

from syntony.alerts.incidents import ChangeKind
from syntony.controller.equal_suspects import with_lone_peers, with_switches_of_dead_hosts
from syntony.fabric.extra_probes import suspected
from syntony.model import S
from syntony.model.findings import Finding

LEAVES, RAILS = 2, 2


def _fleet(control: Control, hosts: int) -> list[str]:
    """Every second host is at the same leaves, one for each rail."""
    names = [f"h{number}" for number in range(hosts)]
    control.homes = {
        f"{host}/rail{rail}": f"leaf{rail}-{number % LEAVES}"
        for number, host in enumerate(names)
        for rail in range(RAILS)
    }
    control.silent = dict.fromkeys(names, 0)
    control.answering = frozenset(names)
    control.store.links.seen = tuple(map(port, control.homes))
    control.pairs = frozenset(
        (one, other)
        for one in control.homes
        for other in control.homes
        if one != other and one[-1] == other[-1]
    )
    control.tick(3)
    return names


def _dark(names: Iterable[str], kind: str = "host") -> tuple[Finding, ...]:
    return tuple(finding(name, kind, fault="blackhole", loss=1.0) for name in names)


def _run(control: Control, seconds: int, silent: Iterable[str] = ()) -> None:
    for _ in range(seconds):
        control.silent |= {host: control.silent[host] + S for host in silent}
        control.tick(after_ns=S)


def _down(control: Control, switches: Iterable[str]) -> None:
    control.store.links.seen = tuple(
        port(nic, state="no-peer" if at in switches else "active")
        for nic, at in control.homes.items()
    )


def test_leaves_that_cut_off_whole_hosts_are_named_because_these_report(control: Control) -> None:
    """Of two rails at once: hosts that report are alive."""
    _fleet(control, 4)
    control.findings = _dark(["h0", "h2"])
    _run(control, 8)
    assert sorted(control.pages()) == ["switch-loss leaf0-0", "switch-loss leaf1-0"]
    _down(control, {"leaf0-0", "leaf1-0"})
    _run(control, 20)
    assert len(control.pages()) == 2, "the ports at them are evidence"


def test_leaves_that_silence_whole_hosts_are_named_together_with_them(control: Control) -> None:
    """Managed in band: dead hosts look the same. Then one leaf is back, and its hosts report."""
    _fleet(control, 4)
    control.in_band = {"h0": "h0/rail0", "h2": "h2/rail0"}
    control.findings = _dark(["replies of h0", "replies of h2"], "replies")
    control.answering = frozenset({"h1", "h3"})
    _run(control, 30, silent=["h0", "h2"])
    named = [f"switch-or-hosts hosts at leaf{rail}-0 or leaf{rail}-0" for rail in range(RAILS)]
    assert sorted(control.pages()) == named
    control.silent |= {"h0": 0, "h2": 0}
    control.answering |= {"h0", "h2"}
    control.findings = _dark(["leaf0-0"], "leaf")
    _run(control, 30)
    assert sorted(control.pages()) == named
    control.findings = ()
    _run(control, 60)
    assert control.live() == {}


@pytest.mark.parametrize("apart", ["hosts", "silences", "elsewhere", "late"])
def test_hosts_are_named_where_their_switches_cannot_be_dead(control: Control, apart: str) -> None:
    """Hosts that died one after the other, or that are not all hosts at their switches; hosts that
    report, but answer late."""
    _fleet(control, 6 if apart == "elsewhere" else 4)
    dark = ["h0", "h2"]
    if apart == "hosts":
        control.findings = _dark(dark[:1])
        _run(control, 10)
    silent = dark
    if apart == "silences":
        _run(control, 5, silent=dark[:1])
    if apart == "late":
        control.findings, silent = _dark([f"replies of {host}" for host in dark], "replies"), []
    elif apart == "hosts":
        control.findings, silent = _dark(dark), []
    else:
        control.findings = _dark([f"replies of {host}" for host in dark], "replies")
        control.answering -= {*dark}
    _run(control, 20, silent)
    pages = {"hosts": "nic-loss", "silences": "host-silent", "elsewhere": "host-silent"}
    assert control.pages() == (
        [] if apart == "late" else [f"{pages[apart]} {each}" for each in dark]
    )


def _one_leaf_left(control: Control, known: str = "ports") -> None:
    """Of rail 0 a leaf is dead, or the hosts at it; h1 and h3 are alone at the other one."""
    _fleet(control, 4)
    if known == "hosts":
        control.answering -= {"h0", "h2"}
        _run(control, 12, silent=["h0", "h2"])
        assert control.pages() == ["silent-together h0, h2"]
        return
    control.findings = _dark(["leaf0-0"], "leaf")
    _run(control, 8)
    if known == "ports":
        _down(control, {"leaf0-0"})
    _run(control, 4)
    assert control.pages() == ["switch-loss leaf0-0"]


@pytest.mark.parametrize("known", ["ports", "losses", "hosts"])
def test_nics_that_only_probe_each_other_are_one_page_naming_both(
    control: Control, known: str
) -> None:
    _one_leaf_left(control, known)
    link = finding("leaf0-1->h1/rail0", "link", fault="blackhole", loss=1.0)
    control.findings = (*control.findings, link)
    _run(control, 10)
    assert control.pages()[1:] == ["ambiguous-loss h3/rail0 or leaf0-1->h1/rail0"]
    # One of them is known to be down now: nobody is left who could judge the other.
    control.store.links.seen = tuple(
        port(nic, state="no-peer" if nic == "h3/rail0" else each.state)
        for nic, each in zip(control.homes, control.store.links.seen, strict=True)
    )
    _run(control, 10)
    control.findings = (*control.findings[:-1], *_dark(["h1/rail0"], "nic"))
    _run(control, 20)
    assert len(control.pages()) == 2
    control.findings, control.silent = (), dict.fromkeys(control.silent, 0)
    control.store.links.seen = tuple(map(port, control.homes))
    _run(control, 80)
    assert control.live() == {}


def test_a_nic_is_named_alone_while_somebody_else_probes_either(control: Control) -> None:
    _one_leaf_left(control)
    control.homes |= {"h5/rail0": "leaf0-1"}
    control.pairs |= {("h3/rail0", "h5/rail0")}
    control.findings = (*control.findings, *_dark(["h1/rail0"], "nic"))
    _run(control, 10)
    assert control.pages()[1:] == ["nic-loss h1/rail0"]


def test_a_nic_is_named_alone_while_all_others_live(control: Control) -> None:
    _fleet(control, 4)
    control.findings = _dark(["h1/rail0"], "nic")
    _run(control, 10)
    assert control.pages() == ["nic-loss h1/rail0"]


NAMES = ["h0", "h0/rail0", "leaf0-0->h0/rail0"]


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_that_hangs_pages_as_silent_only(control: Control, name: str) -> None:
    """None of its NICs answers, and it has not reported since."""
    _fleet(control, 6)
    control.answering -= {"h0"}
    kinds = dict(zip(NAMES, ("host", "nic", "link"), strict=True))
    _run(control, 2, silent=["h0"])
    control.findings = _dark([name], kinds[name])
    _run(control, 20, silent=["h0"])
    assert control.pages() == ["host-silent h0"]


@pytest.mark.parametrize("known", ["it reports", "another NIC answers", "its only way"])
def test_losses_of_a_host_page_while_its_agent_runs(control: Control, known: str) -> None:
    _fleet(control, 6)
    control.findings = _dark(["h0/rail0"], "nic")
    silent = [] if known == "it reports" else ["h0"]
    if known != "another NIC answers":
        control.answering -= {"h0"}
    if known == "its only way":
        control.in_band = {"h0": "h0/rail0"}
        del control.homes["h0/rail1"]
    _run(control, 3, silent)
    _run(control, 4, silent)
    assert control.pages() == ["nic-loss h0/rail0"]


def test_losses_that_were_held_page_once_the_host_reports(control: Control) -> None:
    _fleet(control, 6)
    control.answering -= {"h0"}
    control.findings = _dark(["h0/rail0"], "nic")
    _run(control, 8, silent=["h0"])
    assert control.pages() == []
    control.silent["h0"] = 0
    _run(control, 4)
    assert control.pages() == ["nic-loss h0/rail0"]


def test_hosts_that_nobody_probes_are_one_page_with_the_switch_that_they_share(
    control: Control,
) -> None:
    """The others have no NIC left. The hosts are back first, and know that a switch is down."""
    hosts = _fleet(control, 4)
    control.answering = frozenset()
    _run(control, 14, silent=["h1", "h3"])
    assert control.pages() == ["silent-together h1, h3"]
    (page,) = (each for each in control.live_incidents() if each["pages"])
    assert any("all hosts at leaf0-1, leaf1-1" in line for line in page["evidence"])
    assert any("no other host that reports" in line for line in page["evidence"])
    control.silent |= {"h1": 0, "h3": 0}
    _down(control, {"leaf0-1"})
    _run(control, 20)
    assert control.pages() == ["silent-together h1, h3"]
    _down(control, ())
    _run(control, 30)
    assert control.live() == {}
    _down(control, {"leaf0-1"})
    _run(control, 4)
    assert control.pages()[1:] == ["switch-down leaf0-1"], "nobody was silent"
    assert hosts


def test_a_switch_that_other_hosts_are_at_too_has_a_page_of_its_own(control: Control) -> None:
    _fleet(control, 8)
    control.answering -= {"h1", "h3", "h5"}
    _run(control, 14, silent=["h1", "h3", "h5"])
    control.silent |= {"h1": 0, "h3": 0, "h5": 0}
    _down(control, {"leaf0-1"})
    _run(control, 10)
    assert control.pages() == ["silent-together h1, h3, h5", "switch-down leaf0-1"]


def test_two_hosts_that_share_no_switch_with_nobody_else_page_each(control: Control) -> None:
    _fleet(control, 6)
    control.answering -= {"h1", "h3"}
    _run(control, 14, silent=["h1", "h3"])
    assert control.pages() == ["host-silent h1", "host-silent h3"]


def test_hosts_that_fall_silent_long_after_their_switches_died_are_a_page(control: Control) -> None:
    """They reported until now; nobody could probe them any more."""
    _fleet(control, 4)
    _down(control, {"leaf0-1", "leaf1-1"})
    _run(control, 20)
    control.answering = frozenset({"h0", "h2"})
    switches = ["switch-down leaf0-1", "switch-down leaf1-1"]
    assert sorted(control.pages()) == switches
    _run(control, 14, silent=["h1", "h3"])
    assert control.pages()[2:] == ["silent-together h1, h3"]


# --- what narrows them down ---


def _stop(control: Control, seconds: int, answered: Iterable[str] = ()) -> None:
    """h0 and h2 have stopped; these switches answer path learners."""
    control.answering = frozenset({"h1", "h3"})
    for _ in range(seconds):
        control.answered_ns |= dict.fromkeys(answered, control.now_ns)
        _run(control, 1, silent=["h0", "h2"])


@pytest.mark.parametrize("named", ["leaf", "hosts"])
def test_a_switch_that_answers_while_its_hosts_do_not_is_named_no_longer(
    control: Control, named: str
) -> None:
    """Of one leaf, and of two that only these hosts are at. The page stays, with other words."""
    _fleet(control, 4)
    leaves = ["leaf0-0"] if named == "leaf" else ["leaf0-0", "leaf1-0"]
    control.findings = (
        (dark_leaf("leaf0-0"),)
        if named == "leaf"
        else _dark(["replies of h0", "replies of h2"], "replies")
    )
    control.answered_ns = dict.fromkeys(leaves, control.now_ns)
    _stop(control, 20)
    pages = [f"switch-or-hosts hosts at {leaf} or {leaf}" for leaf in leaves]
    assert sorted(control.pages()) == pages
    for page in (each for each in control.live_incidents() if each["pages"]):
        assert page["summary"].startswith(f"{page['subject']}: no packets arrive")
    _stop(control, 20, answered=leaves[:1])
    assert sorted(control.pages()) == pages
    for page in (each for each in control.live_incidents() if each["pages"]):
        leaf = page["subject"].partition(" or ")[2]
        assert page["summary"] == f"hosts at {leaf}: no packets arrive from there"
    control.findings, control.answering = (), frozenset({"h0", "h1", "h2", "h3"})
    control.silent |= {"h0": 0, "h2": 0}
    _run(control, 60)
    assert sorted(control.pages()) == pages
    assert control.live() == {}


def test_what_a_switch_answered_before_its_hosts_were_dark_proves_nothing(
    control: Control,
) -> None:
    """They had lost their management network long before."""
    hosts = _fleet(control, 4)
    for _ in range(20):
        control.answered_ns |= {"leaf0-0": control.now_ns}
        _run(control, 1, silent=["h0", "h2"])
    assert control.answering == {*hosts}
    control.findings = (dark_leaf("leaf0-0"),)
    _stop(control, 20)
    subject = "hosts at leaf0-0 or leaf0-0"
    assert control.pages() == ["silent-together h0, h2", f"switch-or-hosts {subject}"]
    assert "hosts at leaf0-0" not in control.live()
    _stop(control, 20, answered=["leaf0-0"])
    assert len(control.pages()) == 2
    (page,) = (each for each in control.live_incidents() if each["subject"] == subject)
    assert page["summary"] == "hosts at leaf0-0: no packets arrive from there"


def test_a_leaf_that_is_back_does_not_become_its_hosts(control: Control) -> None:
    """It answers before they have connected again."""
    _fleet(control, 4)
    control.findings = (dark_leaf("leaf0-0"),)
    _stop(control, 20)
    _stop(control, 2, answered=["leaf0-0"])
    control.findings, control.answering = (), frozenset({"h0", "h1", "h2", "h3"})
    _run(control, 4, silent=["h0", "h2"])
    # It dies again.
    control.findings = (dark_leaf("leaf0-0"),)
    _stop(control, 20)
    assert control.pages() == ["switch-or-hosts hosts at leaf0-0 or leaf0-0"]
    assert "hosts at leaf0-0" not in control.live()
    assert ChangeKind.RENAMED not in {change.kind for change in control.changes}


def test_a_switch_of_which_hosts_report_that_its_ports_are_down_is_named_alone(
    control: Control,
) -> None:
    """They are back over another leaf."""
    _fleet(control, 4)
    control.in_band = {"h0": "h0/rail0", "h2": "h2/rail0"}
    control.findings = (dark_leaf("leaf0-0"),)
    _stop(control, 20)
    control.silent |= {"h0": 0, "h2": 0}
    control.answering = frozenset({"h0", "h1", "h2", "h3"})
    _down(control, {"leaf0-0"})
    _run(control, 5)
    assert control.pages() == ["switch-or-hosts hosts at leaf0-0 or leaf0-0"]
    (page,) = (each for each in control.live_incidents() if each["pages"])
    assert page["summary"].startswith("leaf0-0: down: no known path")


def test_the_probabilities_of_equal_suspects_add_up_to_those_of_the_finding() -> None:
    homes = {f"h{n}/rail{rail}": f"leaf{rail}" for n in range(2) for rail in range(RAILS)}
    found = with_switches_of_dead_hosts(_dark(["h0", "h1"]), homes, {}, {})
    assert len(found) == RAILS
    nic = finding(
        "h0/rail0", "nic", confidence=0.6,
        alternatives=("leaf0->h0/rail0",), probabilities=(0.3,), twins=1,
    )  # fmt: skip
    (lone,) = with_lone_peers(
        [nic], [("h0/rail0", "h1/rail0"), ("h0/rail0", "h2/rail0")], ["h2/rail0"]
    )
    assert {*suspected(lone)} > {"h0/rail0", "h1/rail0"}
    assert [each.confidence + sum(each.probabilities) for each in (*found, lone)] == pytest.approx(
        [1.0, 1.0, 0.9]
    )
    odds = dict(zip(lone.alternatives, lone.probabilities, strict=True))
    assert odds["h1/rail0"] == pytest.approx(0.45), "as likely as all at the other NIC"

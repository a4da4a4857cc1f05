"""Hosts whose only way to the controller is the fabric: what dies there also silences them."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest
from tests.controller.judged import Control, dark_leaf, finding, port
from tests.controller.test_sessions import CERTIFICATE
from tests.link import hello

from syntony.controller.agent_hub import AgentHub, nic_of
from syntony.controller.config import ControllerConfig
from syntony.controller.fleet import Fleet
from syntony.controller.sessions import AgentSession, Opening
from syntony.model import S
from syntony.model.findings import Finding
from syntony.model.names import host_of

PER_LEAF = 3


def _fleet(control: Control, leaves: int) -> list[str]:
    hosts = [f"h{number}" for number in range(PER_LEAF * leaves)]
    control.homes = {
        f"{host}/rail0": f"leaf{number // PER_LEAF}" for number, host in enumerate(hosts)
    }
    control.silent = dict.fromkeys(hosts, 0)
    control.answering = frozenset(hosts)
    control.store.links.seen = tuple(map(port, control.homes))
    control.tick(3)
    return hosts


@pytest.mark.parametrize("leaves", [3, 5])
def test_leaves_that_die_at_once_are_a_page_each_and_the_silence_is_none(
    control: Control, leaves: int
) -> None:
    """Of three leaves two silence most of the fleet, of five some hosts together."""
    hosts = _fleet(control, leaves)
    cut = hosts[: 2 * PER_LEAF]
    control.answering = frozenset(hosts) - {*cut}
    for second in range(4, 40, 2):
        control.silent |= dict.fromkeys(cut, second * S)
        control.findings = (dark_leaf("leaf0"), dark_leaf("leaf1"))
        control.tick()
    named = "switch-or-hosts hosts at {0} or {0}"
    assert sorted(control.pages()) == [named.format("leaf0"), named.format("leaf1")]
    by_rule = {each["rule"]: each for each in control.live_incidents()}
    silence = by_rule["fleet-silent" if leaves == 3 else "silent-together"]
    assert silence["cause"] in {each["number"] for each in by_rule.values()}
    # The first leaf is back, and so are its hosts; those of the other are still its evidence.
    control.silent |= dict.fromkeys(hosts[:PER_LEAF], 0)
    control.answering = frozenset(hosts) - {*hosts[PER_LEAF : 2 * PER_LEAF]}
    control.findings = (dark_leaf("leaf1"),)
    control.tick(20)
    assert len(control.pages()) == 2


def test_a_host_elsewhere_that_falls_silent_with_two_leaves_is_a_page(control: Control) -> None:
    hosts = _fleet(control, 5)
    cut = [*hosts[: 2 * PER_LEAF], hosts[-1]]
    control.answering = frozenset(hosts) - {*cut}
    for second in range(4, 40, 2):
        control.silent |= dict.fromkeys(cut, second * S)
        control.findings = (dark_leaf("leaf0"), dark_leaf("leaf1"))
        control.tick()
    assert any(each.startswith("silent-together") for each in control.pages())


@pytest.mark.parametrize("first", ["leaf0", "leaf1"])
@pytest.mark.parametrize("known", ["hosts", "ports"])
def test_leaves_that_silence_all_agents_are_one_page_whichever_is_back_first(
    control: Control, first: str, known: str
) -> None:
    """Nothing else can be known until a leaf is back: then its hosts find the other one dead. Of
    the five hosts two are at leaf1."""
    hosts = _fleet(control, 2)
    removed = f"{hosts.pop()}/rail0"
    del control.homes[removed], control.silent[host_of(removed)]
    control.in_band = {host_of(nic): nic for nic in control.homes}
    control.answering = frozenset()
    for second in range(2, 30, 2):
        control.silent = dict.fromkeys(hosts, second * S)
        control.tick()
    assert control.pages() == ["fleet-silent all agents"]
    (page,) = (each for each in control.live_incidents() if not each["cause"])
    assert "they report over the fabric, by leaf0, leaf1" in page["evidence"]
    left = "leaf1" if first == "leaf0" else "leaf0"
    cut = [host for host in hosts if control.homes[f"{host}/rail0"] == left]
    control.silent |= dict.fromkeys(set(hosts) - {*cut}, 0)
    control.answering = frozenset(hosts) - {*cut}
    control.findings = (dark_leaf(left),)
    for second in range(30, 90, 2):
        control.silent |= dict.fromkeys(cut, second * S)
        control.tick()
    assert len(control.pages()) == 1
    assert [each["number"] for each in control.live_incidents() if not each["cause"]] == [1]
    control.answering, control.findings = frozenset(hosts), ()
    control.silent = dict.fromkeys(hosts, 0)
    if known == "ports":
        # They are back over another network.
        control.store.links.seen = tuple(
            port(nic, state="no-peer" if at == left else "active")
            for nic, at in control.homes.items()
        )
        control.tick(20)
        control.store.links.seen = tuple(map(port, control.homes))
    control.tick(40)
    assert len(control.pages()) == 1
    assert control.live() == {}


def test_a_leaf_that_dies_long_before_the_others_has_a_page_of_its_own(control: Control) -> None:
    hosts = _fleet(control, 2)
    control.in_band = {host_of(nic): nic for nic in control.homes}
    control.answering = frozenset(hosts[PER_LEAF:])
    control.findings = (dark_leaf("leaf0"),)
    for second in range(2, 30, 2):
        control.silent |= dict.fromkeys(hosts[:PER_LEAF], second * S)
        control.tick()
    control.answering, control.findings = frozenset(), ()
    for second in range(2, 30, 2):
        control.silent |= dict.fromkeys(hosts[PER_LEAF:], second * S)
        control.silent |= dict.fromkeys(hosts[:PER_LEAF], (second + 30) * S)
        control.tick()
    assert control.pages() == ["switch-or-hosts hosts at leaf0 or leaf0", "fleet-silent all agents"]


@pytest.mark.parametrize("back_after_s", [16, 30])
@pytest.mark.parametrize(("rails", "in_band"), [(1, False), (2, False), (1, True), (2, True)])
def test_a_nic_that_dies_with_its_hosts_way_to_the_controller_is_one_page(
    control: Control, rails: int, in_band: bool, back_after_s: int
) -> None:
    """Its host is silent; then it is back by another network, and its port is down."""
    hosts = _fleet(control, 2)
    if rails > 1:
        control.homes |= {f"{host}/rail1": "leaf9" for host in hosts}
        control.store.links.seen = tuple(map(port, control.homes))
    if in_band:
        control.in_band["h0"] = "h0/rail0"
    up = control.store.links.seen
    down = tuple(
        port(each.nic, state="no-peer" if each.nic == "h0/rail0" else "active") for each in up
    )
    control.answering = frozenset(hosts[1:])
    for second in range(2, back_after_s, 2):
        control.silent["h0"] = second * S
        control.tick()
    assert control.pages() == ["host-silent h0"]
    control.silent["h0"] = 0
    control.in_band.clear()
    control.store.links.seen = down
    control.tick(20)
    if rails == 2 and not in_band:
        assert control.pages() == ["host-silent h0", "port-down h0/rail0"], "it has others"
        return
    assert control.pages() == ["host-silent h0"]
    (paged,) = (each for each in control.live_incidents() if not each["cause"])
    assert paged["summary"] == "h0/rail0: a compute port is down"
    assert "h0: no report from its agent" in paged["former_words"][0]
    control.store.links.seen = up
    control.answering = frozenset(hosts)
    control.tick(20)
    assert control.live() == {}
    assert control.pages() == ["host-silent h0"]


def _two_rails(control: Control) -> list[str]:
    """Each host has a second NIC at another leaf, and reports over the first."""
    hosts = _fleet(control, 2)
    control.homes |= {f"{host}/rail1": "leaf9" for host in hosts}
    control.store.links.seen = tuple(map(port, control.homes))
    control.in_band = {host: f"{host}/rail0" for host in hosts}
    control.tick(3)
    return hosts


@pytest.mark.parametrize("part", ["h0/rail0", "leaf0->h0/rail0", "h0/rail0->leaf0 or leaf0"])
def test_a_nic_that_paged_explains_why_its_host_is_silent(control: Control, part: str) -> None:
    hosts = _two_rails(control)
    kind = "nic" if part == "h0/rail0" else "link"
    name, *twins = part.split(" or ")
    dead = finding(
        name, kind, fault="blackhole", loss=1.0, alternatives=tuple(twins),
        probabilities=(0.5,) * len(twins), twins=len(twins), confidence=0.5 if twins else 1.0,
    )  # fmt: skip
    control.findings = (dead,)
    for second in range(2, 40, 2):
        control.silent["h0"] = second * S
        control.tick()
    (page,) = control.pages()
    assert page.endswith(part)
    (paged,) = (each for each in control.live_incidents() if not each["cause"])
    assert "no report" not in paged["summary"], "the effect is no better name"
    control.silent["h0"], control.findings = 0, ()
    control.tick(40)
    assert control.live() == {}
    # Its NIC is well, and nothing explains that it is silent again.
    for second in range(2, 30, 2):
        control.silent["h0"] = second * S
        control.tick()
    assert control.pages()[1:] == ["host-silent h0"]
    assert hosts


@pytest.mark.parametrize("in_band", [True, False])
def test_a_nic_that_outlives_the_silence_it_caused_is_no_second_page(
    control: Control, in_band: bool
) -> None:
    """The host is back over its other NIC, and its port is reported late."""
    _two_rails(control)
    if not in_band:
        control.in_band.clear()
    for second in range(2, 16, 2):
        control.silent["h0"] = second * S
        control.tick()
    assert control.pages() == ["host-silent h0"]
    control.findings = (finding("h0/rail0", "nic", fault="blackhole", loss=1.0),)
    control.tick()
    control.silent["h0"] = 0
    control.in_band["h0"] = "h0/rail1"
    control.tick(20)
    up = control.store.links.seen
    control.store.links.seen = tuple(
        port(each.nic, state="no-peer" if each.nic == "h0/rail0" else "active") for each in up
    )
    control.tick(10)
    assert control.pages() == ["host-silent h0"] + ["nic-loss h0/rail0"] * (not in_band)
    assert any("h0/rail0" in each["summary"] for each in control.live_incidents() if each["pages"])
    control.store.links.seen, control.findings = up, ()
    control.tick(40)
    assert control.live() == {}


def _dead(nic: str) -> Finding:
    return finding(nic, "nic", fault="blackhole", loss=1.0)


@pytest.mark.parametrize("second_found_s", [4, 8])
def test_nics_that_die_together_are_a_page_each_and_the_silence_is_none(
    control: Control, second_found_s: int
) -> None:
    hosts = _two_rails(control)
    for second in range(1, 40):
        if second >= 4:
            both = (_dead("h0/rail0"), _dead("h1/rail0"))
            control.findings = both[: 1 + (second >= second_found_s)]
        control.silent |= {"h0": second * S, "h1": (second - 1) * S}
        control.tick(after_ns=S)
    pages = ["nic-loss h0/rail0", "nic-loss h1/rail0"]
    assert sorted(control.pages()) == pages
    # They are back over their other NICs, and their ports are down.
    control.silent |= {"h0": 0, "h1": 0}
    control.in_band |= {"h0": "h0/rail1", "h1": "h1/rail1"}
    control.store.links.seen = tuple(
        port(nic, state="no-peer" if nic in {"h0/rail0", "h1/rail0"} else "active")
        for nic in control.homes
    )
    control.tick(20)
    assert sorted(control.pages()) == pages
    # The same silence without these NICs is a page.
    control.findings, control.store.links.seen = (), tuple(map(port, control.homes))
    control.tick(40)
    assert control.live() == {}
    for second in range(2, 30, 2):
        control.silent |= {"h0": second * S, "h1": second * S}
        control.tick()
    assert [*control.pages()[2:]] == ["silent-together h0, h1"]
    assert hosts


def test_nics_that_die_together_are_not_the_silence_of_a_third_host(control: Control) -> None:
    _two_rails(control)
    control.findings = (_dead("h0/rail0"), _dead("h1/rail0"))
    for second in range(2, 40, 2):
        control.silent |= dict.fromkeys(("h0", "h1", "h2"), second * S)
        control.tick()
    assert "silent-together h0, h1, h2" in control.pages()


def test_nics_found_dead_after_the_silence_of_their_hosts_are_no_second_page(
    control: Control,
) -> None:
    _two_rails(control)
    for second in range(2, 16, 2):
        control.silent |= {"h0": second * S, "h1": second * S}
        control.tick()
    assert control.pages() == ["silent-together h0, h1"]
    control.silent |= {"h0": 0, "h1": 0}
    control.in_band |= {"h0": "h0/rail1", "h1": "h1/rail1"}
    control.findings = (_dead("h0/rail0"), _dead("h1/rail0"))
    control.tick(4)
    up = control.store.links.seen
    control.store.links.seen = tuple(
        port(each.nic, state="no-peer" if each.nic in {"h0/rail0", "h1/rail0"} else "active")
        for each in up
    )
    control.tick(20)
    assert control.pages() == ["silent-together h0, h1"]
    (paged,) = (each for each in control.live_incidents() if not each["cause"])
    assert paged["rule"] == "silent-together", "it is about both"
    control.store.links.seen, control.findings = up, ()
    control.tick(40)
    assert control.live() == {}


def test_a_dead_nic_does_not_explain_a_host_that_reports_over_another(control: Control) -> None:
    _two_rails(control)
    control.in_band["h0"] = "h0/rail1"
    control.findings = (finding("h0/rail0", "nic", fault="blackhole", loss=1.0),)
    for second in range(2, 40, 2):
        control.silent["h0"] = second * S
        control.tick()
    assert control.pages() == ["nic-loss h0/rail0", "host-silent h0"]


def test_a_leaf_explains_hosts_that_have_other_leaves_but_report_over_it(control: Control) -> None:
    hosts = _two_rails(control)
    control.store.links.seen = tuple(
        port(nic, state="no-peer" if at == "leaf0" else "active")
        for nic, at in control.homes.items()
    )
    control.tick()
    control.answering = frozenset(hosts)
    for second in range(2, 40, 2):
        control.silent |= dict.fromkeys(hosts[:PER_LEAF], second * S)
        control.tick()
    assert control.pages() == ["switch-down leaf0"]


@pytest.mark.parametrize(
    ("known_s", "in_band", "alive", "pages_after_s"),
    [
        (4, True, True, 45),
        (4, False, True, 10),
        (4, True, False, 10),
        (-60, True, True, 10),
    ],
)
def test_a_spine_that_just_died_is_given_time_to_silence_nobody_for_long(
    control: Control, known_s: int, in_band: bool, alive: bool, pages_after_s: int
) -> None:
    """Agents find another path: until then their silence does not page. A host that reports over
    another network, that is dead, or that fell silent long after the spine died, pages at once."""
    hosts = _two_rails(control)
    spine = finding("spine0", "spine", fault="blackhole", loss=1.0)
    if not in_band:
        control.in_band.clear()
    if not alive:
        control.answering = frozenset(hosts[1:])
    if known_s < 0:
        control.findings = (spine,)
        control.tick(-known_s // 2)
    for second in range(2, 60, 2):
        if second >= known_s:
            control.findings = (spine,)
        control.silent["h0"] = second * S
        control.tick()
        expected = ["switch-loss spine0"] * (second >= known_s + 4)
        expected += ["host-silent h0"] * (second > pages_after_s)
        assert control.pages() == expected, second


@pytest.mark.parametrize(
    ("peer", "nic"),
    [
        ("ipv4:10.1.0.1:5000", "rail1"),
        ("ipv4:10.1.0.1:5000 through gateway2", "rail1"),
        ("ipv6:%5Bfd00::1%5D:5000", "rail0"),
        ("ipv6:[fd00:0::1]:5000", "rail0"),
        ("ipv4:10.1.0.2:5000", ""),
        ("unix:", ""),
        ("", ""),
    ],
)
def test_the_nic_of_a_connection_is_the_one_that_has_its_address(peer: str, nic: str) -> None:
    greeting = hello("h1", "s")
    first, second = greeting.nics
    nics = (
        msgspec.structs.replace(first, addresses=("10.0.0.1", "fd00::1")),
        msgspec.structs.replace(second, addresses=("10.1.0.1",)),
    )
    greeting = msgspec.structs.replace(greeting, nics=nics)
    named = f"h1/{nic}" if nic else ""
    assert nic_of(greeting, peer) == named
    services: Any = MagicMock()
    services.fleet = Fleet(ControllerConfig(listen="x", tls_ca="", tls_cert="", tls_key=""))
    parts: Any = MagicMock()
    hub = AgentHub(
        services=services, sessions={}, ingest=parts, last_reports=parts, job_flows=parts,
        segments=parts, dispatcher=parts, fleet_now=lambda: None,
    )  # fmt: skip
    hub.attached(AgentSession(greeting, CERTIFICATE, Opening(peer=peer)), greeting, ())
    assert services.fleet.in_band() == ({"h1": named} if named else {})

"""Agents that fall silent: one by one they are hosts, most of them at once is what they share."""

from __future__ import annotations

import random

import pytest
from tests.controller.judged import Control, finding, line, port

from syntony.controller.containment import FLEET
from syntony.controller.silent_agents import MAX_LISTED, Refused, of_fleet, of_hosts, of_sets
from syntony.model import ClockState, S

TICK_S = 2


def fall_silent(control: Control, hosts: list[str], rng: random.Random, seconds: int) -> None:
    """Each said its last word at an instant of its own, within a second and a half."""
    ages = {host: rng.randrange(-3 * S // 2, 1) for host in hosts}
    for _ in range(seconds // TICK_S):
        ages = {host: age_ns + TICK_S * S for host, age_ns in ages.items()}
        control.silent |= {host: max(0, age_ns) for host, age_ns in ages.items()}
        control.tick()


def hear_again(control: Control, hosts: list[str], seconds: int) -> None:
    control.silent |= dict.fromkeys(hosts, 0)
    control.tick(seconds // TICK_S)


@pytest.mark.parametrize("case", range(6))
def test_a_dead_management_network_is_one_page(control: Control, case: int) -> None:
    seed = random.randrange(10_000) if case else 1
    rng = random.Random(seed)
    hosts = [f"h{number}" for number in range(rng.randint(3, 60))]
    control.silent = dict.fromkeys(hosts, 0)
    control.timelines = tuple(line(host, ClockState.SYNCHRONIZED) for host in hosts)
    control.tick(3)
    gone = rng.sample(hosts, rng.randint(len(hosts) // 2 + 1, len(hosts)))
    fall_silent(control, gone, rng, 60)
    assert control.pages() == [f"fleet-silent {FLEET}"], f"seed {seed}"
    evidence = len(gone) + (len(gone) > 2)
    assert len(control.live()) == evidence + 1, (
        f"seed {seed}: each is kept, and that it was at once"
    )
    hear_again(control, gone, 60)
    assert control.live() == {}, f"seed {seed}"
    assert len(control.pages()) == 1, f"seed {seed}: none after it is back"


@pytest.mark.parametrize("case", range(6))
def test_half_of_them_or_fewer_that_fall_silent_together_are_one_page(
    control: Control, case: int
) -> None:
    """A management switch of some of the hosts, or the power of a rack."""
    seed = random.randrange(10_000) if case else 1
    rng = random.Random(seed)
    hosts = [f"h{number:02}" for number in range(rng.randint(6, 60))]
    control.silent = dict.fromkeys(hosts, 0)
    control.tick(3)
    alive = case % 2 == 0
    gone = rng.sample(hosts, rng.randint(2 if alive else 3, len(hosts) // 2))
    others = [host for host in hosts if host not in gone]
    control.answering = frozenset(hosts if alive else others)
    fall_silent(control, gone, rng, 40)
    (page,) = control.pages()
    assert page.startswith(f"silent-together {min(gone)}"), f"seed {seed}"
    found = next(each for each in control.live_incidents() if each["rule"] == "silent-together")
    assert ("network to the controller" in " ".join(found["evidence"])) is alive
    assert len(control.live()) == len(gone) + 1, f"seed {seed}: each is kept as evidence"
    # They come back one after the other, as a restarted rack does; the last one never.
    for host in gone[1:]:
        control.silent |= {each: age + 2 * S for each, age in control.silent.items() if age}
        control.silent[host] = 0
        control.tick()
    for _ in range(20):
        control.silent[gone[0]] += 2 * S
        control.tick()
    assert control.pages()[1:] == [f"host-silent {gone[0]}"], f"seed {seed}"
    hear_again(control, hosts, 60)
    assert control.live() == {}, f"seed {seed}"
    assert len(control.pages()) == 2, f"seed {seed}: none after they are back"


@pytest.mark.parametrize("case", range(4))
def test_hosts_that_fall_silent_one_after_the_other_are_hosts_of_their_own(
    control: Control, case: int
) -> None:
    seed = random.randrange(10_000) if case else 1
    rng = random.Random(seed)
    hosts = [f"h{number}" for number in range(rng.randint(3, 20))]
    control.silent = dict.fromkeys(hosts, 0)
    control.answering = frozenset(hosts)
    gone = rng.sample(hosts, rng.randint(1, len(hosts) // 2))
    for host in gone:
        fall_silent(control, [host], rng, 6)
        control.silent = {each: age + 6 * S if age else 0 for each, age in control.silent.items()}
    for _ in range(10):
        control.silent = {each: age + 2 * S if age else 0 for each, age in control.silent.items()}
        control.tick()
    assert sorted(control.pages()) == sorted(f"host-silent {host}" for host in gone), f"seed {seed}"


def test_dead_hosts_and_hosts_that_are_only_not_heard_are_two_causes(control: Control) -> None:
    hosts = [f"h{number}" for number in range(20)]
    control.silent = dict.fromkeys(hosts, 0)
    control.answering = frozenset(hosts[4:])
    fall_silent(control, hosts[:8], random.Random(1), 30)
    assert sorted(control.pages()) == [
        "silent-together h0, h1, h2 and 1 more", "silent-together h4, h5, h6 and 1 more",
    ]  # fmt: skip


def test_a_restart_knows_who_fell_silent_together(control: Control) -> None:
    hosts = [f"h{number}" for number in range(12)]
    control.silent = dict.fromkeys(hosts, 0)
    fall_silent(control, hosts[:5], random.Random(1), 30)
    control.start()
    for host in hosts[:5]:
        del control.silent[host]
    control.tick(60)
    control.silent |= dict.fromkeys(hosts[:5], 90 * S)
    control.tick(30)
    assert control.pages() == ["silent-together h0, h1, h2 and 2 more"]


def test_a_set_behind_one_dead_leaf_is_the_leafs(control: Control) -> None:
    hosts = [f"h{number}" for number in range(12)]
    control.homes = {f"{host}/rail0": f"leaf{number // 4}" for number, host in enumerate(hosts)}
    control.silent = dict.fromkeys(hosts, 0)
    control.tick(3)
    control.fabric = None
    control.store.links.seen = tuple(
        port(nic, state="no-peer" if at == "leaf1" else "active")
        for nic, at in control.homes.items()
    )
    control.tick(3)
    fall_silent(control, hosts[4:8], random.Random(1), 12)
    assert control.pages() == ["switch-down leaf1"]


def test_most_of_the_fleet_behind_one_leaf_is_that_leafs(control: Control) -> None:
    """And who is silent elsewhere as well is not."""
    hosts = [f"h{number}" for number in range(7)]
    control.homes = {f"{host}/rail0": f"leaf{number // 4}" for number, host in enumerate(hosts)}
    control.silent = dict.fromkeys(hosts, 0)
    control.tick(3)
    both = ("leaf0", "hosts at leaf0")
    control.findings = (
        finding(both[0], "leaf", fault="blackhole", loss=1.0, alternatives=both[1:],
                probabilities=(0.5,), confidence=0.5, twins=1),
    )  # fmt: skip
    fall_silent(control, hosts[:4], random.Random(1), 30)
    assert control.pages() == ["switch-or-hosts hosts at leaf0 or leaf0"]
    assert control.live()[FLEET] == "fleet-silent"
    fall_silent(control, hosts[4:6], random.Random(1), 20)
    assert control.pages()[1:] == [f"fleet-silent {FLEET}"]


def test_agents_that_are_back_later_than_their_leaf_are_still_its_evidence(
    control: Control,
) -> None:
    hosts = [f"h{number}" for number in range(7)]
    control.homes = {f"{host}/rail0": f"leaf{number // 4}" for number, host in enumerate(hosts)}
    control.silent = dict.fromkeys(hosts, 0)
    control.findings = (
        finding("leaf0", "leaf", fault="blackhole", loss=1.0, alternatives=("hosts at leaf0",),
                probabilities=(0.5,), confidence=0.5, twins=1),
    )  # fmt: skip
    fall_silent(control, hosts[:4], random.Random(1), 30)
    control.findings = ()
    for _ in range(15):
        control.silent |= {host: control.silent[host] + 2 * S for host in hosts[:4]}
        control.tick()
    assert "leaf0" not in "".join(control.live())
    hear_again(control, hosts, 60)
    assert control.live() == {}
    assert control.pages() == ["switch-or-hosts hosts at leaf0 or leaf0"]


def test_of_two_agents_neither_stands_for_the_fleet(control: Control) -> None:
    fall_silent(control, ["h0", "h1"], random.Random(1), 40)
    assert sorted(control.pages()) == ["host-silent h0", "host-silent h1"]


def test_who_stays_away_when_the_others_are_back_is_a_host_of_its_own(control: Control) -> None:
    hosts = [f"h{number}" for number in range(8)]
    control.silent = dict.fromkeys(hosts, 0)
    fall_silent(control, hosts, random.Random(1), 30)
    hear_again(control, hosts[1:], 30)
    control.silent["h0"] = 90 * S
    assert control.pages() == [f"fleet-silent {FLEET}"], "it may still come back"
    control.tick(10)
    assert control.pages() == [f"fleet-silent {FLEET}", "host-silent h0"]
    assert control.live() == {"h0": "host-silent"}


def test_what_is_told_of_a_fleet_names_those_that_are_silent_and_no_others() -> None:
    ages = {f"h{number}": 0 for number in range(MAX_LISTED + 2)}
    (well,) = of_fleet(ages)
    assert (well.value, well.evidence) == (0.0, ())
    some = of_fleet(ages | {f"h{number}": 9 * S for number in range(MAX_LISTED)})[0]
    assert some.evidence == ("5 of 7 agents: h0, h1, h2, h3, h4",)
    more = of_fleet(dict.fromkeys(ages, 9 * S))[0]
    assert more.evidence == ("7 of 7 agents: h0, h1, h2, h3, h4 …",)


@pytest.mark.parametrize(("age_s", "silent"), [(5.9, 0), (6.1, 3), (7.9, 3), (10.1, 3)])
def test_a_known_set_lasts_while_its_agents_are_nearly_as_silent(age_s: float, silent: int) -> None:
    """One of a set is `TOGETHER_S` younger than what made it one."""
    hosts = ("h0", "h1", "h2")
    ages = dict.fromkeys(hosts, int(age_s * S))
    (seen,) = of_sets(ages, (), {"h0, h1, h2": hosts})
    assert (seen.value, bool(seen.evidence)) == (silent, silent > 0)
    assert seen.members == hosts


def of(control: Control, rule: str) -> dict[str, object]:
    return next(each for each in control.live_incidents() if each["rule"] == rule)


@pytest.mark.parametrize(
    ("answering", "reasons", "told"),
    [
        ({"h0", "h1", "h2"}, {}, "the host is up"),
        ({"h0", "h1"}, {}, "down or cut off"),
        (set(), {}, "no other host that reports probes it"),
        ({"h0", "h1", "h2"}, {"h2": "the certificate of 'h2' has been revoked"}, "revoked"),
        ({"h0", "h1", "h2"}, {"h1": "the certificate of 'h1' has been revoked"}, "the host is up"),
    ],
)
def test_a_silent_agent_is_reported_with_what_else_is_known_of_its_host(
    control: Control, answering: set[str], reasons: dict[str, str], told: str
) -> None:
    control.silent = dict.fromkeys(("h0", "h1", "h2"), 0)
    control.answering, control.refused = frozenset(answering), Refused(reasons, frozenset())
    control.tick(3)
    fall_silent(control, ["h2"], random.Random(1), 30)
    assert control.pages() == ["host-silent h2"]
    assert told in str(of(control, "host-silent")["evidence"])


def test_an_agent_that_reports_needs_no_explanation() -> None:
    (seen,) = of_hosts({"h0": 1 * S}, frozenset(), {"h1"}, {"h0": "of long ago"})
    assert seen.evidence == ()


def test_a_host_that_leaves_the_fleet_is_missed_no_longer(control: Control) -> None:
    """Also one that fell silent with others, which are missed still."""
    hosts = ["h0", "h1", "h2", "h3", "h4", "h5", "h6"]
    control.silent = dict.fromkeys(hosts, 0)
    control.answering = frozenset(hosts)
    control.timelines = tuple(line(host, ClockState.UNKNOWN) for host in ("h0", "h0/rail0"))
    control.tick(3)
    fall_silent(control, hosts[:3], random.Random(1), 30)
    assert control.live()["h0/rail0"] == "clock-unsynchronized"
    assert set(control.live()) >= set(hosts[:3])
    for gone in (hosts[:1], hosts[:3]):
        control.refused = Refused({}, frozenset({*gone, "viewer"}))
        for host in gone:
            control.silent.pop(host, None)
        before = len(control.pages())
        for _ in range(15):
            control.silent |= {host: control.silent[host] + 2 * S for host in hosts[len(gone) : 3]}
            control.tick()
        assert {subject for subject in control.live() if subject in hosts} == set(
            hosts[len(gone) : 3]
        )
        assert len(control.pages()) == before
    assert control.live() == {}

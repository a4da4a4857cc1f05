"""Clocks that leave the fleet timeline, never come to it, or are forgotten: each is told, most of
them at once are one page."""

from __future__ import annotations

import random

import pytest
from tests.controller.judged import T0, Control, finding, line, port

from syntony.controller.clock_watch import NEW_NS, ClockWatch
from syntony.controller.containment import FLEET
from syntony.controller.incident_evaluation import WITHOUT_TIME_NS, evaluation_time
from syntony.model import ClockState, S
from syntony.model.names import host_of

GOOD = ClockState.SYNCHRONIZED


def drawn(case: int) -> tuple[random.Random, str]:
    seed = random.randrange(10_000) if case else 1
    return random.Random(seed), f"seed {seed}"


def start(control: Control, hosts: list[str], states: dict[str, ClockState] | None = None) -> None:
    control.silent = dict.fromkeys(hosts, 0)
    control.probed = frozenset(hosts)
    control.timelines = tuple(line(host, (states or {}).get(host, GOOD)) for host in hosts)
    control.tick(3)


def without(control: Control, gone: list[str]) -> None:
    control.timelines = tuple(each for each in control.timelines if each.node not in gone)


@pytest.mark.parametrize("case", range(4))
def test_a_clock_that_is_forgotten_is_still_not_synchronized(control: Control, case: int) -> None:
    """In holdover first, then given up by the solve: the incident stays until it is back."""
    rng, seed = drawn(case)
    hosts = [f"h{number}" for number in range(rng.randint(3, 20))]
    start(control, hosts)
    lost = rng.choice(hosts)
    control.timelines = tuple(
        line(host, ClockState.HOLDOVER if host == lost else GOOD) for host in hosts
    )
    control.tick(25)
    assert control.pages() == [f"clock-unsynchronized {lost}"], seed
    without(control, [lost])
    control.tick(60)
    assert control.live() == {lost: "clock-unsynchronized"}, seed
    start(control, hosts)
    control.tick(30)
    assert control.live() == {}, seed
    assert len(control.pages()) == 1, seed


@pytest.mark.parametrize("case", range(4))
def test_most_clocks_at_once_are_one_page(control: Control, case: int) -> None:
    rng, seed = drawn(case)
    hosts = [f"h{number:02}" for number in range(rng.randint(4, 40))]
    start(control, hosts)
    lost = rng.sample(hosts, rng.randint(len(hosts) // 2 + 1, len(hosts)))
    without(control, lost)
    control.tick(60)
    assert control.pages() == [f"fleet-unsynchronized {FLEET}"], seed
    assert set(control.live()) == {FLEET, *lost}, seed
    (found,) = (each for each in control.live_incidents() if each["subject"] == FLEET)
    told = " ".join(found["evidence"])
    assert f"{len(lost)} of {len(hosts)} clocks: {min(lost)}" in told, seed
    assert "no probe has measured it" in told, seed
    start(control, hosts)
    control.tick(60)
    assert control.live() == {}, seed
    assert len(control.pages()) == 1, seed


@pytest.mark.parametrize("case", range(4))
def test_some_clocks_are_pages_of_their_own(control: Control, case: int) -> None:
    rng, seed = drawn(case)
    hosts = [f"h{number:02}" for number in range(rng.randint(4, 20))]
    start(control, hosts)
    lost = rng.sample(hosts, rng.randint(1, len(hosts) // 2))
    without(control, lost)
    control.tick(60)
    assert sorted(control.pages()) == [f"clock-unsynchronized {host}" for host in sorted(lost)], (
        seed
    )


def test_a_fleet_that_starts_is_given_time(control: Control) -> None:
    """Nothing has a timeline yet; what has none after half a minute is told."""
    hosts = ["h0", "h1", "h2", "h3"]
    control.silent = dict.fromkeys(hosts, 0)
    control.probed = frozenset(hosts)
    control.tick(NEW_NS // (2 * S))
    assert control.live() == {}
    control.timelines = tuple(line(host, GOOD) for host in hosts[:3])
    control.tick(30)
    assert control.pages() == ["clock-unsynchronized h3"]


def test_a_new_clock_is_given_time_of_its_own(control: Control) -> None:
    hosts = ["h0", "h1", "h2"]
    start(control, hosts)
    control.tick(60)
    control.probed |= {"h9"}
    control.silent["h9"] = 0
    control.tick(NEW_NS // (2 * S))
    assert control.live() == {}
    control.timelines += (line("h9", GOOD),)
    control.tick(60)
    assert control.live() == {}
    # Whoever comes back is new again: time is counted from when it was missed, not from the first.
    without(control, ["h9"])
    control.tick(NEW_NS // (2 * S))
    assert control.live() == {}


def test_a_clock_that_nobody_expects_any_more_is_over(control: Control) -> None:
    hosts = ["h0", "h1", "h2", "h3"]
    start(control, hosts)
    without(control, ["h3"])
    control.tick(60)
    assert control.live() == {"h3": "clock-unsynchronized"}
    control.probed -= {"h3"}
    control.tick(60)
    assert control.live() == {}


def test_a_dead_nic_explains_the_clock_that_it_alone_showed(control: Control) -> None:
    hosts = ["h0", "h1", "h2", "h3"]
    start(control, hosts)
    control.homes = {f"{host}/rail0": "leaf0" for host in hosts}
    control.findings = (finding("h3/rail0", "nic", loss=1.0),)
    without(control, ["h3"])
    control.tick(60)
    assert control.pages() == ["nic-loss h3/rail0"]
    assert control.live()["h3"] == "clock-unsynchronized"


def test_a_port_that_was_never_up_explains_the_clock_of_its_host(control: Control) -> None:
    hosts = ["h0", "h1", "h2", "h3"]
    control.homes = {f"{host}/rail0": "leaf0" for host in hosts}
    control.store.links.seen = (port("h3/rail0", state="down"),)
    start(control, hosts)
    without(control, ["h3"])
    control.tick(60)
    assert control.pages() == ["port-down h3/rail0"]


def test_a_silent_host_tells_nothing_of_its_clock(control: Control) -> None:
    hosts = ["h0", "h1", "h2", "h3"]
    start(control, hosts)
    without(control, ["h3"])
    for _ in range(60):
        control.silent["h3"] += 2 * S
        control.tick()
    assert control.pages() == ["host-silent h3"]


def test_clocks_of_dead_leaves_say_nothing_of_the_fleet(control: Control) -> None:
    """Two of three leaves die: most clocks, and each of them explained; then all but one."""
    nics = [f"h{number}/rail0" for number in range(9)]
    control.homes = {nic: f"leaf{number % 3}" for number, nic in enumerate(nics)}
    start(control, nics)
    control.silent = {host_of(nic): 0 for nic in nics}
    control.store.links.seen = tuple(
        port(nic, state="active" if at == "leaf2" else "no-peer")
        for nic, at in control.homes.items()
    )
    dead = {nic: ClockState.HOLDOVER for nic, at in control.homes.items() if at != "leaf2"}
    control.timelines = tuple(line(nic, dead.get(nic, GOOD)) for nic in nics)
    control.tick(60)
    assert sorted(control.pages()) == ["switch-down leaf0", "switch-down leaf1"]
    assert FLEET not in control.live()
    control.timelines = tuple(line(nic, ClockState.HOLDOVER) for nic in nics)
    control.tick(30)
    assert control.pages()[2:] == [f"fleet-unsynchronized {FLEET}"], "those that nothing explains"


def test_a_host_and_its_only_nic_do_not_explain_each_other(control: Control) -> None:
    control.homes = {f"h{number}/rail0": f"leaf{number % 2}" for number in range(4)}
    clocks = [name for nic in control.homes for name in (nic, host_of(nic))]
    start(control, clocks)
    control.silent = {host_of(nic): 0 for nic in control.homes}
    control.timelines = tuple(
        line(each, ClockState.HOLDOVER if each.startswith("h0") else GOOD) for each in clocks
    )
    control.tick(60)
    assert len(control.pages()) == 1
    assert len(control.live()) == 2


def test_clocks_of_a_dead_rail_say_nothing_of_the_fleet(control: Control) -> None:
    """All of them: nothing is left that would."""
    nics = [f"h{number}/rail0" for number in range(6)]
    control.homes = dict.fromkeys(nics, "leaf0")
    start(control, nics)
    control.silent = {host_of(nic): 0 for nic in nics}
    control.store.links.seen = tuple(port(nic, state="no-peer") for nic in nics)
    control.tick(5)
    control.timelines = tuple(line(nic, ClockState.HOLDOVER) for nic in nics)
    control.tick(60)
    assert control.pages() == ["switch-down leaf0"]
    assert FLEET not in control.live()


@pytest.mark.parametrize(("known", "value"), [(2, None), (3, 1.0)])
def test_too_few_clocks_blame_nothing_that_they_share(known: int, value: float | None) -> None:
    hosts = [f"h{number}" for number in range(4)]
    lines = [line(host, ClockState.UNKNOWN) for host in hosts]
    *_, fleet = ClockWatch().observe(lines, hosts, hosts[known:], T0)
    assert (fleet.subject, fleet.value) == (FLEET, value)


def test_a_healthy_fleet_has_no_evidence() -> None:
    *_, fleet = ClockWatch().observe([line(host, GOOD) for host in "abc"], "abc", (), T0)
    assert (fleet.value, fleet.evidence) == (0.0, ())


@pytest.mark.parametrize(("after_s", "value"), [(0, None), (30, None), (31, 1.0)])
def test_a_first_timeline_may_take_half_a_minute(after_s: int, value: float | None) -> None:
    watch = ClockWatch()
    watch.observe([], {"h0"}, (), T0)
    (clock, _) = watch.observe([], {"h0"}, (), T0 + after_s * S)
    assert clock.value == value


def test_fleet_time_that_goes_back_leaves_the_patience_as_it_is() -> None:
    watch = ClockWatch()
    watch.observe([], {"h0"}, (), T0 + 3600 * S)
    watch.observe([], {"h0"}, (), T0)
    (clock, _) = watch.observe([], {"h0"}, (), T0 + NEW_NS + 1)
    assert clock.value == 1.0


def test_rules_wait_for_fleet_time_but_not_for_ever() -> None:
    def local() -> int:
        return 7

    assert evaluation_time(None, WITHOUT_TIME_NS, local) is None
    assert evaluation_time(None, WITHOUT_TIME_NS + 1, local) == local()
    assert evaluation_time(T0, WITHOUT_TIME_NS + 1, local) == T0


@pytest.mark.parametrize("case", range(4))
def test_clocks_that_only_silent_hosts_measured_are_evidence(control: Control, case: int) -> None:
    """Most hosts boot at once; who is left has nobody to be measured with."""
    rng, seed = drawn(case)
    hosts = [f"h{number}" for number in range(rng.randint(4, 20))]
    start(control, hosts)
    left = rng.sample(hosts, rng.randint(1, (len(hosts) - 1) // 2))
    control.timelines = tuple(
        line(host, ClockState.HOLDOVER if host in left else GOOD) for host in hosts
    )
    for _ in range(30):
        ages_ns = {host: control.silent[host] + 2 * S for host in set(hosts) - set(left)}
        control.silent |= ages_ns
        control.tick()
    assert control.pages() == [f"fleet-silent {FLEET}"], seed
    start(control, hosts)
    control.tick(30)
    assert control.live() == {}, seed
    assert len(control.pages()) == 1, seed

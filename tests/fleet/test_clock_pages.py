"""What a program on a host is reported fleet time, in a lab with the truth beside it."""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Iterator

import pytest
from tests.live import LiveLab, eventually, live, syntony

from syntony.errors import MissingError
from syntony.io.clock_page import Reading
from syntony.io.clocks import SyntheticClock
from syntony.io.fleet_clock import FleetClock
from syntony.lab.state import clock_directory
from syntony.lab.world import unshare_argv
from syntony.model import MS, ClockState, S

pytestmark = pytest.mark.lab

HOSTS = ("h0", "h1", "h2", "h3")
NAME = "t-pages"
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def lab() -> Iterator[LiveLab]:
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no lab here: {error}: clock pages of a live fleet are NOT tested")
    with live(NAME, "--hosts", "4", agents=True) as made:
        yield made


def clock_of(lab: LiveLab, host: str) -> FleetClock:
    """What a process on `host` has: the page, and the host's clock."""
    return FleetClock(clock_directory(lab.directory, host))


def status(lab: LiveLab, host: str) -> ClockState:
    try:
        return clock_of(lab, host).now().status
    except MissingError:
        return ClockState.UNKNOWN


def all_synchronized(lab: LiveLab) -> bool:
    return all(status(lab, host) is ClockState.SYNCHRONIZED for host in HOSTS)


def readings(lab: LiveLab, real_ns: int) -> dict[str, Reading]:
    """Fleet time at one machine instant, as every host's own clock and page tell it."""
    clocks = lab.file().clocks
    return {
        host: clock_of(lab, host).to_fleet(SyntheticClock(host, clocks[host]).map_ns(real_ns))
        for host in HOSTS
    }


def check_overlap(found: dict[str, Reading]) -> None:
    """All intervals hold the same instant, so any two overlap."""
    for (a, one), (b, two) in itertools.combinations(found.items(), 2):
        if one.bound_ns is not None and two.bound_ns is not None:
            apart_ns = abs(one.fleet_ns - two.fleet_ns)
            assert apart_ns <= one.bound_ns + two.bound_ns, (a, b, one, two)


def test_every_host_tells_the_same_time(lab: LiveLab) -> None:
    eventually(lambda: all_synchronized(lab), "all synchronized")
    began_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    last = dict.fromkeys(HOSTS, 0)
    eventually(lambda: clock_of(lab, "h0").now().status is ClockState.SYNCHRONIZED, "h0")
    for _ in range(40):
        for host in HOSTS:
            reading = clock_of(lab, host).now()
            assert reading.fleet_ns > last[host]
            last[host] = reading.fleet_ns
        check_overlap(readings(lab, time.clock_gettime_ns(time.CLOCK_REALTIME)))
        time.sleep(0.05)
    check_overlap(readings(lab, began_ns))


def test_the_command_and_the_offset(lab: LiveLab) -> None:
    eventually(lambda: all_synchronized(lab), "all synchronized")
    done = syntony("lab", "exec", "--lab", NAME, "h1", "--", "syntony", "clock", "now", "--json")
    said = json.loads(done.stdout)
    assert said["status"] == "SYNCHRONIZED"
    assert said["earliest_ns"] < said["fleet_ns"] < said["latest_ns"]
    clocks = lab.file().clocks
    real_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    known = clock_of(lab, "h0").offset("h0", "h1")
    true_ns = SyntheticClock("h1", clocks["h1"]).map_ns(real_ns) - SyntheticClock(
        "h0", clocks["h0"]
    ).map_ns(real_ns)
    # 80 ppm between two clocks, for as long as a busy machine takes between two lines.
    assert abs(known.offset_ns - true_ns) < known.bound_ns + 80_000


def test_a_successor_goes_on(lab: LiveLab) -> None:
    eventually(lambda: all_synchronized(lab), "all synchronized")
    before = clock_of(lab, "h2").now()
    syntony("lab", "fault", "--lab", NAME, "agent-kill", "h2", "--for", "1s")
    eventually(lambda: "agent-h2" in lab_restarts(lab), "agent restarted")
    eventually(lambda: status(lab, "h2") is ClockState.SYNCHRONIZED, "synchronized again")
    after = clock_of(lab, "h2").now()
    assert after.steps == before.steps, "served time was one line throughout"
    assert after.fleet_ns > before.fleet_ns
    check_overlap(readings(lab, time.clock_gettime_ns(time.CLOCK_REALTIME)))


def lab_restarts(lab: LiveLab) -> set[str]:
    return {daemon.name for daemon in lab.status().daemons if daemon.restarts > 0}


def test_a_step_is_noticed_and_absorbed(lab: LiveLab) -> None:
    """10 ms: never a wrong time with a confident bound, and nobody else moves."""
    eventually(lambda: all_synchronized(lab), "all synchronized")
    steps = {host: clock_of(lab, host).now().steps for host in HOSTS}
    syntony("lab", "fault", "--lab", NAME, "clock-step", "h1", "--by", "10ms")
    eventually(lambda: status(lab, "h1") is not ClockState.SYNCHRONIZED, "noticed")
    noticed_ns = time.monotonic_ns()
    while status(lab, "h1") is not ClockState.SYNCHRONIZED:
        check_overlap(readings(lab, time.clock_gettime_ns(time.CLOCK_REALTIME)))
        assert time.monotonic_ns() - noticed_ns < PATIENCE_S * S
        time.sleep(0.1)
    print(f"absorbed after {(time.monotonic_ns() - noticed_ns) / MS:.0f} ms")
    for _ in range(20):
        check_overlap(readings(lab, time.clock_gettime_ns(time.CLOCK_REALTIME)))
        time.sleep(0.05)
    after = {host: clock_of(lab, host).now().steps for host in HOSTS}
    assert after.pop("h1") > steps.pop("h1")
    assert after == steps


@pytest.mark.parametrize("by_ns", [3_000, 15_000, -19_000])
def test_small_steps_break_no_bound(lab: LiveLab, by_ns: int) -> None:
    """Nobody's: not of the host whose clock steps, not of its peers, before, at and after it."""
    eventually(lambda: all_synchronized(lab), "all synchronized")
    clock = SyntheticClock("h1", lab.file().clocks["h1"])
    for _ in range(5):
        check_overlap(readings(lab, time.clock_gettime_ns(time.CLOCK_REALTIME)))
    clock.adjust(time.clock_gettime_ns(time.CLOCK_REALTIME), step_ns=by_ns)
    check_for(lab, 6.0)
    eventually(lambda: all_synchronized(lab), "absorbed")
    check_for(lab, 2.0)


@pytest.mark.parametrize("by_ppb", [20_000.0, 500_000.0])
def test_slews_break_no_bound(lab: LiveLab, by_ppb: float) -> None:
    """A daemon like chronyd slews a clock for a while, then no more."""
    eventually(lambda: all_synchronized(lab), "all synchronized")
    clock = SyntheticClock("h2", lab.file().clocks["h2"])
    for rate_ppb in (by_ppb, 0.0):
        clock.adjust(time.clock_gettime_ns(time.CLOCK_REALTIME), rate_ppb=rate_ppb)
        check_for(lab, 6.0)
    eventually(lambda: all_synchronized(lab), "absorbed")
    check_for(lab, 2.0)


def check_for(lab: LiveLab, seconds: float) -> None:
    """What every host tells of the present, and of what it had told a little before."""
    clocks = lab.file().clocks
    hosts = {host: (clock_of(lab, host), SyntheticClock(host, clocks[host])) for host in HOSTS}
    end_s = time.monotonic() + seconds
    instants: deque[int] = deque(maxlen=40)  # two looks of an agent, so that one came in between
    while time.monotonic() < end_s:
        instants.append(time.clock_gettime_ns(time.CLOCK_REALTIME))
        for real_ns in {instants[0], instants[-1]}:
            check_overlap(
                {
                    host: fleet.to_fleet(clock.map_ns(real_ns))
                    for host, (fleet, clock) in hosts.items()
                }
            )
        time.sleep(0.01)

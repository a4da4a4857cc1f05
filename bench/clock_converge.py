"""How long a cold host takes to know fleet time, and a clock that stepped to know it again.

    python -m bench.clock_converge [ROUNDS]

In a lab of 8 hosts, each round: from `lab up` and from the agents' start to all SYNCHRONIZED; one
agent killed, its page removed, from its new start; a clock stepped by 10 ms, from the step. At
every look all hosts' intervals for one instant must overlap; where two do not, a bound is violated.
"""

from __future__ import annotations

import itertools
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable

from tests.live import LiveLab, live, syntony

from syntony.errors import MissingError
from syntony.io.clock_page import Reading
from syntony.io.clocks import SyntheticClock
from syntony.io.fleet_clock import FleetClock
from syntony.lab.state import clock_directory
from syntony.model import ClockState

HOSTS = tuple(f"h{i}" for i in range(8))
NAME = "bench-converge"
PATIENCE_S = 120.0


class Watch:
    """All hosts' pages, and whether their bounds hold against one another."""

    def __init__(self, lab: LiveLab) -> None:
        self._lab = lab
        self._clocks = {h: SyntheticClock(h, spec) for h, spec in lab.file().clocks.items()}
        self.looks = self.violations = 0

    def state(self, host: str) -> ClockState:
        try:
            return FleetClock(clock_directory(self._lab.directory, host)).now().status
        except MissingError:
            return ClockState.UNKNOWN

    def until(self, true: Callable[[], bool]) -> float:
        """Seconds until `true`, looking at the bounds meanwhile."""
        start_s = time.monotonic()
        while not true():
            self._look()
            if time.monotonic() - start_s > PATIENCE_S:
                raise TimeoutError("this lab never gets there")
            time.sleep(0.02)
        return time.monotonic() - start_s

    def synchronized(self, *hosts: str) -> bool:
        return all(self.state(host) is ClockState.SYNCHRONIZED for host in hosts)

    def _look(self) -> None:
        real_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        found: list[Reading] = []
        for host, clock in self._clocks.items():
            try:
                page = FleetClock(clock_directory(self._lab.directory, host))
                found.append(page.to_fleet(clock.map_ns(real_ns)))
            except MissingError:
                continue
        self.looks += 1
        for one, two in itertools.combinations(found, 2):
            if one.bound_ns is not None and two.bound_ns is not None:
                apart_ns = abs(one.fleet_ns - two.fleet_ns)
                self.violations += apart_ns > one.bound_ns + two.bound_ns


def one_round() -> tuple[dict[str, float], Watch]:
    began_s = time.monotonic()
    with live(NAME, "--hosts", str(len(HOSTS)), agents=True) as lab:
        watch = Watch(lab)
        pages = [clock_directory(lab.directory, host) / "clock" for host in HOSTS]
        watch.until(lambda: all(page.exists() for page in pages))
        cold_s = watch.until(lambda: watch.synchronized(*HOSTS))
        times = {"lab up → all": time.monotonic() - began_s, "agents up → all": cold_s}
        watch.until(lambda: time.monotonic() - began_s >= 15)
        times["agent restarted, page gone"] = _restart(lab, watch, "h3")
        syntony("lab", "fault", "--lab", NAME, "clock-step", "h5", "--by", "10ms")
        watch.until(lambda: not watch.synchronized("h5"))
        times["10 ms step"] = watch.until(lambda: watch.synchronized("h5"))
        return times, watch


def _restart(lab: LiveLab, watch: Watch, host: str) -> float:
    """From the new process's page to SYNCHRONIZED."""
    place = clock_directory(lab.directory, host)
    done = syntony("lab", "fault", "--lab", NAME, "agent-kill", host)
    number = done.stdout.split()[1].rstrip(":")
    (place / "clock").unlink()
    syntony("lab", "fault", "--lab", NAME, "--clear", number)
    watch.until((place / "clock").exists)
    return watch.until(lambda: watch.synchronized(host))


def main(rounds: int) -> None:
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    results: dict[str, list[float]] = {}
    looks = violations = 0
    for _ in range(rounds):
        times, watch = one_round()
        looks, violations = looks + watch.looks, violations + watch.violations
        for name, seconds in times.items():
            results.setdefault(name, []).append(seconds)
    print(f"{'':28} {'median s':>9} {'worst s':>9}   {rounds} rounds")
    for name, values in results.items():
        print(f"{name:28} {statistics.median(values):9.2f} {max(values):9.2f}")
    print(f"bounds looked at {looks} times, violated {violations} times")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)

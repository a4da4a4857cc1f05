"""Fleet time for programs: what `from syntony import clock` offers (see docs/how-to).

Reads the host's page in shared memory; no call goes to the agent or over the network.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import NamedTuple

from syntony.errors import MissingError, RemoteError, UsageError
from syntony.io.clock_page import PAGE, ClockPageReader, Reading
from syntony.io.clocks import ClockSource, KernelClock, SyntheticClock
from syntony.io.peers_file import FleetTimelines, read_peers
from syntony.io.run_directory import run_directory
from syntony.model import MS, ClockState, S, Timeline, format_ns

__all__ = [
    "FleetClock",
    "Offset",
    "Reading",
    "clock_directory",
    "local_ns",
    "now",
    "offset",
    "to_fleet",
    "wait_until_bound",
]

_LOOK_NS = 20 * MS
_UNKNOWN = ClockState.UNKNOWN
_REOPEN_NS = 1 * S


class Offset(NamedTuple):
    """How far one clock is ahead of another, give or take the bound."""

    offset_ns: float
    bound_ns: float


class FleetClock:
    """Fleet time on this host, from the page in `directory`. Threads may share it.

    Raises:
        MissingError: no agent has been here, or it has not reached its controller yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open()

    def now(self) -> Reading:
        """Fleet time lies between `earliest_ns` and `latest_ns`; in states UNKNOWN and DISRUPTED
        both are None and `fleet_ns` is only an estimate.

        Raises:
            MissingError: the page went away.
        """
        reading = self._read()
        if isinstance(reading, Reading) and reading.status is not _UNKNOWN:
            return reading
        if time.monotonic_ns() >= self._reopen_ns:
            self._open()  # an agent of another version may have made a new page
        return self._reader.now()

    def to_fleet(self, local_ns: int) -> Reading:
        """Fleet time of an instant of this host's clock (CLOCK_REALTIME), up to an hour ago.

        Raises:
            MissingError: the page does not reach back that far.
        """
        return self._reader.to_fleet(local_ns)

    def local_ns(self) -> int:
        """The host's clock: CLOCK_REALTIME, or what a lab gave the host in its place."""
        return self._clock.now_ns()

    def offset(self, a: str, b: str) -> Offset:
        """Clock `b` minus clock `a` now: this host, its NICs with clocks of their own, and those
        it exchanges probes with.

        Raises:
            UsageError: a clock that this host's agent knows nothing of.
            RemoteError: the two are not comparable now.
        """
        peers = read_peers(self._directory)
        first, second = _find(peers, a), _find(peers, b)
        for line in (first, second):
            if line.state in {ClockState.UNKNOWN, ClockState.DISRUPTED}:
                raise RemoteError(f"clock {line.node} is {line.state} {line.reason}".rstrip())
        if first.component != second.component:
            raise RemoteError(
                f"{a} and {b} are on islands that no probes connect: they have no common time"
            )
        fleet_ns = _find(peers, peers.host).to_fleet_ns(self.local_ns())
        here = [(line, line.to_local_ns(fleet_ns)) for line in (first, second)]
        ahead_ns = here[1][1] - here[0][1]
        return Offset(float(ahead_ns), sum(line.bound_ns(local_ns) for line, local_ns in here))

    def wait_until_bound(self, ns: int, timeout_s: float = 30.0) -> Reading:
        """Wait for a bound of at most `ns`: at the start of a program that needs one.

        Raises:
            RemoteError: not within the time; with the clock's present bound.
        """
        end_ns = time.monotonic_ns() + round(timeout_s * S)
        while True:
            reading = self.now()
            bound_ns = reading.bound_ns
            if bound_ns is not None and bound_ns <= ns:
                return reading
            if time.monotonic_ns() >= end_ns:
                worth = "no bound" if bound_ns is None else f"a bound of {format_ns(bound_ns)}"
                raise RemoteError(
                    f"fleet time is {reading.status} with {worth} after {timeout_s:.3g} s,"
                    f" not within {format_ns(ns)}; `syntony clock status` says why"
                )
            time.sleep(_LOOK_NS / S)

    def _open(self) -> None:
        self._reopen_ns = time.monotonic_ns() + _REOPEN_NS
        self._clock: ClockSource = KernelClock("")
        try:
            spec = read_peers(self._directory).synthetic_clock
        except MissingError:
            spec = None
        synthetic = None if spec is None else SyntheticClock("", spec)
        if synthetic is not None:
            self._clock = synthetic
        self._reader = ClockPageReader(self._directory / PAGE, synthetic)
        self._read = self._reader.read


def _find(peers: FleetTimelines, node: str) -> Timeline:
    for line in peers.timelines:
        if line.node == node:
            return line
    known = ", ".join(line.node for line in peers.timelines) or "none yet"
    raise UsageError(f"no clock {node!r} known to the agent of {peers.host}: {known}")


def clock_directory() -> Path:
    """Where this host's page is."""
    return run_directory()


@functools.cache
def default() -> FleetClock:
    """This host's; where it is, is looked up once."""
    return FleetClock(clock_directory())


def now() -> Reading:
    """Fleet time with its bound and state; see `FleetClock.now`."""
    return default().now()


def to_fleet(local_ns: int) -> Reading:
    """Fleet time of a past or present CLOCK_REALTIME instant; see `FleetClock.to_fleet`."""
    return default().to_fleet(local_ns)


def local_ns() -> int:
    """The host's own clock; see `FleetClock.local_ns`."""
    return default().local_ns()


def offset(a: str, b: str) -> Offset:
    """Clock `b` minus clock `a`; see `FleetClock.offset`."""
    return default().offset(a, b)


def wait_until_bound(ns: int, timeout_s: float = 30.0) -> Reading:
    """Wait for a bound of at most `ns`; see `FleetClock.wait_until_bound`.

    Raises:
        RemoteError: not within the time, an agent that is not there included.
    """
    end_ns = time.monotonic_ns() + round(timeout_s * S)
    while True:
        try:
            clock = default()
        except MissingError as error:
            if time.monotonic_ns() >= end_ns:
                raise RemoteError(f"no fleet time after {timeout_s:g} s: {error}") from error
            time.sleep(_LOOK_NS / S)
        else:
            return clock.wait_until_bound(ns, max(0.0, (end_ns - time.monotonic_ns()) / S))

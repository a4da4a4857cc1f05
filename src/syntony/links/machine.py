"""A port over time: which changes of state an operator hears of."""

from __future__ import annotations

from typing import NamedTuple

from syntony.links.ports import REMEDIES, PortState, Rate

SETTLED_NS = 3_000_000_000
"""A state is reported once it has held so long, or at once where it is better or worse news than a
step on the way up: training takes a second or two on every healthy boot."""
_ON_THE_WAY = frozenset({PortState.TRAINING, PortState.NO_SUBNET_MANAGER, PortState.RECOVERING})


class PortReading(NamedTuple):
    """What one look at a port showed."""

    state: PortState
    rate: Rate | None


class PortChange(NamedTuple):
    """A port went from one state, or speed, to another."""

    at_ns: int
    before: PortState
    after: PortState
    rate_before: Rate | None
    rate_after: Rate | None
    remedy: str


class PortMachine:
    """One port. Feed it every reading; it returns the changes worth telling."""

    def __init__(self) -> None:
        self._reported: PortReading | None = None
        self._seen: PortReading | None = None
        self._since_ns = 0

    @property
    def state(self) -> PortState:
        """As last reported."""
        return self._reported.state if self._reported else PortState.UNKNOWN

    def take(self, at_ns: int, reading: PortReading) -> PortChange | None:
        """One look at the port at `at_ns`, in ascending order. The first is reported to nobody."""
        if reading != self._seen:
            self._seen, self._since_ns = reading, at_ns
        if self._reported is None:
            self._reported = reading
        if reading == self._reported:
            return None
        if reading.state in _ON_THE_WAY and at_ns - self._since_ns < SETTLED_NS:
            return None
        before, self._reported = self._reported, reading
        if reading.state is PortState.ACTIVE and reading.rate is None:
            # A speed that cannot be read is no news, and the known one is kept to compare with.
            self._reported = reading._replace(rate=before.rate)
            if before.state is PortState.ACTIVE:
                return None
        return PortChange(
            at_ns=at_ns,
            before=before.state,
            after=reading.state,
            rate_before=before.rate,
            rate_after=reading.rate,
            remedy=_remedy(before, reading),
        )


def _remedy(before: PortReading, after: PortReading) -> str:
    if after.state is not PortState.ACTIVE:
        return REMEDIES[after.state]
    slower = before.rate and after.rate and after.rate.gbps < before.rate.gbps
    return "lanes were lost: reseat or replace the cable" if slower else ""

"""The state machine of a port: which changes of state are reported to operators."""

from __future__ import annotations

from typing import NamedTuple

from syntony.links.ports import REMEDIES, LinkRate, PortState

SETTLED_NS = 3_000_000_000
"""A state is reported once it has lasted this long. Only states on the way up wait: training takes
a second or two on every healthy boot."""
_ON_THE_WAY = frozenset({PortState.TRAINING, PortState.NO_SUBNET_MANAGER, PortState.RECOVERING})


class PortReading(NamedTuple):
    state: PortState
    rate: LinkRate | None


class PortChange(NamedTuple):
    """A change of a port's state or speed."""

    at_ns: int
    before: PortState
    after: PortState
    rate_before: LinkRate | None
    rate_after: LinkRate | None
    remedy: str


class PortMachine:
    """One port. Takes every reading, and returns the changes to report."""

    def __init__(self) -> None:
        self._reported: PortReading | None = None
        self._seen: PortReading | None = None
        self._since_ns = 0

    @property
    def state(self) -> PortState:
        """The last reported state."""
        return self._reported.state if self._reported else PortState.UNKNOWN

    def take(self, at_ns: int, reading: PortReading) -> PortChange | None:
        """Take a reading at `at_ns`, in ascending order. The first is not reported."""
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

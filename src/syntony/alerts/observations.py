"""What is held against the rules: one value of one metric for one subject."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class Observation(NamedTuple):
    """A value measured now."""

    metric: str
    subject: str
    """What it is about: a host, a NIC (``h0/rail0``), a switch, a link, a NIC pair."""
    value: float | None
    """None: it could not be measured. That neither opens nor clears anything."""
    evidence: tuple[str, ...] = ()
    """What was seen, for a person."""
    jobs: tuple[str, ...] = ()
    """Jobs known to use the subject."""
    mild: bool = False
    """It hurts little: less than what its rule's severity is meant for."""
    pending: bool = False
    """Further probes may change the name: no page yet."""
    apart_from: frozenset[str] = frozenset()
    """Metrics whose incidents do not explain it, whatever its rule says: it was measured to be
    there without them."""
    members: tuple[str, ...] = ()
    """What it is about, where the subject names several by one phrase."""
    span_ns: int = 0
    """How far back the value reaches: what it shows may have been over for so long."""


class Containment(Protocol):
    """What is part of what: the topology, as far as alerts need it."""

    def holds(self, wider: str, narrower: str) -> bool:
        """Whether a failure of `wider` would by itself show as one of `narrower`."""

    def may_hold(self, wider: str, narrower: str) -> bool:
        """The same of any of the suspects that `narrower` names: it may be what shows there."""

    def mirrors(self, one: str, other: str) -> bool:
        """Whether these are the two directions of one cable."""

    def roots(self, name: str) -> frozenset[str]:
        """The devices and hosts that a name begins with, as a whole or in its parts."""

    def around(self, name: str) -> frozenset[str]:
        """Roots of what may contain a subject: whatever does, or mirrors it, has one of these."""


class Measured(NamedTuple):
    """Everything of one evaluation."""

    observations: Sequence[Observation]
    metrics: frozenset[str]
    """Metrics that were evaluated: a subject of theirs that is not among the observations is well.
    Of all others nothing is known this time."""


def measured(observations: Iterable[Observation], metrics: Iterable[str]) -> Measured:
    """One evaluation."""
    return Measured(tuple(observations), frozenset(metrics))

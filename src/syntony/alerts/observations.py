"""Observations, which the rules evaluate: one value of one metric for one subject."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Observation(NamedTuple):
    """A value measured now."""

    metric: str
    subject: str
    """A host, a NIC (``h0/rail0``), a switch, a link, or a NIC pair."""
    value: float | None
    """None: it could not be measured, which neither opens nor clears an incident."""
    evidence: tuple[str, ...] = ()
    """Lines for the engineer on call."""
    jobs: tuple[str, ...] = ()
    """Jobs known to use the subject."""
    mild: bool = False
    """Its impact is smaller than the rule's severity implies."""
    pending: bool = False
    """Further probes may change the subject: no page yet."""
    apart_from: frozenset[str] = frozenset()
    """Metrics whose incidents do not explain it, regardless of its rule: it was measured
    independently of them."""
    members: tuple[str, ...] = ()
    """The components, if the subject describes several of them."""
    via: tuple[str, ...] = ()
    """What the subject, or each of its components that has failed, is reached over: what explains
    all of these explains it."""
    past: bool = False
    """It is a change that happened, not a state: it does not page after a silence in which it
    happened."""
    span_ns: int = 0
    """Length of the window of the value: its cause may have ended this long ago."""


class Containment(Protocol):
    """Containment of components, as far as alerts need it."""

    def holds(self, wider: str, narrower: str) -> bool:
        """Whether a failure of `wider` also shows as a failure of `narrower`."""

    def may_hold(self, wider: str, narrower: str) -> bool:
        """Whether that holds for any of the suspects that `narrower` names."""

    def mirrors(self, one: str, other: str) -> bool:
        """Whether these are the two directions of one cable."""

    def names(self, one: str, other: str) -> bool:
        """Whether `one` names everything that `other` names, alone or among suspects: a cable also
        by one direction, a NIC also by its cable, or by its host if that has no other NIC, the
        hosts at a switch also by that."""

    def may_include(self, group: str, part: str) -> bool:
        """Whether `group` names something that is not known part by part, among suspects or alone,
        and any of the suspects of `part` may be in it: the first may be the second, said less
        exactly. Every group may include itself."""

    def is_anything(self, name: str) -> bool:
        """Whether any of the suspects of `name` may be anything that is not known."""

    def parts(self, name: str) -> frozenset[str]:
        """What a name consists of: each suspect, the ends of links, the switches of NICs."""

    def hosts(self, name: str) -> frozenset[str]:
        """The hosts that a name describes by their switches; empty for all other names."""

    def roots(self, name: str) -> frozenset[str]:
        """The devices and hosts that a name begins with, as a whole or in its parts."""

    def around(self, name: str) -> frozenset[str]:
        """Roots of all names that may contain or mirror a subject."""


class Measured(NamedTuple):
    """All observations of one evaluation."""

    observations: Sequence[Observation]
    metrics: frozenset[str]
    """Metrics that were evaluated: their subjects without an observation are healthy. All other
    metrics are unknown this time."""
    at_ns: Mapping[str, int] = {}
    """When these metrics were measured, fleet time; those that are not listed: now."""


def measured(
    observations: Iterable[Observation],
    metrics: Iterable[str],
    at_ns: Mapping[str, int] | None = None,
) -> Measured:
    """Make the input of one evaluation."""
    return Measured(tuple(observations), frozenset(metrics), at_ns or {})

"""What a diagnosis says: a class, who, since when, how sure, why, what else was looked at."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class FaultClass(StrEnum):
    """The taxonomy. One file in `syntony.workload.classes` for each but the last."""

    SLOW_FLOW = "slow-flow"
    CONTENTION = "contention"
    INCAST = "incast"
    BAD_LINK = "bad-link"
    FLAPPING = "flapping"
    CLASS_MISMATCH = "class-mismatch"
    PFC_STORM = "pfc-storm"
    STRAGGLER = "straggler"
    GPU_THROTTLE = "gpu-throttle"
    HOST_JITTER = "host-jitter"
    PCIE = "pcie"
    SLOW_RECEIVER = "slow-receiver"
    RAIL_IMBALANCE = "rail-imbalance"
    CLOCK_FAULT = "clock-fault"
    DATA_STALL = "data-stall"
    HANG = "hang"
    REDUCED_CAPACITY = "reduced-capacity"
    UNDETERMINED = "undetermined"


class Evidence(msgspec.Struct, frozen=True):
    """One thing that was measured and speaks for the verdict."""

    signal: str
    """Column or columns of the bundle."""
    text: str
    """For people, with units."""
    value: float | None = None
    """In the unit of the column."""
    baseline: float | None = None
    """What the like of it has at the same time, or it had before."""


class Alternative(msgspec.Struct, frozen=True, rename={"fault": "class"}):
    """Another class that would look alike."""

    fault: FaultClass
    excluded: bool
    """False: it could not be excluded with what the bundle has."""
    reason: str


class BlastRadius(msgspec.Struct, frozen=True):
    """Who suffers."""

    jobs: tuple[str, ...]
    ranks: int
    """Ranks of the communicators that wait for the fault; all of a job's where that is unknown."""
    hosts: tuple[str, ...]
    """Where the fault is, or ends of the flows that it touches."""
    gpu_hours: float | None
    """Lost since the onset within the recording; None: too few steps before or after."""
    slowdown: float | None
    """Step time since the onset over that before; None as above."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename={"fault": "class"}):
    """One cause."""

    fault: FaultClass
    subjects: tuple[str, ...]
    """Whom it is about. More than one where they cannot be distinguished."""
    onset_ns: int
    """Begin of the first window that shows it; at the begin of the recording it may be older."""
    end_ns: int | None
    """End of the last window that shows it; None: it is there until the end."""
    confidence: float
    """0 to 1; docs/decisions/0240 says what it is made of."""
    evidence: tuple[Evidence, ...]
    alternatives: tuple[Alternative, ...]
    action: str
    blast_radius: BlastRadius
    follows: tuple[str, ...] = ()
    """Symptoms that other classes would have named, and that this one explains."""


ECHO = 0.33
"""Of the worst delay of a job that another must reach to be a cause by itself: one slow part of a
ring or tree makes the rest come in bursts, which wait a little for each other."""


ALIKE = 0.5
"""Part of the worst flow's or queue's delay, or lag in rate, from which others are as it is,
whatever else is true of them."""


MOST_ALONE = 3
"""Findings of one kind that may each be an exception; more of them are how the job is."""


class RuleFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of one class's rule, before it is compared with those of other classes."""

    fault: FaultClass
    subjects: tuple[str, ...]
    onset_ns: int
    last_ns: int
    """End of the last window that shows it."""
    confidence: float
    evidence: tuple[Evidence, ...]
    alternatives: tuple[Alternative, ...]
    action: str
    flows: frozenset[int] = frozenset()
    """Flows that it touches, as indices into `Flows.names`."""
    ranks: frozenset[int] = frozenset()
    """Ranks that it touches, not those that wait for them."""
    hosts: frozenset[str] = frozenset()

    @property
    def excess_ns(self) -> float:
        """By how much its packets are delayed; 0 where the finding does not say."""
        reported = (each for each in self.evidence if each.signal == "owd_p50_ns")
        return max(((each.value or 0) - (each.baseline or 0) for each in reported), default=0.0)


def confidence(shown: float, *checks: bool | None) -> float:
    """How sure a rule may be.

    `shown` is the share of windows since the onset that show the evidence; each check is a rival or
    a confirmation: True for as the class would have it, False for the contrary, None for not
    recorded. What was not recorded takes a tenth, what contradicts takes half.
    """
    factor = 1.0
    for check in checks:
        factor *= 1.0 if check else 0.9 if check is None else 0.5
    return round(min(0.98, max(0.0, shown)) * factor, 3)

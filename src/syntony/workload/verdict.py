"""The result of a diagnosis: a class, subjects, onset, confidence, evidence, alternatives."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class FaultClass(StrEnum):
    """The taxonomy. Each class but the last has a file in `syntony.workload.classes`."""

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
    """One measurement that supports the verdict."""

    signal: str
    """Column or columns of the bundle."""
    text: str
    """Text for the user, with units."""
    value: float | None = None
    """In the unit of the column."""
    baseline: float | None = None
    """The value of similar objects at the same time, or its own value before."""


class Alternative(msgspec.Struct, frozen=True, rename={"fault": "class"}):
    """Another class that would look similar."""

    fault: FaultClass
    excluded: bool
    """False: it could not be excluded with the data in the bundle."""
    reason: str


class BlastRadius(msgspec.Struct, frozen=True):
    """Who is affected."""

    jobs: tuple[str, ...]
    ranks: int
    """Ranks of the communicators that wait for the fault; all of a job's if that is unknown."""
    hosts: tuple[str, ...]
    """Hosts of the fault, or at the ends of the flows that it affects."""
    gpu_hours: float | None
    """Lost since the onset within the recording; None: too few steps before or after."""
    slowdown: float | None
    """Ratio of step time since the onset to that before; None as above."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename={"fault": "class"}):
    """One cause."""

    fault: FaultClass
    subjects: tuple[str, ...]
    """What it is about. Several if they cannot be distinguished."""
    onset_ns: int
    """Begin of the first window that shows it; at the begin of the recording the fault may be
    older."""
    end_ns: int | None
    """End of the last window that shows it; None: it lasts until the end."""
    confidence: float
    """0 to 1; docs/decisions/0240 describes how it is computed."""
    evidence: tuple[Evidence, ...]
    alternatives: tuple[Alternative, ...]
    action: str
    blast_radius: BlastRadius
    follows: tuple[str, ...] = ()
    """Symptoms that other classes would have named, and that this verdict explains."""


ECHO = 0.33
"""Share of the worst delay of a job that another must reach to be an independent cause: one slow
part of a ring or tree makes the rest arrive in bursts, which wait a little for each other."""


ALIKE = 0.5
"""Share of the worst flow's or queue's delay, or lag in rate, from which others belong to the same
finding, whatever else applies to them."""


MOST_ALONE = 3
"""Maximum findings of one kind that may each be an exception; more of them are the job's normal
state."""


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
    """Flows that it affects, as indices into `Flows.names`."""
    ranks: frozenset[int] = frozenset()
    """Ranks that it affects, not those that wait for them."""
    hosts: frozenset[str] = frozenset()
    direct: bool = False
    """Whether what its subject shows has no other explanation, so that it need not stand out of
    other findings: a link that strangers fill, a flow that waits beyond all queues on its path."""

    @property
    def excess_ns(self) -> float:
        """Delay of its packets above normal; 0 if the finding does not have it."""
        reported = (each for each in self.evidence if each.signal == "owd_p50_ns")
        return max(((each.value or 0) - (each.baseline or 0) for each in reported), default=0.0)


def confidence(shown: float, *checks: bool | None) -> float:
    """Confidence of a rule.

    `shown` is the share of windows since the onset that show the evidence. Each check is an
    alternative or a confirmation: True if it agrees with the class, False if it contradicts, None
    if not recorded. A check that was not recorded reduces confidence by a tenth, a contradiction by
    half.
    """
    factor = 1.0
    for check in checks:
        factor *= 1.0 if check else 0.9 if check is None else 0.5
    return round(min(0.98, max(0.0, shown)) * factor, 3)

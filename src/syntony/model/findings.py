"""What is said of a component that is to blame."""

from __future__ import annotations

from itertools import zip_longest

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One component that loses or delays packets, as one window shows it."""

    component: str
    """``leaf0-1``, ``h3/rail0``, ``leaf0-1->spine0`` (one direction),
    ``leaf0-1--spine0`` (both)."""
    kind: str
    """nic, host, leaf, spine, core, agg, switch, link, cable, group, clock or component."""
    fault: str
    """``blackhole``, ``loss``, ``delay``, or ``clock`` for a clock that jumped."""
    loss: float
    """Probability that it loses a packet."""
    delay_ns: float
    """How much later packets are than before."""
    confidence: float
    """Posterior probability of this component; with `probabilities` at most one in all, the rest
    being what chance would explain, or less likely components."""
    window: str
    """The stretch of time that shows it most clearly."""
    explains: float
    """Lost probes that it accounts for; of a delay, late paths."""
    paths: int
    """Paths across it that suffered."""
    alternatives: tuple[str, ...]
    """What else would explain (nearly) the same: twins first, then best first."""
    probabilities: tuple[float, ...] = ()
    """Posterior probability of each alternative."""
    twins: int = 0
    """The first so many alternatives are named with the component: exactly the same paths cross
    them, or, of a switch, two of its cables together explain the same."""
    one_of: int = 1
    """Of how many parallel cables of this name one is to blame."""
    both_ways: bool = False
    """Whether a group is to blame in both directions."""
    flows: float = 1.0
    """Share of the paths across it that suffer where a fault hits some flows only, which lose
    `loss` of their packets; 1: all of them suffer."""
    overflow: str = ""
    """Whether losses come with packets that wait there: as `syntony.fabric.overflow.Overflow`. Of a
    queue: ``all`` where packets wait in bursts, known by what it loses."""

    def without_twin(self) -> Finding:
        """The same when its first twin is ruled out."""
        return msgspec.structs.replace(
            self,
            confidence=self.confidence + sum(self.probabilities[:1]),
            alternatives=self.alternatives[1:],
            probabilities=self.probabilities[1:],
            twins=self.twins - 1,
        )

    def odds(self) -> tuple[str, ...]:
        """Every suspect with its probability, for people; without it where a peer of an older
        version did not tell it."""
        others = zip_longest(self.alternatives, self.probabilities[: len(self.alternatives)])
        reported = ((self.component, self.confidence), *others)
        return tuple(name if odds is None else f"{name} {odds:.0%}" for name, odds in reported)


class QueueFlow(msgspec.Struct, frozen=True, kw_only=True):
    """One way of a job's connection between NICs whose learnt paths cross a queue."""

    job: str
    pair: str
    """``h0/rail0->h4/rail0``."""
    rate_bps: int


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A link at which packets wait, second after second or in bursts."""

    component: str
    delay_ns: float
    """How long they wait there in nearly every second; some of them, if in bursts."""
    since_ns: int
    """Fleet time at which it was first seen."""
    confidence: float
    alternatives: tuple[str, ...]
    suspects: tuple[str, ...] = ()
    """Where it may be, by name, where the probes cannot tell; else nothing or `component` alone."""
    bursts: bool = False
    """Whether only in bursts, which lose packets."""
    pairs: tuple[str, ...]
    """Pairs of NICs whose probes wait there: their learnt paths cross it."""
    flows: tuple[QueueFlow, ...] = ()
    """Jobs' flows between these NICs, fastest first. A job's own packets may take another path
    between the same NICs: these are who may share the link, not who surely does."""

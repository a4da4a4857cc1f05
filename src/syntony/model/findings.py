"""Findings of fault localisation: components at fault, and links at which packets wait."""

from __future__ import annotations

from itertools import zip_longest

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One component that loses or delays packets in one window."""

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
    """Additional delay of packets."""
    confidence: float
    """Posterior probability of this component; with `probabilities` at most one in all, the rest
    being what chance would explain, or less likely components."""
    window: str
    """The interval that shows it most clearly."""
    explains: float
    """Lost probes that it explains; for a delay, late paths."""
    paths: int
    """Number of affected paths across it."""
    alternatives: tuple[str, ...]
    """Other explanations that are (nearly) as good: indistinguishable ones first, then the best."""
    probabilities: tuple[float, ...] = ()
    """Posterior probability of each alternative."""
    twins: int = 0
    """The first so many alternatives are named with the component: exactly the same paths cross
    them, or, of a switch, two of its cables together explain the same."""
    one_of: int = 1
    """Number of parallel cables of this name, one of which is at fault."""
    both_ways: bool = False
    """Whether a group is at fault in both directions."""
    flows: float = 1.0
    """Share of the paths across it that suffer where a fault hits some flows only, which lose
    `loss` of their packets; 1: all of them suffer."""
    overflow: str = ""
    """Whether losses come with packets that wait there: as `syntony.fabric.overflow.Overflow`. Of a
    queue: ``all`` where packets wait in bursts, known by what it loses."""

    def without_twin(self) -> Finding:
        """The finding after its first indistinguishable alternative is excluded."""
        return msgspec.structs.replace(
            self,
            confidence=self.confidence + sum(self.probabilities[:1]),
            alternatives=self.alternatives[1:],
            probabilities=self.probabilities[1:],
            twins=self.twins - 1,
        )

    def with_twin(self, name: str) -> Finding:
        """The finding, or another component, unless it names that already: for probes both are
        equally likely."""
        if name in self.alternatives:
            return self
        odds = [each / 2 for each in (self.confidence, *self.probabilities)]
        return msgspec.structs.replace(
            self,
            confidence=odds[0],
            alternatives=(name, *self.alternatives),
            probabilities=(odds[0], *odds[1:]),
            twins=self.twins + 1,
        )

    def odds(self) -> tuple[str, ...]:
        """Every suspect with its probability, for people; without the probability if a peer of an
        older version did not send it."""
        others = zip_longest(self.alternatives, self.probabilities[: len(self.alternatives)])
        reported = ((self.component, self.confidence), *others)
        return tuple(name if odds is None else f"{name} {odds:.0%}" for name, odds in reported)


class QueueFlow(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a job's connection between NICs whose learnt paths cross a queue."""

    job: str
    pair: str
    """``h0/rail0->h4/rail0``."""
    rate_bps: int


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A link with queueing delay, sustained or in bursts."""

    component: str
    delay_ns: float
    """Sustained queueing delay; of some packets only, if in bursts."""
    since_ns: int
    """Fleet time of its first detection."""
    confidence: float
    alternatives: tuple[str, ...]
    suspects: tuple[str, ...] = ()
    """Possible components if probes cannot distinguish them; else empty or `component` alone."""
    bursts: bool = False
    """Whether packets wait only in bursts, which lose some."""
    pairs: tuple[str, ...]
    """Pairs of NICs whose probes wait there: their learnt paths cross it."""
    flows: tuple[QueueFlow, ...] = ()
    """Jobs' flows between these NICs, fastest first. A job's own packets may take another path
    between the same NICs: these are who may share the link, not who surely does."""

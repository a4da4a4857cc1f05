"""Queues that are full in bursts, and cables that lose while packets wait: drawn by a seed.

A queue is a fluid: traffic comes at some load, bursts of random length add to it, what does not fit
is lost. Nothing of `bench.simulated` or of the code under test.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from syntony.fabric import history, overflow
from syntony.fabric.history import FlowHistory, SecondCounts
from syntony.fabric.overflow import ComponentSeconds, OverflowFinding
from syntony.fabric.starved import FlowEnds
from syntony.fabric.steady import Mask
from syntony.fabric.tally import Floats, Index
from syntony.model import S

QUIET_S, WATCHED_S = 20, 60
BASE_NS = 20_000.0
ENDLESS_NS = 1e12
"""The depth of a queue that never overflows."""


class Cause(enum.StrEnum):
    """What loses packets."""

    QUEUE = "queue"
    CABLE = "cable"
    CABLE_UNDER_BURSTS = "cable, bursts there"
    CABLE_BEHIND_SENDERS = "cable, bursts at senders"
    CABLE_BEFORE_RECEIVERS = "cable, bursts at receivers"


class Queue(NamedTuple):
    """How long packets wait, linear between instants; the load from each instant on."""

    at_s: Floats
    wait_ns: Floats
    load: Floats
    depth_ns: float

    def wait(self, at_s: Floats) -> Floats:
        return np.interp(at_s, self.at_s, self.wait_ns)

    def lost(self, at_s: Floats, rng: np.random.Generator) -> Mask:
        load = self.load[np.searchsorted(self.at_s, at_s, side="right") - 1]
        full = self.wait(at_s) >= self.depth_ns * (1 - 1e-9)
        return np.asarray(full & (rng.random(at_s.shape) < 1 - 1 / np.maximum(load, 1.0)))


class Bursts(NamedTuple):
    """How traffic is."""

    base: float
    """Load between bursts."""
    per_s: float
    mean_s: float

    def queue(self, depth_ns: float, most: float, rng: np.random.Generator) -> Queue:
        """Loads in bursts are above 1 and up to `most`."""
        span_s = QUIET_S + WATCHED_S
        starts = rng.uniform(0, span_s, rng.poisson(self.per_s * span_s))
        ends = starts + rng.exponential(self.mean_s, len(starts))
        more = rng.uniform(1.05, most, len(starts)) - self.base
        events = sorted(
            [*zip(starts, more, strict=True), *zip(ends, -more, strict=True), (span_s + 1.0, 0.0)]
        )
        now_s, wait_ns, load = 0.0, 0.0, self.base
        points = [(now_s, wait_ns, load)]
        for when_s, change in events:
            rate = (load - 1) * S
            aim_ns = depth_ns if rate > 0 else 0.0
            reached_s = now_s + (aim_ns - wait_ns) / rate if rate else when_s
            if reached_s < when_s:
                points.append((reached_s, wait_ns := aim_ns, load))
            else:
                wait_ns += rate * (when_s - now_s)
            now_s, load = when_s, max(0.0, load + change)
            points.append((now_s, wait_ns, load))
        at_s, waits_ns, loads = np.array(points).T
        return Queue(at_s, waits_ns, loads, depth_ns)


class Fabric(NamedTuple):
    """Flows between some NICs, of which some cross the part; hosts with jitter."""

    src: Index
    dst: Index
    crosses: Mask
    rate: int
    """Probes a second."""
    jitter_ns: float
    stalls: float
    """Share of probes that wait at a busy host as well."""
    stall_ns: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Fabric:
        senders, receivers = rng.integers(1, 7, 2)
        pairs = [(s, 100 + r) for s in range(senders) for r in range(receivers)]
        crosses = rng.random(len(pairs) * (ports := int(rng.integers(2, 7)))) < 0.5
        crosses[0] = True
        if every := rng.random() < 0.3:
            pairs += [(s, 300) for s in range(senders)]
        crosses = np.resize(crosses | every, len(pairs) * ports)
        crosses[len(pairs) * ports - (senders * ports if every else 0) :] = False
        src, dst = np.repeat(np.array(pairs), ports, axis=0).T
        return cls(
            src, dst, crosses, int(rng.integers(2, 11)), 10 ** rng.uniform(2.5, 4.5),
            10 ** rng.uniform(-4, -1.3), 10 ** rng.uniform(4.5, 7),
        )  # fmt: skip

    def delays(self, rng: np.random.Generator) -> Floats:
        """Of one second's probes without any queue, (flows, probes)."""
        shape = len(self.src), self.rate
        stalled = rng.random(shape) < self.stalls
        return np.asarray(
            BASE_NS
            + rng.gamma(2, self.jitter_ns / 2, shape)
            + stalled * rng.exponential(self.stall_ns, shape)
        )


class Case(NamedTuple):
    """One drawn minute."""

    lost: int
    verdict: OverflowFinding
    usual: OverflowFinding
    """By the medians of seconds alone."""


def judge(cause: Cause, seed: int) -> Case:
    """What is made of the losses of one cause."""
    rng = np.random.default_rng(seed)
    fabric = Fabric.draw(rng)
    bursts = Bursts(rng.uniform(0, 0.8), 10 ** rng.uniform(-0.7, 1.3), 10 ** rng.uniform(-3, -1.3))
    overflows = cause is Cause.QUEUE
    depth_ns = 10 ** rng.uniform(5, 7.3) if overflows else ENDLESS_NS
    most, broken = rng.uniform(1.2, 4) if overflows else 1.5, 10 ** rng.uniform(-3, -1)
    here = fabric.crosses
    places = {
        Cause.QUEUE: [here],
        Cause.CABLE: [],
        Cause.CABLE_UNDER_BURSTS: [here],
        Cause.CABLE_BEHIND_SENDERS: [fabric.src == nic for nic in np.unique(fabric.src)],
        Cause.CABLE_BEFORE_RECEIVERS: [fabric.dst == nic for nic in np.unique(fabric.dst)],
    }[cause]
    queues = [(ways, bursts.queue(depth_ns, most, rng)) for ways in places]
    seen = FlowHistory()
    for second in range(QUIET_S + WATCHED_S):
        delay_ns = fabric.delays(rng)
        lost = np.zeros(delay_ns.shape, dtype=np.bool_)
        if second >= QUIET_S:
            at_s = second + rng.random(delay_ns.shape)
            for ways, queue in queues:
                delay_ns[ways] += queue.wait(at_s[ways])
                lost[ways] |= queue.lost(at_s[ways], rng)
            if not overflows:
                lost[here] |= rng.random(delay_ns[here].shape) < broken
        seen.add(_counted(delay_ns, lost))
    there, back = np.flatnonzero(here), np.zeros(0, dtype=np.intp)
    sent, gone = overflow.counts_of(seen, there, back)
    waits = overflow.waits(seen, FlowEnds((), fabric.src, fabric.dst), there, back)
    return Case(
        int(gone.sum()),
        overflow.classify(ComponentSeconds(sent, gone, waits)),
        overflow.classify(
            ComponentSeconds(sent, gone, waits._replace(late=np.zeros_like(waits.late)))
        ),
    )


def _counted(delay_ns: Floats, lost: Mask) -> SecondCounts:
    flows, rate = delay_ns.shape
    counts = np.zeros((history.FIELDS, flows), dtype=np.int64)
    counts[history.SENT], counts[history.LOST] = rate, lost.sum(axis=1)
    came = np.where(lost, np.nan, delay_ns)
    usual_ns, slowest_ns = np.full((2, 2, flows), np.nan)
    some = ~lost.all(axis=1)
    usual_ns[0, some] = np.nanmedian(came[some], axis=1)
    slowest_ns[0, some] = np.nanmax(came[some], axis=1)
    return SecondCounts(counts, usual_ns, slowest_ns, np.full(flows, 100.0))

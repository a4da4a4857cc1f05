"""Queues that probes meet: workloads of links at a chosen load, seeded and vectorised.

A trace is the unfinished work of one link over time. Its shape is the one of the Huygens setting
(NSDI'18, section 3): full-size frames at 25 Gb/s that arrive in bursts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.model import S

Floats = NDArray[np.float64]

FRAME_NS = 480.0
"""1500 bytes at 25 Gb/s."""
BURST_FRAMES = 8.0
"""Mean frames that arrive together: what a NIC's segmentation offload lets go in one piece."""
PARETO_SHAPE = 1.6
"""Tail exponent of heavy-tailed bursts: finite mean, infinite variance (flow sizes in practice)."""


class QueueTrace(NamedTuple):
    """Unfinished work just after each arrival, shapes (n,); repeats after `span_ns`."""

    arrival_ns: Floats
    work_ns: Floats
    span_ns: float

    def wait_ns(self, at_ns: Floats, phase_ns: float = 0.0) -> Floats:
        """Waiting time met at the given instants (any shape), the trace shifted by `phase_ns`."""
        if not len(self.arrival_ns):
            return np.zeros_like(at_ns)
        within = np.mod(at_ns + phase_ns, self.span_ns)
        place = np.searchsorted(self.arrival_ns, within) - 1
        # Before the first arrival, what the last one of the round before has left.
        since = within - self.arrival_ns[place] + np.where(place < 0, self.span_ns, 0.0)
        return np.maximum(self.work_ns[place] - since, 0.0)


class LevelTrace(NamedTuple):
    """A queue given by its depth, linear between points (n,); repeats after `span_ns`.

    For queues that follow a controller rather than single packets: constant, filling, sawtooth.
    """

    at_ns: Floats
    level_ns: Floats
    span_ns: float

    def wait_ns(self, at_ns: Floats, phase_ns: float = 0.0) -> Floats:
        """As `QueueTrace.wait_ns`."""
        return np.interp(np.mod(at_ns + phase_ns, self.span_ns), self.at_ns, self.level_ns)


Queue = QueueTrace | LevelTrace


def constant(level_ns: float) -> LevelTrace:
    """Every probe waits equally long: a full queue paced by its drain, or a hidden longer path."""
    return LevelTrace(np.zeros(1), np.full(1, level_ns), 1.0)


def filling(
    rate_ns_per_s: float, *, start_ns: float = 0.0, span_ns: float = 600.0 * S
) -> LevelTrace:
    """A queue that only grows: slightly more is offered than carried."""
    end_ns = start_ns + rate_ns_per_s * span_ns / S
    return LevelTrace(np.array([0.0, span_ns]), np.array([start_ns, end_ns]), span_ns)


def sawtooth(low_ns: float, high_ns: float, period_ns: float) -> LevelTrace:
    """Synchronised senders (incast): fill linearly, halve at once."""
    at = np.array([0.0, 0.98 * period_ns, period_ns])
    return LevelTrace(at, np.array([low_ns, high_ns, low_ns]), period_ns)


def on_off(
    load: float,
    rng: np.random.Generator,
    *,
    on_ns: float = 0.4 * S,
    off_ns: float = 0.6 * S,
    frame_ns: float = FRAME_NS,
) -> QueueTrace:
    """Training steps: bursts at `load` while communicating, nothing while computing."""
    trace = bursty(load, rng, span_ns=on_ns, frame_ns=frame_ns)
    return trace._replace(span_ns=on_ns + off_ns)


def bursty(
    load: float, rng: np.random.Generator, *, span_ns: float = 2.0 * S, frame_ns: float = FRAME_NS
) -> QueueTrace:
    """Poisson bursts of geometric length. `load` is the share of time the link is busy, 0 to 1."""
    sizes = rng.geometric(1 / BURST_FRAMES, _bursts(load, span_ns, frame_ns)) * frame_ns
    return _served(sizes.astype(np.float64), span_ns, rng)


def heavy_tailed(
    load: float, rng: np.random.Generator, *, span_ns: float = 2.0 * S, frame_ns: float = FRAME_NS
) -> QueueTrace:
    """Poisson bursts of Pareto length, cut at 20,000 frames: rare elephants, long waits."""
    mean = PARETO_SHAPE / (PARETO_SHAPE - 1)
    count = _bursts(load, span_ns, frame_ns)
    frames = np.minimum((rng.pareto(PARETO_SHAPE, count) + 1) * BURST_FRAMES / mean, 20_000)
    return _served(frames * frame_ns, span_ns, rng)


def standing(
    buffer_ns: float,
    rng: np.random.Generator,
    *,
    load: float = 1.2,
    span_ns: float = 2.0 * S,
    frame_ns: float = FRAME_NS,
) -> QueueTrace:
    """A link offered more than it carries (`load` over 1): its drop-tail buffer stays nearly full.

    The free room is itself a queue that bursts empty and the link fills: Lindley again.
    """
    sizes = rng.geometric(1 / BURST_FRAMES, _bursts(load, span_ns, frame_ns)) * frame_ns
    gaps = rng.exponential(1.0, len(sizes))
    gaps *= span_ns / gaps.sum()
    walk = np.cumsum(gaps - sizes)
    free = walk - np.minimum(np.minimum.accumulate(walk), 0.0)
    return QueueTrace(np.cumsum(gaps), np.maximum(buffer_ns - free, 0.0), span_ns)


def through(hops: Sequence[tuple[Queue, float]], sent_ns: Floats, floor_ns: float) -> Floats:
    """Delay of probes over hops in turn, shape of `sent_ns`. A hop is a trace and its phase.

    The same trace and phase at two hops makes their queues move together.
    """
    delay = np.zeros_like(sent_ns)
    for trace, phase_ns in hops:
        delay += trace.wait_ns(sent_ns + delay, phase_ns)
    return delay + floor_ns


def _bursts(load: float, span_ns: float, frame_ns: float) -> int:
    return int(load * span_ns / (frame_ns * BURST_FRAMES))


def _served(sizes: Floats, span_ns: float, rng: np.random.Generator) -> QueueTrace:
    """Lindley's recursion, solved: work after arrival i is U_i - min over j ≤ i of (U_j - v_j)."""
    gaps = rng.exponential(1.0, len(sizes) + 1)
    arrivals = np.cumsum(gaps)[:-1] * (span_ns / gaps.sum())
    backlog = np.cumsum(sizes) - arrivals
    work = backlog - np.minimum.accumulate(backlog - sizes)
    return QueueTrace(arrivals, work, span_ns)

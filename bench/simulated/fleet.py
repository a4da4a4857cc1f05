"""A fleet whose clocks probe each other over queues, solved as the daemons do, truth at hand."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from bench.simulated import queues, stamps
from bench.simulated.clocks import EPOCH_NS, STEADY, ClockKind, SimulatedClocks
from numpy.typing import NDArray

from syntony.clock.anchored import AnchoredSolver
from syntony.clock.anchors import Anchor
from syntony.clock.fit import WindowFitter, fit_window
from syntony.clock.pair import PairEstimator
from syntony.clock.samples import PairSamples
from syntony.model import Edge, S, Timeline
from syntony.model.clocks import BOUND_SIGMAS

PAIR_GAP_NS = 10_000
"""Between the two probes of a pair: back to back at 25 Gb/s plus the sender's own time."""
TURNAROUND_NS = 20_000
SPARE_NS = 1_000_000
"""Probes are sent this long before a window ends, so that all arrive in it."""


class Way(NamedTuple):
    """What one direction of a path does to probes in one window."""

    load: float = 0.1
    floor_ns: float = 5_000.0
    standing_ns: float = 0.0
    """Buffer of a hop that is offered more than it carries; 0 for none."""
    loss: float = 0.0
    heavy: bool = False
    """Heavy-tailed bursts instead of geometric ones."""
    together: bool = False
    """All hops' queues move together instead of independently."""
    queue: queues.Queue | None = None
    """One more hop, in true time: ways that hold the same one meet the same queue together."""
    detours_ns: tuple[float, ...] = ()
    """Extra floor of each path of the pair, taken in turn; empty: one path, not named."""


QUIET = Way()
Traffic = Callable[[int, int, int], tuple[Way, Way] | None]
"""(window, a, b) to what happens there and back; None for a pair that is cut off."""


def probe_pairs(  # noqa: PLR0917 - who, when, how many, over what, stamped how
    clocks: SimulatedClocks,
    ends: tuple[int, int],
    span: tuple[int, int],
    pairs: int,
    ways: tuple[Way, Way],
    noise: stamps.StampNoise,
) -> PairSamples:
    """Coded probes of `ends` within true instants `span`, `pairs` of them, less losses."""
    rng = clocks.rng
    (a, b), (start_ns, end_ns) = ends, span
    sent = start_ns + np.sort(rng.integers(0, end_ns - start_ns - SPARE_NS, pairs))
    sent = np.concatenate((sent, sent + PAIR_GAP_NS))
    number = np.tile(np.arange(pairs, dtype=np.int64), 2)
    arrived = sent + _delays(ways[0], sent, number, rng, noise)
    there = rng.random(2 * pairs) >= ways[0].loss
    answered = arrived + TURNAROUND_NS
    returned = answered + _delays(ways[1], answered, number, rng, noise)
    back = there & (rng.random(2 * pairs) >= ways[1].loss)
    return PairSamples(
        fwd_tx=clocks.read(a, sent[there]),
        fwd_rx=clocks.read(b, arrived[there]),
        rev_tx=clocks.read(b, answered[back]),
        rev_rx=clocks.read(a, returned[back]),
        fwd_pair=number[there],
        rev_pair=number[back],
        fwd_path=_paths(ways[0], number[there]),
        rev_path=_paths(ways[1], number[back]),
    )


def _paths(way: Way, number: NDArray[np.int64]) -> NDArray[np.int64] | None:
    return number % len(way.detours_ns) if way.detours_ns else None


def _delays(
    way: Way,
    sent: NDArray[np.int64],
    number: NDArray[np.int64],
    rng: np.random.Generator,
    noise: stamps.StampNoise,
) -> NDArray[np.int64]:
    at = (sent - EPOCH_NS).astype(np.float64)
    trace = _trace(way.load, way.heavy)
    light = _trace(way.load / 3, way.heavy)
    phases = rng.uniform(0, trace.span_ns, 4)
    if way.together:
        phases[:] = phases[0]
    hops: list[tuple[queues.Queue, float]] = list(
        zip((light, trace, trace, light), phases.tolist(), strict=True)
    )
    if way.standing_ns:
        hops.append((_full(way.standing_ns), float(phases[0])))
    if way.queue is not None:
        hops.append((way.queue, 0.0))
    delay = queues.through(hops, at, way.floor_ns)
    if way.detours_ns:
        delay += np.array(way.detours_ns)[number % len(way.detours_ns)]
    delay += noise(rng, at + delay)
    return np.rint(np.maximum(delay, 1.0)).astype(np.int64)


@functools.lru_cache(maxsize=16)
def _trace(load: float, heavy: bool) -> queues.QueueTrace:
    make = queues.heavy_tailed if heavy else queues.bursty
    return make(load, np.random.default_rng(round(load * 1e6)))


@functools.lru_cache(maxsize=4)
def _full(buffer_ns: float) -> queues.QueueTrace:
    return queues.standing(buffer_ns, np.random.default_rng(round(buffer_ns)))


class Reading(NamedTuple):
    """One clock at the end of a window."""

    line: Timeline
    error_ns: float
    """Its fleet time minus true time, less the median over its part."""
    bound_ns: float


class PairReading(NamedTuple):
    """One pair's edge in the middle of a window."""

    error_ns: float
    """Its offset minus the true one."""
    bound_ns: float
    """Four sigmas of random error, doubt and drift."""


class SimulatedFleet:
    """Nodes ``n0``… in a ring of neighbours, estimated and solved window by window."""

    def __init__(
        self,
        *,
        seed: int,
        nodes: int = 6,
        peers: int = 3,
        pairs: int = 64,
        window_ns: int = 2 * S,
        kind: ClockKind = STEADY,
        noise: stamps.StampNoise = stamps.hardware,
        anchors: Iterable[Anchor] = (),
        fit: WindowFitter = fit_window,
    ) -> None:
        self.clocks = SimulatedClocks(nodes, seed=seed, kind=kind)
        self.solver = AnchoredSolver(anchors)
        self.window = 0
        self.edges: list[Edge] = []
        """Of the last window."""
        self.dead: set[int] = set()
        self.lies: Mapping[int, Callable[[int], int]] = {}
        """Liar to what it adds to every stamp it gives a peer, ns."""
        self._noise = noise
        self._fit = fit
        self._pairs = pairs
        self._window_ns = window_ns
        links = {(a, (a + step) % nodes) for a in range(nodes) for step in range(1, peers + 1)}
        self._ends = sorted(link for link in links if link[0] != link[1])
        self._estimators = {
            ends: PairEstimator(f"n{ends[0]}", f"n{ends[1]}", fit) for ends in self._ends
        }

    def step(self, traffic: Traffic) -> list[Reading]:
        """One window of probing, estimated and solved; readings at its end."""
        start_ns = EPOCH_NS + self.window * self._window_ns
        self.edges = [
            edge for ends in self._ends if (edge := self._edge(ends, start_ns, traffic)) is not None
        ]
        self.window += 1
        now_ns = self.window * self._window_ns
        self.solver.update(self.edges, now_ns)
        return self.readings(self.solver.solve(now_ns), EPOCH_NS + now_ns)

    def readings(self, lines: tuple[Timeline, ...], true_ns: int) -> list[Reading]:
        """Timelines against the truth at a true instant."""
        instant = np.array([true_ns], dtype=np.int64)
        at = [int(self.clocks.read(int(line.node[1:]), instant)[0]) for line in lines]
        raw = [line.to_fleet_ns(local) - true_ns for line, local in zip(lines, at, strict=True)]
        middles = {
            part: float(
                np.median([r for r, line in zip(raw, lines, strict=True) if line.component == part])
            )
            for part in {line.component for line in lines}
        }
        return [
            Reading(line, error - middles[line.component], line.bound_ns(local))
            for line, error, local in zip(lines, raw, at, strict=True)
        ]

    def pair_readings(self) -> list[PairReading]:
        """Edges of the last window against the truth in its middle."""
        instant = np.array([EPOCH_NS + self.window * self._window_ns - self._window_ns // 2])
        return [self._pair_reading(edge, instant) for edge in self.edges]

    def _pair_reading(self, edge: Edge, instant: NDArray[np.int64]) -> PairReading:
        a, b = (int(self.clocks.read(int(node[1:]), instant)[0]) for node in (edge.a, edge.b))
        away_ns = a - edge.ref_ns
        theta_ns = edge.theta_ns + edge.drift_ppb * 1e-9 * away_ns
        sigma_ns = math.hypot(edge.sigma_ns, edge.doubt_ns, edge.drift_sigma_ppb * 1e-9 * away_ns)
        return PairReading(theta_ns - (b - a), BOUND_SIGMAS * sigma_ns)

    def reboot(self, node: int, offset_ns: float) -> None:
        """Its agent starts over, with its clock elsewhere."""
        self.clocks.step_ns[node] += offset_ns
        for ends in self._ends:
            if ends[0] == node:
                self._estimators[ends] = PairEstimator(f"n{ends[0]}", f"n{ends[1]}", self._fit)

    def _edge(self, ends: tuple[int, int], start_ns: int, traffic: Traffic) -> Edge | None:
        ways = traffic(self.window, *ends)
        if ways is None or self.dead & set(ends):
            return None
        span = (start_ns, start_ns + self._window_ns)
        samples = probe_pairs(self.clocks, ends, span, self._pairs, ways, self._noise)
        return self._estimators[ends].estimate(self._reported(samples, ends))

    def _reported(self, samples: PairSamples, ends: tuple[int, int]) -> PairSamples:
        a, b = ends
        if a in self.lies:
            lie = self.lies[a](b)
            samples = samples._replace(fwd_tx=samples.fwd_tx + lie, rev_rx=samples.rev_rx + lie)
        if b in self.lies:
            lie = self.lies[b](a)
            samples = samples._replace(fwd_rx=samples.fwd_rx + lie, rev_tx=samples.rev_tx + lie)
        return samples

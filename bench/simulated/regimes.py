"""Regimes that clocks are judged in and were not tuned for: queues, clocks and paths, each seeded.

`run` takes a whole simulated fleet through one regime on the code path of the product (window fit,
tracker, network solve, bound) and returns every reading beside the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from bench.simulated import queues, stamps
from bench.simulated.clocks import STEADY, ClockKind
from bench.simulated.fleet import QUIET, PairReading, Reading, SimulatedFleet, Traffic, Way

from syntony.clock.fit import WindowFitter, fit_window
from syntony.model import ClockState

WINDOWS = 10
LATE = 4
"""Window at which a regime that starts quiet changes."""
TRACE_NS = 8e9
"""Span of a queue shared by several pairs; four windows of two seconds see different parts."""


class Regime(NamedTuple):
    """What happens to a fleet. `traffic` is drawn anew for every seed."""

    traffic: Callable[[np.random.Generator], Traffic]
    kind: ClockKind = STEADY
    nodes: int = 6
    windows: int = WINDOWS
    visible: bool = True
    """Whether the data of the regime can show what is wrong in it: then no bound may break."""


class Outcome(NamedTuple):
    """Readings of every clock after every window, but those that claim nothing."""

    readings: list[Reading]
    pairs: list[PairReading]
    """Of every pair in the middle of every window."""
    claims: int
    """Readings there would have been had every clock claimed something."""

    @property
    def violations(self) -> list[Reading]:
        """Readings further from the truth than they claim (1 ns of rounding)."""
        return [each for each in self.readings if abs(each.error_ns) > each.bound_ns + 1]


def run(
    regime: Regime, noise: stamps.StampNoise, seed: int, fit: WindowFitter = fit_window
) -> Outcome:
    """One fleet through one regime. Readings in state UNKNOWN or DISRUPTED claim nothing."""
    rng = np.random.default_rng((seed, 7))
    traffic = regime.traffic(rng)
    fleet = SimulatedFleet(seed=seed, nodes=regime.nodes, kind=regime.kind, noise=noise, fit=fit)
    claims = (ClockState.SYNCHRONIZED, ClockState.HOLDOVER)
    readings: list[Reading] = []
    pairs: list[PairReading] = []
    for _ in range(regime.windows):
        readings += [each for each in fleet.step(traffic) if each.line.state in claims]
        pairs += fleet.pair_readings()
    return Outcome(readings, pairs, regime.windows * regime.nodes)


def everywhere(there: Way, back: Way | None = None) -> Callable[[np.random.Generator], Traffic]:
    """The same for every pair; `back` as `there` unless given."""
    ways = (there, there if back is None else back)
    return lambda _rng: lambda _window, _a, _b: ways


def towards(
    host: int, make: Callable[[np.random.Generator], Way], since: int = 0
) -> Callable[[np.random.Generator], Traffic]:
    """Whatever goes to `host` takes one way (its downlink), from window `since` on."""

    def drawn(rng: np.random.Generator) -> Traffic:
        way = make(rng)

        def traffic(window: int, a: int, b: int) -> tuple[Way, Way]:
            if window < since:
                return QUIET, QUIET
            return (way if b == host else QUIET, way if a == host else QUIET)

        return traffic

    return drawn


def hot(load: float) -> Callable[[np.random.Generator], Way]:
    """One queue at that load that all pairs over it meet together."""
    return lambda rng: Way(queue=queues.bursty(load, rng, span_ns=TRACE_NS))


def one_pair(way: Way) -> Callable[[np.random.Generator], Traffic]:
    """Clock 0 to clock 1 only."""
    return lambda _rng: lambda _window, a, b: (way if (a, b) == (0, 1) else QUIET, QUIET)


def uneven(limit_ns: float) -> Callable[[np.random.Generator], Traffic]:
    """Every pair has up to `limit_ns` more delay in a direction of its own."""

    def drawn(rng: np.random.Generator) -> Traffic:
        extra = rng.uniform(limit_ns / 2, limit_ns, (64, 64)) * rng.choice([0, 1], (64, 64))
        return lambda _window, a, b: (
            Way(floor_ns=QUIET.floor_ns + float(extra[a, b])),
            Way(floor_ns=QUIET.floor_ns + float(extra[b, a])),
        )

    return drawn


def on_off_everywhere(rng: np.random.Generator) -> Traffic:
    """Every direction of every pair is loaded in steps: 0.4 s in each second."""
    ways: dict[tuple[int, int], Way] = {}

    def way(a: int, b: int) -> Way:
        if (a, b) not in ways:
            ways[a, b] = Way(queue=queues.on_off(0.95, rng))
        return ways[a, b]

    return lambda _window, a, b: (way(a, b), way(b, a))


PATHS = Way(load=0.6, detours_ns=(0.0, 0.0, 400.0, 1_500.0))
REGIMES: Mapping[str, Regime] = {
    "quiet": Regime(everywhere(QUIET)),
    "load 0.4": Regime(everywhere(Way(0.4))),
    "load 0.8": Regime(everywhere(Way(0.8))),
    "load 0.8 one way": Regime(everywhere(Way(0.8), QUIET)),
    "Pareto bursts 0.6": Regime(everywhere(Way(0.6, heavy=True))),
    "on/off 0.95": Regime(on_off_everywhere),
    "load 0.9 from the start": Regime(everywhere(Way(0.9))),
    "hot downlink 0.9": Regime(towards(2, hot(0.9))),
    "hot downlink 0.95": Regime(towards(2, hot(0.95))),
    "four hops 0.9 to one host": Regime(towards(2, lambda _rng: Way(0.9))),
    "four hops 0.95 to one host": Regime(towards(2, lambda _rng: Way(0.95))),
    "hot downlink 0.95, later": Regime(towards(2, hot(0.95), LATE)),
    "incast sawtooth": Regime(
        towards(2, lambda _rng: Way(queue=queues.sawtooth(2_000.0, 60_000.0, 0.31e9)))
    ),
    "slowly filling, later": Regime(
        towards(2, lambda _rng: Way(queue=queues.filling(2_000.0)), LATE)
    ),
    "standing 5 µs, all one way": Regime(everywhere(Way(queue=queues.constant(5_000.0)), QUIET)),
    "standing 5 µs, one pair": Regime(one_pair(Way(queue=queues.constant(5_000.0)))),
    "standing 5 µs, one host": Regime(
        towards(2, lambda _rng: Way(queue=queues.constant(5_000.0))), visible=False
    ),
    "near-full both ways, cold": Regime(everywhere(Way(standing_ns=600e3))),
    "near-full one way, later": Regime(towards(2, lambda _rng: Way(standing_ns=600e3), LATE)),
    "asymmetry 200 ns, 4 clocks": Regime(uneven(200.0), nodes=4),
    "several paths 0.6": Regime(everywhere(PATHS)),
    "several paths, one way": Regime(everywhere(PATHS, QUIET)),
    "warming 0.1 ppm/s": Regime(everywhere(QUIET), kind=ClockKind(ramp_ppb_per_s=100.0)),
    "swing 200 ppb in 60 s": Regime(
        everywhere(QUIET), kind=ClockKind(swing_ppb=200.0, swing_period_ns=60e9)
    ),
    "wander 5 ppb/√s": Regime(everywhere(QUIET), kind=ClockKind(wander_ppb=5.0)),
}

"""Two simulated clocks and what their tracker makes of windows of probes between them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from bench.simulated import stamps
from bench.simulated.clocks import EPOCH_NS, ClockKind, SimulatedClocks
from bench.simulated.fleet import QUIET, Way, probe_pairs

from syntony.clock.samples import Clouds
from syntony.clock.tracker import PairTracker, Tracked, WindowUse
from syntony.io.window_fit import fit_window
from syntony.model import S

WINDOW_NS = 2 * S
WANDERING = ClockKind(wander_ppb=3.0)
LONGER = Way(floor_ns=25e3)
STUCK = Way(load=0.5, standing_ns=600e3)


class Pair:
    """Two simulated clocks and their tracker."""

    def __init__(
        self,
        seed: int,
        noise: stamps.StampNoise = stamps.hardware,
        pairs: int = 200,
        kind: ClockKind = WANDERING,
    ) -> None:
        self.clocks = SimulatedClocks(2, seed=seed, kind=kind)
        self.tracker = PairTracker(fit_window)
        self.at_ns = EPOCH_NS
        self._noise = noise
        self._pairs = pairs

    def step(
        self, there: Way = QUIET, back: Way = QUIET, *, advance_ns: int = WINDOW_NS
    ) -> Tracked | None:
        return self.tracker.step(self.window(there, back, advance_ns=advance_ns))

    def window(
        self, there: Way = QUIET, back: Way = QUIET, *, advance_ns: int = WINDOW_NS
    ) -> Clouds:
        self.at_ns += advance_ns
        span = (self.at_ns - WINDOW_NS, self.at_ns)
        ways = (there, back)
        return Clouds.of(probe_pairs(self.clocks, (0, 1), span, self._pairs, ways, self._noise))

    def error_ns(self, tracked: Tracked) -> float:
        instant = np.array([self.at_ns], dtype=np.int64)
        a, b = (int(self.clocks.read(clock, instant)[0]) for clock in (0, 1))
        moved = tracked.theta_ns + tracked.drift * (a - tracked.ref_ns)
        return (tracked.base_ns - (b - a)) + moved

    def sigma_ns(self, tracked: Tracked) -> float:
        instant = np.array([self.at_ns], dtype=np.int64)
        ahead_ns = int(self.clocks.read(0, instant)[0]) - tracked.ref_ns
        return math.sqrt(tracked.theta_var + tracked.doubt_var + tracked.drift_var * ahead_ns**2)

    def run(self, ways: Sequence[tuple[Way, Way]]) -> list[WindowUse]:
        modes = []
        for there, back in ways:
            tracked = self.step(there, back)
            assert tracked is not None
            assert abs(self.error_ns(tracked)) < min(200, 5 * self.sigma_ns(tracked)), tracked
            modes.append(tracked.mode)
        return modes

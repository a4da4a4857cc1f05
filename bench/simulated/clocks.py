"""A fleet of drifting clocks that probe each other, with the truth at hand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.samples import PairSamples
from syntony.model import S

EPOCH_NS = 1_750_000_000 * S
"""True time 0 of every simulation."""


class Queueing(NamedTuple):
    """One direction's delay: a floor, and for some probes an exponential wait on top."""

    floor_ns: float = 10_000.0
    busy: float = 0.5
    """Share of probes that had to wait."""
    wait_ns: float = 5_000.0
    jitter_ns: float = 20.0
    """Exponential noise of the stamping itself."""


HALF_BUSY = Queueing()


WALK_STEP_NS = S // 4
"""Frequencies walk on this grid."""
HORIZON_NS = 600 * S
"""Simulated time after `EPOCH_NS` for which wander is drawn; it stands still afterwards."""


class ClockKind(NamedTuple):
    """What makes clocks differ from true time."""

    max_offset_ns: float = 50e6
    max_drift_ppb: float = 40e3
    wander_ppb: float = 0.0
    """Random walk of the frequency, per √s."""
    swing_ppb: float = 0.0
    """Amplitude of a sinusoidal frequency change (temperature), each clock at its own phase."""
    swing_period_ns: float = 600.0 * S
    ramp_ppb_per_s: float = 0.0
    """Steady change of frequency (a machine warming up), each clock in a direction of its own."""


STEADY = ClockKind()


class SimulatedClocks:
    """Clocks whose error against true time is known. `step_ns` may be changed between windows."""

    def __init__(self, count: int, *, seed: int, kind: ClockKind = STEADY) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind = kind
        self.offset_ns = self.rng.uniform(-kind.max_offset_ns, kind.max_offset_ns, count)
        self.drift_ppb = self.rng.uniform(-kind.max_drift_ppb, kind.max_drift_ppb, count)
        self.step_ns = np.zeros(count)
        walks = np.random.default_rng((seed, 1))
        self._swing_phase = walks.uniform(0, 2 * np.pi, count)
        self._ramp_sign = np.random.default_rng((seed, 2)).choice([-1.0, 1.0], count)
        grid = HORIZON_NS // WALK_STEP_NS
        moves = walks.normal(0, 1, (count, grid)) if kind.wander_ppb else np.zeros((count, 1))
        walked = np.cumsum(moves, axis=1) * kind.wander_ppb * 1e-9 * (WALK_STEP_NS / S) ** 0.5
        self._walk_ns = np.cumsum(walked, axis=1) * WALK_STEP_NS

    def read(self, clock: int, true_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """What a clock reads at true instants (int64 ns, any shape)."""
        since = (true_ns - EPOCH_NS).astype(np.float64)
        error = self.offset_ns[clock] + self.step_ns[clock] + self.drift_ppb[clock] * 1e-9 * since
        walk = self._walk_ns[clock]
        error += np.interp(since, (np.arange(len(walk)) + 1.0) * WALK_STEP_NS, walk)
        turn = 2 * np.pi / self.kind.swing_period_ns
        phase = self._swing_phase[clock]
        swung = np.cos(phase) - np.cos(turn * since + phase)
        error += self.kind.swing_ppb * 1e-9 / turn * swung
        error += self._ramp_sign[clock] * self.kind.ramp_ppb_per_s * 1e-18 * since**2 / 2
        return np.asarray(true_ns + np.rint(error).astype(np.int64), dtype=np.int64)

    def probe(
        self,
        a: int,
        b: int,
        *,
        at_ns: int,
        probes: int = 128,
        window_ns: int = 4 * S,
        there: Queueing = HALF_BUSY,
        back: Queueing = HALF_BUSY,
    ) -> PairSamples:
        """Probes of `a` to `b`, spread over the window that ends at true instant `at_ns`."""
        sent = at_ns - window_ns + np.sort(self.rng.integers(0, window_ns, probes))
        arrived = sent + self._delays(there, probes)
        answered = arrived + 20_000
        returned = answered + self._delays(back, probes)
        return PairSamples(
            fwd_tx=self.read(a, sent),
            fwd_rx=self.read(b, arrived),
            rev_tx=self.read(b, answered),
            rev_rx=self.read(a, returned),
        )

    def _delays(self, way: Queueing, probes: int) -> NDArray[np.int64]:
        waiting = self.rng.random(probes) < way.busy
        delay = way.floor_ns + self.rng.exponential(way.jitter_ns, probes)
        delay += waiting * self.rng.exponential(way.wait_ns, probes)
        return np.rint(delay).astype(np.int64)

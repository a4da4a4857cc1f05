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


class SimulatedClocks:
    """Clocks with constant offset and drift against true time."""

    def __init__(
        self, count: int, *, seed: int, max_offset_ns: float = 50e6, max_drift_ppb: float = 40e3
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.offset_ns = self.rng.uniform(-max_offset_ns, max_offset_ns, count)
        self.drift_ppb = self.rng.uniform(-max_drift_ppb, max_drift_ppb, count)
        self.step_ns = np.zeros(count)

    def read(self, clock: int, true_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """What a clock reads at true instants (int64 ns, any shape)."""
        drift = self.drift_ppb[clock] * 1e-9 * (true_ns - EPOCH_NS)
        error = self.offset_ns[clock] + self.step_ns[clock] + drift
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

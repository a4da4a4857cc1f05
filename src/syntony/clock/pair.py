"""Windows of one pair of clocks to edges: what agents send to the network solve."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from syntony.clock.fit import WindowFitter, fit_window
from syntony.clock.paths import AGREED, Disagreement, PathBalance
from syntony.clock.samples import Clouds, PairSamples
from syntony.clock.tracker import PairTracker, Tracked
from syntony.model import Edge

__all__ = ["PairEstimator", "PairSamples"]


class PairEstimator:
    """Windows of one pair to edges; remembers the pair's offset, drift and path floors.

    Windows may overlap (a sliding one asked every second): the tracker counts a probe's noise once.
    """

    def __init__(self, a: str, b: str, fit: WindowFitter = fit_window) -> None:
        self._a = a
        self._b = b
        self._tracker = PairTracker(fit)
        self._paths = PathBalance()

    def estimate(self, samples: PairSamples) -> Edge | None:
        """The edge as of this window, or None when the window cannot support one.

        A window that a clock stepped in gives none; the next whole one starts over.
        """
        if not samples.usable():
            return None
        tracked = self._tracker.step(Clouds.of(samples))
        if tracked is None:
            return None
        paths = self._balance(samples, tracked)
        return Edge(
            a=self._a,
            b=self._b,
            ref_ns=tracked.ref_ns,
            theta_ns=tracked.base_ns + tracked.theta_ns + paths.correction_ns,
            drift_ppb=tracked.drift * 1e9,
            sigma_ns=math.hypot(math.sqrt(tracked.theta_var), paths.sigma_ns),
            drift_sigma_ppb=math.sqrt(tracked.drift_var) * 1e9,
            rtt_floor_ns=tracked.rtt_floor_ns,
            probes=len(samples.fwd_tx) + len(samples.rev_rx),
            mode=tracked.mode,
            paths=paths.paths,
            path_spread_ns=paths.spread_ns,
            path_correction_ns=paths.correction_ns,
        )

    def _balance(self, samples: PairSamples, tracked: Tracked) -> Disagreement:
        """Each path beside the relation of all of them together."""
        if samples.fwd_path is None or samples.rev_path is None:
            return AGREED
        base = tracked.base_ns

        def relation(at_a: NDArray[np.int64]) -> NDArray[np.float64]:
            line = tracked.theta_ns + tracked.drift * (at_a - tracked.ref_ns)
            return np.asarray(line, dtype=np.float64)

        there = (samples.fwd_rx - samples.fwd_tx - base) - relation(samples.fwd_tx)
        back = (samples.rev_rx - samples.rev_tx + base) + relation(samples.rev_rx)
        return self._paths.take((samples.fwd_path, there), (samples.rev_path, back))

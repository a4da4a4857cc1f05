"""Windows of one pair of clocks to edges: what agents send to the network solve."""

from __future__ import annotations

import math

from syntony.clock.fit import WindowFitter, fit_window
from syntony.clock.samples import Clouds, PairSamples
from syntony.clock.tracker import PairTracker
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

    def estimate(self, samples: PairSamples) -> Edge | None:
        """The edge as of this window, or None when the window cannot support one.

        A window that a clock stepped in gives none; the next whole one starts over.
        """
        if not samples.usable():
            return None
        tracked = self._tracker.step(Clouds.of(samples))
        if tracked is None:
            return None
        return Edge(
            a=self._a,
            b=self._b,
            ref_ns=tracked.ref_ns,
            theta_ns=tracked.base_ns + tracked.theta_ns,
            drift_ppb=tracked.drift * 1e9,
            sigma_ns=math.sqrt(tracked.theta_var),
            drift_sigma_ppb=math.sqrt(tracked.drift_var) * 1e9,
            rtt_floor_ns=tracked.rtt_floor_ns,
            probes=len(samples.fwd_tx) + len(samples.rev_rx),
            mode=tracked.mode,
        )

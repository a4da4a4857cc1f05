"""Turns windows of a pair of clocks into edges, which agents send to the network solve."""

from __future__ import annotations

import math

import numpy as np

from syntony.clock.fit import WindowFitter, fit_window
from syntony.clock.paths import AGREED, PathBalance, PathDisagreement
from syntony.clock.points import PairWindow, PathRuns, Points, windows_of
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
        return self.see(windows_of(Points.of(samples), 1)[0])

    def see(self, window: PairWindow | None) -> Edge | None:
        """The same of a window made ready together with others (`windows_of`)."""
        if window is None:
            return None
        clouds = window.clouds
        tracked = self._tracker.step(clouds)
        if tracked is None:
            return None
        paths = AGREED if window.runs is None else self._balance(clouds, window.runs, tracked)
        return Edge(
            a=self._a,
            b=self._b,
            ref_ns=tracked.ref_ns,
            theta_ns=tracked.base_ns + tracked.theta_ns + paths.correction_ns,
            drift_ppb=tracked.drift * 1e9,
            sigma_ns=math.hypot(math.sqrt(tracked.theta_var), paths.sigma_ns),
            drift_sigma_ppb=math.sqrt(tracked.drift_var) * 1e9,
            rtt_floor_ns=tracked.rtt_floor_ns,
            doubt_ns=math.sqrt(tracked.doubt_var),
            probes=len(clouds.t),
            mode=tracked.mode,
            paths=paths.paths,
            path_spread_ns=paths.spread_ns,
            path_correction_ns=paths.correction_ns,
        )

    def forget(self) -> None:
        """One of the clocks has stepped, or changed its rate."""
        self._tracker.forget()

    def _balance(self, clouds: Clouds, runs: PathRuns, tracked: Tracked) -> PathDisagreement:
        """Each path compared with the relation of all of them."""
        # The tracker tells the relation of another instant, and in the same base.
        theta_ns = tracked.theta_ns + tracked.drift * (clouds.ref_ns - tracked.ref_ns)
        delays = clouds.side * (clouds.y - theta_ns - tracked.drift * clouds.t)
        least = np.minimum.reduceat(delays, runs.starts).tolist()
        there = dict(zip(runs.paths[: runs.forward], least[: runs.forward], strict=True))
        back = dict(zip(runs.paths[runs.forward :], least[runs.forward :], strict=True))
        return self._paths.take(there, back)

"""One pair of clocks over one window: offset, drift and what they are worth.

The estimator is the classical minimum envelope: every forward probe bounds the offset from above by
its own delay, every reverse probe from below; the line that keeps the two clouds furthest apart is
the relation of the clocks, up to half the asymmetry of the two fastest probes. The gap between the
envelopes is concave in the slope, so the best slope is found by golden-section search.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.model import Edge

Instants = NDArray[np.int64]

MAX_DRIFT_PPB = 200_000.0
"""Widest relative drift searched; crystals stay within ±100 ppm each (IEEE 802.3 clause 4)."""
MIN_PROBES = 4
"""Per direction: fewer cannot tell a slope from a queue."""
MIN_SIGMA_NS = 20.0
"""Software stamps are never better than this: interrupt and cache noise of the stamping itself."""
FLOOR_PROBES = 5
"""How many of the fastest probes per direction judge the envelope's sharpness."""
FLOOR_MEMORY = 60
"""Windows over which the round-trip floor is remembered."""
_SEARCH_STEPS = 40
_GOLDEN = (5**0.5 - 1) / 2


class PairSamples(NamedTuple):
    """Stamps of one pair over one window, as int64 ns arrays; ``a`` is the prober.

    Forward probes left a at `fwd_tx` (a's clock) and reached b at `fwd_rx` (b's clock), both of
    shape (n,); reverse ones left b at `rev_tx` (b's clock) and reached a at `rev_rx` (a's), (m,).
    """

    fwd_tx: Instants
    fwd_rx: Instants
    rev_tx: Instants
    rev_rx: Instants

    def usable(self) -> bool:
        """Whether both directions have enough probes, not all at one instant."""
        return (
            min(len(self.fwd_tx), len(self.rev_rx)) >= MIN_PROBES
            and bool(np.ptp(self.fwd_tx) > 0)
            and bool(np.ptp(self.rev_rx) > 0)
        )


class PairEstimator:
    """Windows of one pair to edges; remembers the pair's round-trip floor.

    A window whose own floor is above the remembered one saw only queued probes: the excess could
    lie in either direction, so half of it is added to the edge's sigma.
    """

    def __init__(self, a: str, b: str) -> None:
        self._a = a
        self._b = b
        self._floors: deque[float] = deque(maxlen=FLOOR_MEMORY)

    def estimate(self, samples: PairSamples) -> Edge | None:
        """The window's edge, or None when the window cannot support one."""
        if not samples.usable():
            return None
        fit = fit_envelope(samples)
        if fit.rtt_floor_ns < 0:
            return None  # the clouds overlap: a clock stepped inside the window
        self._floors.append(fit.rtt_floor_ns)
        excess_ns = fit.rtt_floor_ns - min(self._floors)
        return Edge(
            a=self._a,
            b=self._b,
            ref_ns=fit.ref_ns,
            theta_ns=fit.theta_ns,
            drift_ppb=fit.drift_ppb,
            sigma_ns=math.hypot(fit.sharpness_ns, excess_ns / 2),
            drift_sigma_ppb=fit.drift_sigma_ppb,
            rtt_floor_ns=fit.rtt_floor_ns,
            probes=len(samples.fwd_tx) + len(samples.rev_rx),
        )


class EnvelopeFit(NamedTuple):
    """``theta(t) = theta_ns + drift_ppb·1e-9·(t - ref_ns)``, t and ref on a's clock."""

    ref_ns: int
    theta_ns: float
    drift_ppb: float
    sharpness_ns: float
    """1-sigma of theta: how far the fastest probes of each direction scatter above the floor."""
    drift_sigma_ppb: float
    rtt_floor_ns: float


def fit_envelope(samples: PairSamples) -> EnvelopeFit:
    """The line between the clouds. `samples` must be usable."""
    first_ns = min(int(samples.fwd_tx.min()), int(samples.rev_rx.min()))
    last_ns = max(int(samples.fwd_tx.max()), int(samples.rev_rx.max()))
    ref_ns = (first_ns + last_ns) // 2
    base_ns = int(samples.fwd_rx[0]) - int(samples.fwd_tx[0])
    t_fwd = (samples.fwd_tx - ref_ns).astype(np.float64)
    t_rev = (samples.rev_rx - ref_ns).astype(np.float64)
    y_fwd = (samples.fwd_rx - samples.fwd_tx - base_ns).astype(np.float64)
    y_rev = (samples.rev_tx - samples.rev_rx - base_ns).astype(np.float64)
    slope = _widest_gap(t_fwd, y_fwd, t_rev, y_rev)
    above = np.sort(y_fwd - slope * t_fwd)
    below = np.sort(-(y_rev - slope * t_rev))
    sharpness_ns = max(_scatter(above, below) / 2, MIN_SIGMA_NS)
    return EnvelopeFit(
        ref_ns=ref_ns,
        theta_ns=base_ns + float(above[0] - below[0]) / 2,
        drift_ppb=slope * 1e9,
        sharpness_ns=sharpness_ns,
        drift_sigma_ppb=2 * sharpness_ns / (last_ns - first_ns) * 1e9,
        rtt_floor_ns=float(above[0] + below[0]),
    )


def _widest_gap(
    t_fwd: NDArray[np.float64],
    y_fwd: NDArray[np.float64],
    t_rev: NDArray[np.float64],
    y_rev: NDArray[np.float64],
) -> float:
    """Slope (ns per ns) that maximises the vertical gap between the two clouds."""

    def gap(slope: float) -> float:
        return float((y_fwd - slope * t_fwd).min() - (y_rev - slope * t_rev).max())

    low, high = -MAX_DRIFT_PPB * 1e-9, MAX_DRIFT_PPB * 1e-9
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    gap_left, gap_right = gap(left), gap(right)
    for _ in range(_SEARCH_STEPS):
        if gap_left > gap_right:
            high, right, gap_right = right, left, gap_left
            left = high - _GOLDEN * (high - low)
            gap_left = gap(left)
        else:
            low, left, gap_left = left, right, gap_right
            right = low + _GOLDEN * (high - low)
            gap_right = gap(right)
    return (low + high) / 2


def _scatter(above: NDArray[np.float64], below: NDArray[np.float64]) -> float:
    """Root sum square of both directions' mean height above their floor, fastest probes only."""
    heights = [float(np.mean(side[1 : FLOOR_PROBES + 1] - side[0])) for side in (above, below)]
    return math.hypot(*heights)

"""Lines that keep the forward and the reverse cloud furthest apart.

The gap between the clouds, measured by the mean of the k lowest points of each, is concave in the
slope, so golden section finds its maximum. It equals the soft-margin linear program with C = 1/k
(the conditional value at risk of the margin; Rockafellar & Uryasev 2000); k = 1 is the hard one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.samples import Clouds

Floats = NDArray[np.float64]

MAX_DRIFT_PPB = 200_000.0
"""Widest relative drift searched; crystals stay within ±100 ppm each (IEEE 802.3 clause 4)."""
HARD_STEPS = 44
"""Golden sections from ±200 ppm to under 0.001 ppb."""
SOFT_RANGE_PPB = 8_000.0
"""Search range of a soft slope around the hard one, for a span of one second."""
SOFT_STEPS = 26
_GOLDEN = (5**0.5 - 1) / 2


class EnvelopeLine(NamedTuple):
    """A slope (ns per ns) and the lowest typical height of each direction under it, ns."""

    slope: float
    forward_ns: float
    reverse_ns: float

    @property
    def theta_ns(self) -> float:
        """Midway between the clouds at the window's reference instant, less its base."""
        return (self.forward_ns - self.reverse_ns) / 2

    def distance_ns(self, other: EnvelopeLine, span_ns: float) -> float:
        """The largest difference of the slopes over a span, or of the heights."""
        return max(
            abs(self.slope - other.slope) * span_ns,
            abs(self.forward_ns - other.forward_ns),
            abs(self.reverse_ns - other.reverse_ns),
        )

    @property
    def rtt_ns(self) -> float:
        """Round trip of the lowest points."""
        return self.forward_ns + self.reverse_ns


def hard_envelope(clouds: Clouds) -> EnvelopeLine:
    """The line with the widest gap to the single lowest point of each direction."""
    limit = MAX_DRIFT_PPB * 1e-9
    return _widest(clouds, 1, -limit, limit, HARD_STEPS)


def soft_envelope(clouds: Clouds, k: int, near: EnvelopeLine) -> EnvelopeLine:
    """The same for the mean of the `k` lowest, sought around the hard line `near`."""
    reach = SOFT_RANGE_PPB * 1e-9 * 1e9 / max(clouds.span_ns, 1e9)
    heights = clouds.heights(near.slope)
    slack = reach * clouds.span_ns
    keep = np.zeros(len(heights), dtype=np.bool_)
    for part in (slice(0, clouds.forward), slice(clouds.forward, None)):
        place = min(k, len(heights[part])) - 1
        keep[part] = heights[part] <= np.partition(heights[part], place)[place] + slack
    return _widest(clouds.only(keep), k, near.slope - reach, near.slope + reach, SOFT_STEPS)


def lowest(heights: Floats, k: int) -> float:
    """Mean of the `k` lowest."""
    if k == 1:
        return float(heights.min())
    k = min(k, len(heights))
    return float(np.partition(heights, k - 1)[:k].sum()) / k


def _widest(clouds: Clouds, k: int, low: float, high: float, steps: int) -> EnvelopeLine:
    def gap(slope: float) -> float:
        heights = clouds.heights(slope)
        return lowest(heights[: clouds.forward], k) + lowest(heights[clouds.forward :], k)

    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    gap_left, gap_right = gap(left), gap(right)
    for _ in range(steps):
        if gap_left > gap_right:
            high, right, gap_right = right, left, gap_left
            left = high - _GOLDEN * (high - low)
            gap_left = gap(left)
        else:
            low, left, gap_left = left, right, gap_right
            right = low + _GOLDEN * (high - low)
            gap_right = gap(right)
    slope = (low + high) / 2
    heights = clouds.heights(slope)
    return EnvelopeLine(
        slope, lowest(heights[: clouds.forward], k), lowest(heights[clouds.forward :], k)
    )

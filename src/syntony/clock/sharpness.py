"""Whether a cloud's lower edge is a floor or the lower end of a queue that never emptied.

A path's floor is touched again and again, and most probes lie nearer to it than to the slowest
ones. A standing queue wanders: its least value is one moment's, and other moments come nowhere
near it. A queue that is always full has delays spread evenly over one packet's time. So a floor is
believed where the lowest probes of most stretches of the window come as near to the edge as so
many draws from a dense edge must, and where delays lean towards it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.clock.samples import Clouds

STRETCHES = 16
"""Stretches of a window, each with the same number of probes."""
LEAST_STRETCHES = 8
STRETCH_PROBES = 8
"""Fewest probes of a stretch."""
NEAR = 2.2
"""How far above the edge the lowest of n probes may lie in the median stretch, in n-ths of the
median delay above the edge. Expected: 1.0 for delays that fall off exponentially, 1.3 for half a
bell, 4 where they rise linearly from the edge (a walk's lower end), 12 for a whole bell."""
TICKS_NS = 2.0
"""What rounding of both stamps adds to that."""
LEAN = 0.43
"""Most that the median may be of the 95th percentile, both above the edge. Expected: 0.23 for
exponential delays, 0.34 for half a bell, 0.53 for even ones."""


def touches_floor(clouds: Clouds, slope: float) -> bool:
    """Whether both directions' delays under that slope have a floor."""
    heights = clouds.heights(slope)
    sides = (slice(0, clouds.forward), slice(clouds.forward, None))
    return all(_touches(heights[side][np.argsort(clouds.t[side])]) for side in sides)


def _touches(heights: NDArray[np.float64]) -> bool:
    """The same for one direction's heights in the order of time."""
    stretches = min(STRETCHES, len(heights) // STRETCH_PROBES)
    if stretches < LEAST_STRETCHES:
        return False
    each = len(heights) // stretches
    above = heights - heights.min()
    middle, high = np.percentile(above, (50, 95))
    lowest = np.sort(above[: stretches * each].reshape(stretches, each).min(axis=1))
    return bool(middle <= LEAN * high and lowest[stretches // 2] <= NEAR * middle / each + TICKS_NS)

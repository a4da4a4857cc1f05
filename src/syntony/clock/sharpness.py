"""Evidence that a window's lowest probes lie on the path's floor, and how far below it may lie.

Two questions, both answered from each direction's delays alone, without a model of the stamps:

*Is the lower edge a floor at all?* A path's floor is touched again and again, and delays lean
towards it. A standing queue wanders, so that its least value is one moment's; a queue that is
always nearly full has delays that lean away from its lower end, or spread evenly above it (a
sawtooth). Without a confirmed floor a whole queue may hide below the lowest probe.

*How far above the floor is the lowest probe?* Where queues rarely empty (two hops at 90 % leave 1 %
of probes without waiting) even the lowest probe waited. How much shows in how far the lowest
probes of disjoint stretches of the window lie above the lowest of all: extremes of the same
distribution, so their distances scale alike (Gnedenko 1943).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.samples import Clouds

STRETCHES = 16
"""Stretches of a window, each with the same number of probes."""
LEAST_STRETCHES = 8
"""Fewer confirm nothing."""
STRETCH_PROBES = 8
"""Fewest probes of a stretch."""
NEAR = 2.8
"""How far above the edge the lowest of n probes may lie in the median stretch, in n-ths of the
median delay above the edge. Expected: 1.0 for delays that fall off exponentially, 1.3 for half a
bell, 4 where they rise linearly from the edge (a walk's lower end), 12 for a whole bell."""
TICKS_NS = 2.0
"""What rounding of both stamps adds to that."""
LEAN = 0.43
"""Most that the median may be of the 95th percentile, both above the edge. Expected: 0.23 for
exponential delays, 0.34 for half a bell, 0.37 for two busy hops, 0.53 for even ones, 0.6 for a
bell, 0.8 below a full buffer."""
EVEN_LEAN = 0.5 / 0.95
"""What even delays leave, ± itself over the root of their number (the median's standard error)."""
LEAN_SIGMAS = 2.3
"""Delays lean only if even ones would look so once in a hundred windows."""
CERTAIN_SIGMAS = 5.0
"""One window is enough from here on; below, a second one with probes of its own must agree."""
GAP = 0.85
"""1-sigma of the distance from floor to lowest probe, in median rises of a stretch's lowest probe
above the lowest of all, times the root of the number of stretches. For a density that rises as
x^(a-1) from the floor, 4 sigmas are 14 (a = 1), 5 (a = 2: two hops that both rarely empty) and 2
(a = 4) times the mean distance."""


class FloorEvidence(NamedTuple):
    """What one window says of its floors."""

    confirmed: bool
    """Both directions' lower edges look like floors."""
    certain: bool
    """They do so beyond chance: no other window needs to agree."""
    gap_ns: float
    """1-sigma of the offset's error because floors lie below the lowest probes."""


def floor_evidence(clouds: Clouds, slope: float, *, clustered: bool) -> FloorEvidence:
    """Evidence for floors in both directions' delays under that slope.

    Args:
        clouds: of one window.
        slope: of the relation, ns per ns.
        clustered: both directions show a cluster at their floor (`WindowFit.sharp`), which replaces
            the test that each stretch comes near the edge: stamps that scatter like a bell do not.
    """
    heights = clouds.heights(slope)
    halves = (slice(0, clouds.forward), slice(clouds.forward, None))
    sides = [_of_side(heights[half][np.argsort(clouds.t[half])], clustered) for half in halves]
    sigmas = min(side.lean_sigmas for side in sides)
    confirmed = all(side.touched for side in sides) and sigmas >= LEAN_SIGMAS
    return FloorEvidence(
        confirmed=confirmed,
        certain=confirmed and sigmas >= CERTAIN_SIGMAS,
        gap_ns=math.hypot(*(side.gap_ns for side in sides)) / 2,
    )


class _Side(NamedTuple):
    """Evidence of one direction."""

    touched: bool
    """Its stretches come near the edge, and delays lean towards it."""
    lean_sigmas: float
    """How far they lean beyond what even delays do by chance."""
    gap_ns: float


def _of_side(heights: NDArray[np.float64], clustered: bool) -> _Side:
    """Of one direction's heights in the order of time."""
    stretches = max(2, min(STRETCHES, len(heights) // STRETCH_PROBES))
    each = len(heights) // stretches
    above = heights - heights.min()
    lowest = above[: stretches * each].reshape(stretches, each).min(axis=1)
    # The upper median: a step within the window leaves no more than half of the stretches low.
    rise_ns = float(np.partition(lowest, stretches // 2)[stretches // 2])
    gap_ns = GAP * rise_ns / math.sqrt(stretches)
    if stretches < LEAST_STRETCHES:
        return _Side(False, 0.0, gap_ns)
    middle, high = (float(each) for each in np.percentile(above, (50, 95)))
    lean = middle / high if high > 0 else 0.0
    near = clustered or rise_ns <= NEAR * middle / each + TICKS_NS
    return _Side(near and lean <= LEAN, (1 - lean / EVEN_LEAN) * math.sqrt(len(above)), gap_ns)

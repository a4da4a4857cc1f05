"""Evidence that a window's lowest probes lie on the path's floor, and how far below it may lie.

Two questions, both answered from each direction's delays alone, without a model of the stamps:

*Is the lower edge a floor at all?* A path's floor is touched again and again, and delays lean
towards it. A standing queue wanders, so that its least value is one moment's; a queue that is
always nearly full has delays that lean away from its lower end, or spread evenly above it (a
sawtooth). Without a confirmed floor a whole queue may hide below the lowest probe.

*How far above the floor is the lowest probe?* Where queues rarely empty (two hops at 90 % leave 1 %
of probes without waiting) even the lowest probe waited. How much shows in how far the lowest
probes of disjoint stretches of the window lie above the lowest of all: extremes of the same
distribution, so their distances scale alike (Gnedenko 1943). Unless some of them did not wait: then
they lie closer to each other than any smooth distribution puts its extremes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from syntony.clock.samples import Clouds, Floats

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
"""Contribution of rounding of both stamps."""
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
COINCIDENCE = 1e-3
"""Chance, up to which a direction's lowest probes that lie close to each other did not wait."""
LOWER_END = 4
"""A quarter of all probes, within which distances are compared."""
LEAST_CLUSTER = 3
"""Two that agree are no cluster."""


class FloorEvidence(NamedTuple):
    """One window's evidence on its floors."""

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
    ahead, back = (_of_side(clouds.t[half], heights[half], clustered) for half in halves)
    sigmas = min(ahead.lean_sigmas, back.lean_sigmas)
    # After a step one direction is at its floor before it and the other one behind it only.
    together = ahead.first_ns < back.last_ns and back.first_ns < ahead.last_ns
    confirmed = ahead.touched and back.touched and together and sigmas >= LEAN_SIGMAS
    return FloorEvidence(
        confirmed=confirmed,
        certain=confirmed and sigmas >= CERTAIN_SIGMAS,
        gap_ns=math.hypot(ahead.gap_ns, back.gap_ns) / 2,
    )


class _Side(NamedTuple):
    """Evidence of one direction."""

    touched: bool
    """Its stretches come near the edge, and delays lean towards it; or a cluster lies there."""
    lean_sigmas: float
    """Skew or clustering of the delays, beyond that of uniform delays by chance."""
    gap_ns: float
    first_ns: float
    last_ns: float
    """When it touched the edge."""


def _of_side(t: Floats, heights: Floats, clustered: bool) -> _Side:
    """Evidence of one direction."""
    order = np.argsort(t)
    t, above = t[order], heights[order] - heights.min()
    stretches = max(2, min(STRETCHES, len(above) // STRETCH_PROBES))
    each = len(above) // stretches
    lowest = above[: stretches * each].reshape(stretches, each).min(axis=1)
    # The upper median: a step within the window leaves no more than half of the stretches low.
    rise_ns = float(np.partition(lowest, stretches // 2)[stretches // 2])
    gap_ns = GAP * rise_ns / math.sqrt(stretches)
    enough = stretches >= LEAST_STRETCHES
    log_chance, cluster_ns = _cluster(above)
    if enough and cluster_ns < gap_ns:
        low = t[above < cluster_ns]
        return _Side(True, math.sqrt(-2 * log_chance), cluster_ns, low[0], low[-1])
    low = t[above <= rise_ns]
    middle, high = (float(each) for each in np.percentile(above, (50, 95)))
    lean = middle / high if high > 0 else 0.0
    near = clustered or rise_ns <= NEAR * middle / each + TICKS_NS
    sigmas = (1 - lean / EVEN_LEAN) * math.sqrt(len(above))
    return _Side(enough and near and lean <= LEAN, sigmas, gap_ns, low[0], low[-1])


def _cluster(above: Floats) -> tuple[float, float]:
    """Logarithm of the chance that there is no cluster at the lower end of a direction's delays,
    which may be too small for a float, and the cluster's width.

    Between delays that all waited, distances are even at their lower end, or larger the lower they
    are. Then 1 + k of the n lowest fit into a share r of what those take with a chance of less than
    C(n-2, k)·r^k. The two probes of a coded pair wait alike and count as one.
    """
    pairs = len(above) // 2
    least = np.sort(above[: 2 * pairs].reshape(pairs, 2).min(axis=1))
    rises = (least[: pairs // LOWER_END] - least[0]).tolist()
    surest, cluster_ns = 0.0, math.inf
    for others in range(LEAST_CLUSTER - 1, len(rises) // 2):
        width_ns = rises[others] + TICKS_NS
        share = width_ns / max(rises[-1], width_ns)
        log_ways = math.lgamma(len(rises) - 1) - math.lgamma(others + 1)
        log_ways -= math.lgamma(len(rises) - 1 - others)
        log_chance = log_ways + others * math.log(share)
        if log_chance <= math.log(COINCIDENCE):
            cluster_ns = width_ns
            surest = min(surest, log_chance)
    return surest, cluster_ns

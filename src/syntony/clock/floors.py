"""Least one-way delays of a pair's two directions: of one window, and remembered over many."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.fit import WindowFit
from syntony.clock.samples import Clouds

FLOOR_DEPTH = 5
"""Lowest points that define a direction's floor: a single one may be a wrong stamp."""
EARLY_SIGMAS = 4.0
MAX_EARLY = 0.05
"""The floor is where that many points lie within this many sigmas of stamp noise; up to this share
of points may lie alone below it: stamps gone wrong."""
QUEUE_SHARE = 0.01
"""A larger systematic error than this share of the round trip may be a queue, which fills or drains
meanwhile."""
CONFIRMATIONS = 2
"""Windows without common probes that must confirm floors before this is ruled out."""
FORGOTTEN = 0.05
"""Part of what windows said of the gap that is forgotten with each later one, as floors follow
those (`FLOOR_UP`): many windows leave no less than 20 would."""
LEAST_GAP_NS = 0.5
"""Stamps of both ends are whole nanoseconds."""

SLACK_SIGMAS = 4.0
MIN_SLACK_NS = 20.0
"""Excess over a floor that noise explains: the larger of the two."""
LAST_PART = 0.25
"""Share of a window in which no probe may meet a floor by chance."""

HALF_FLOOR, HALF_SCATTER = 2, 7
"""The third lowest probe of half a window stands for its floor, in spite of two wrong stamps, and
the distance of the eighth for its scatter."""

Matrix = NDArray[np.float64]


class Lows(NamedTuple):
    """The lowest points of each direction at one slope, ns: heights, or delays once offset."""

    forward_ns: float
    reverse_ns: float
    forward_scatter_ns: float
    """Spread of the lowest points of that direction."""
    reverse_scatter_ns: float

    @property
    def scatter_ns(self) -> float:
        return math.hypot(self.forward_scatter_ns, self.reverse_scatter_ns)

    @property
    def worse_ns(self) -> float:
        return max(self.forward_scatter_ns, self.reverse_scatter_ns)

    @property
    def slack_ns(self) -> float:
        """By how much their sum may differ from its floor by chance."""
        return max(MIN_SLACK_NS, SLACK_SIGMAS * self.scatter_ns)

    @property
    def rtt_ns(self) -> float:
        return self.forward_ns + self.reverse_ns


class Floors(NamedTuple):
    """Least one-way delays, ns: their sum was measured, its division between them assumed."""

    forward_ns: float
    reverse_ns: float
    least_ns: float
    """Their sum when they were learned, or less: they rise with later windows, it does not."""
    asymmetry_ns: float = 0.0
    """Half the difference of the paths, known only from rebaselining around a prediction."""
    doubt_var: float = 0.0
    """Variance of that half difference: systematic, so no number of windows shrinks it."""
    scatter_ns: float = math.inf
    """How far the lowest points scattered, in the worse direction, when both were at the floor."""
    confirmed: int = 0
    """Number of windows without common probes that confirmed them."""
    confirmed_ns: int = 0
    """When the last of these windows ended."""
    certain: bool = False
    """One of these windows was enough."""
    bias_ns: float = 0.0
    """Error of the prediction they were learned around, if a queue had grown in one direction."""
    gap_var: float = math.inf
    """What these windows' lowest probes leave open (`WindowFit.gap_ns`) together: n equal windows
    leave less by the root of n, as stretches within a window do, and one good one is enough."""

    def confirm(self, fit: WindowFit, now_ns: int) -> Floors:
        """The floors with one more confirming window."""
        known = (1 - FORGOTTEN) / self.gap_var + 1 / max(fit.gap_ns, LEAST_GAP_NS) ** 2
        return self._replace(
            confirmed=self.confirmed + 1,
            confirmed_ns=now_ns,
            certain=self.certain or fit.certain,
            gap_var=1 / known,
        )

    @property
    def remaining_var(self) -> float:
        """Variance of the offset that the floors leave in doubt, infinite while unconfirmed."""
        if self.certain or self.confirmed >= CONFIRMATIONS:
            return self.gap_var
        return math.inf

    @property
    def rtt_ns(self) -> float:
        return self.forward_ns + self.reverse_ns

    def drift_doubt(self, span_ns: float) -> float:
        """1-sigma of a window's slope, as long as queues may stand: they fill and drain."""
        doubt_ns = math.sqrt(self.doubt_var)
        return 2 * doubt_ns / span_ns if doubt_ns > QUEUE_SHARE * self.rtt_ns else 0.0


def growth_ns(clouds: Clouds, slope: float) -> tuple[float, float]:
    """By how much the floors' sum rises over a window, and its scatter: clocks leave it alone."""
    heights = clouds.heights(slope)
    late = clouds.t > 0
    rise_ns = scatter_ns = 0.0
    for part in (slice(0, clouds.forward), slice(clouds.forward, None)):
        for half, sign in ((~late[part], -1.0), (late[part], 1.0)):
            side = heights[part][half]
            if len(side) <= HALF_SCATTER:
                return 0.0, 0.0
            low = np.partition(side, (HALF_FLOOR, HALF_SCATTER))
            rise_ns += sign * float(low[HALF_FLOOR])
            scatter_ns = math.hypot(scatter_ns, float(low[HALF_SCATTER] - low[HALF_FLOOR]))
    # Halves' floors lie half a window apart.
    return 2 * rise_ns, 2 * scatter_ns


def low_until_ns(clouds: Clouds, slope: float, lows: Lows) -> tuple[int, int]:
    """Until when each direction's delays came down to these floors, on a's clock: to the window's
    end, unless its last part is above them."""
    heights = clouds.heights(slope)
    found = []
    for part, low_ns, scatter_ns in (
        (slice(0, clouds.forward), lows.forward_ns, lows.forward_scatter_ns),
        (slice(clouds.forward, None), lows.reverse_ns, lows.reverse_scatter_ns),
    ):
        low = heights[part] <= low_ns + max(MIN_SLACK_NS, SLACK_SIGMAS * scatter_ns)
        last_ns = clouds.t[part].max(where=low, initial=-clouds.span_ns / 2)
        late = last_ns >= (0.5 - LAST_PART) * clouds.span_ns
        found.append(clouds.ref_ns + round(clouds.span_ns / 2 if late else last_ns))
    return found[0], found[1]


def lows_at(
    clouds: Clouds, slope: float, noise_ns: float, clusters: WindowFit | None = None
) -> Lows:
    """Floors of both directions at a slope, less isolated stamps below them that went wrong."""
    heights = clouds.heights(slope)
    width_ns = EARLY_SIGMAS * noise_ns
    lows, rises = [], []
    sides = (heights[: clouds.forward], heights[clouds.forward :])
    centres = (-math.inf, -math.inf) if clusters is None else clusters.line[1:]
    for side, centre in zip(sides, centres, strict=True):
        right = side[side > centre - EARLY_SIGMAS * noise_ns] if clusters is not None else side
        floor = _floor(right if len(right) else side, width_ns)
        lows.append(float(floor.sum()) / len(floor))
        rises.append(lows[-1] - float(floor[0]))
    return Lows(lows[0], lows[1], rises[0], rises[1])


def fitted_lows(clouds: Clouds, fit: WindowFit, noise_ns: float) -> Lows:
    """At the window's own slope, and from its own clusters where it has any."""
    if fit.clustered:
        return lows_at(clouds, fit.line.slope, fit.noise_ns, fit)
    return lows_at(clouds, fit.line.slope, noise_ns)


def _floor(side: Matrix, width_ns: float) -> Matrix:
    """The lowest `FLOOR_DEPTH` heights that lie within a cluster's width of each other, ascending.

    Where there are none (no cluster, or noise unknown) simply the lowest.
    """
    depth = min(FLOOR_DEPTH, len(side))
    count = min(len(side), depth + max(depth, round(MAX_EARLY * len(side))))
    low = np.sort(side)[:count]
    widths = low[depth - 1 :] - low[: count - depth + 1]
    first = int((widths <= width_ns).argmax())  # 0, too, where none is
    return low[first : first + depth]

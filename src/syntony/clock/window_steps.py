"""Detect a clock step inside a window: both directions shift by the same amount. Pure.

A queue shifts only one direction, or both by different amounts.
"""

from __future__ import annotations

import numpy as np

from syntony.clock.envelope import lowest
from syntony.clock.samples import MIN_PROBES, Clouds, Floats

STEP_NS = 1_000.0
STEP_SIGMAS = 8.0
"""A shift this large (both) with the round trip unchanged is a clock's step."""
AT_ONCE = 0.01
"""Both directions must shift within this share of the window."""
HALF_DEPTH = 3
"""Order statistic used as the floor of half a window."""


def stepped_inside(clouds: Clouds, slope: float, sigma: float) -> bool:
    """Whether the points of a window show a clock step within it.

    Args:
        clouds: one window.
        slope: predicted drift.
        sigma: 1-sigma of that.
    """
    heights = clouds.heights(slope)
    return _halves_shift(clouds, heights, sigma) or _parted(clouds, heights, sigma)


def _halves_shift(clouds: Clouds, heights: Floats, sigma: float) -> bool:
    """Whether the floors of both halves of the window differ, by as much in both directions."""
    late = clouds.t > 0
    shifts, scatter_ns = [], 0.0
    for part, sign in ((slice(0, clouds.forward), 1.0), (slice(clouds.forward, None), -1.0)):
        halves = [heights[part][~late[part]], heights[part][late[part]]]
        if min(map(len, halves)) < HALF_DEPTH:
            return False
        lows = [lowest(half, HALF_DEPTH) for half in halves]
        if abs(lows[1] - lows[0]) <= STEP_NS:  # one direction is enough to say no
            return False
        scatter_ns += sum(low - float(half.min()) for low, half in zip(lows, halves, strict=True))
        shifts.append(sign * (lows[1] - lows[0]))
    least_ns = max(STEP_NS, STEP_SIGMAS * (sigma * clouds.span_ns / 2 + scatter_ns))
    return shifts[0] * shifts[1] > 0 and min(map(abs, shifts)) > least_ns


def _parted(clouds: Clouds, heights: Floats, sigma: float) -> bool:
    """Whether from one instant on all probes of one direction are slower and of the other faster.

    Finds steps larger than all delays anywhere in the window, also with so few probes after them
    that floors would take these for wrong stamps.
    """
    least_ns = max(STEP_NS, STEP_SIGMAS * sigma * clouds.span_ns)
    ahead, behind = slice(0, clouds.forward), slice(clouds.forward, None)
    for sign in (1.0, -1.0):
        there = _cut(clouds.t[ahead], sign * heights[ahead], least_ns)
        if there is None:
            continue
        back = _cut(clouds.t[behind], -sign * heights[behind], least_ns)
        if back is None:
            continue
        if max(there[0], back[0]) - min(there[1], back[1]) <= AT_ONCE * clouds.span_ns:
            return True
    return False


def _cut(t: Floats, values: Floats, least: float) -> tuple[float, float] | None:
    """Between which instants one direction rises for good, by more than `least`; None: nowhere."""
    order = np.argsort(t, kind="stable")
    t, values = t[order], values[order]
    highest = np.maximum.accumulate(values)[MIN_PROBES - 1 : -MIN_PROBES]
    lowest_later = np.minimum.accumulate(values[::-1])[::-1][
        MIN_PROBES : len(values) - MIN_PROBES + 1
    ]
    rises = lowest_later - highest
    if not len(rises) or float(rises.max()) <= least:
        return None
    at = MIN_PROBES + int(np.argmax(rises))
    return float(t[at - 1]), float(t[at])

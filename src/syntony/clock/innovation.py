"""Checks a pair's model by its innovations: noise above the claimed sigma, and ramps of drift.

The Kalman filter of a pair assumes a drift that walks at random and windows that are worth what
they claim. Where either is wrong, predictions miss by more than expected, window after
window.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from syntony.clock.envelope import lowest
from syntony.clock.samples import Clouds

FOLLOW = 0.25
"""Share by which the mean of normalised innovations follows a new one: four windows."""
MOST_NIS = 400.0
"""One window counts for at most this, (20 sigma)², so that a step is forgotten in a dozen."""
EXPLAINED_NIS = 2.0
"""Mean up to which chance explains it (95 % of means of as many windows)."""
RAMP_SIGMAS = 4.0
"""A change of slope between two windows without common probes beyond this is no noise."""
RAMP_MEMORY_NS = 20e9
"""Time for which a past ramp is still assumed possible: fans and loads change within seconds."""
THIRDS = 3
FLOOR_PROBES = 3
"""Number of lowest probes from which the floor of a third of a window is estimated."""
MOST_RAMP = 2_000e-18
"""2 ppm/s: a larger ramp is not a clock, but two queues that happen to change alike."""
WARMING = 200e-18
"""Clocks that warm and cool by 0.1 ppm/s: possible until windows have shown otherwise."""
LEAST_RAMP = 10e-18
"""10 ppb/s: slower ramps are in the random walk already."""


class Innovations:
    """Mean of normalised innovations squared (NIS) of the offset; 1 where the model is right."""

    def __init__(self) -> None:
        self._mean = 1.0

    def take(self, innovation_ns: float, variance: float) -> None:
        """An offset missed its prediction by this much, where `variance` was expected."""
        nis = min(innovation_ns * innovation_ns / variance, MOST_NIS)
        self._mean += FOLLOW * (nis - self._mean)

    @property
    def factor(self) -> float:
        """Factor by which variances exceed the model's, at least 1."""
        return self._mean if self._mean > EXPLAINED_NIS else 1.0


class _Slope(NamedTuple):
    """A window's own slope and its variance."""

    at_ns: int
    slope: float
    variance: float


class DriftRamp:
    """Rate of a one-sided change of drift (temperature), per ns: measured, and still possible."""

    def __init__(self) -> None:
        self.seen = 0.0
        """Innovation beyond noise, in the last windows."""
        self._possible = 0.0
        """The ramp that the windows so far do not exclude: large after two, none after ten."""
        self._span_ns = 0.0
        self._taken_ns: int | None = None
        self._first: _Slope | None = None
        self._slopes: deque[_Slope] = deque()
        """The newest that shares no probes with the next one, and those after it."""

    def take(self, clouds: Clouds, slope: float, slope_var: float) -> None:
        """A window: how it bends, and its slope beside those of windows without its probes."""
        at_ns = clouds.ref_ns
        since_ns = self._since_ns(at_ns)
        self._span_ns, self._taken_ns = clouds.span_ns, at_ns
        found = max(_bend(clouds, slope), self._turn(_Slope(at_ns, slope, slope_var)))
        self.seen = max(found, self.seen * math.exp(-since_ns / RAMP_MEMORY_NS))

    def _turn(self, new: _Slope) -> float:
        found = 0.0
        if self._first is None:
            self._first, self._possible = new, WARMING
        while len(self._slopes) > 1 and new.at_ns - self._slopes[1].at_ns >= self._span_ns:
            self._slopes.popleft()
        if self._slopes and new.at_ns - self._slopes[0].at_ns >= self._span_ns:
            change, sigma, since_ns = _change(self._slopes[0], new)
            found = max(change - RAMP_SIGMAS * sigma, 0.0) / since_ns
            change, sigma, since_ns = _change(self._first, new)
            self._possible = min(self._possible, change / since_ns)
        self._slopes.append(new)
        return found

    @property
    def ramp(self) -> float:
        """1-sigma that the bound must include."""
        ramp = max(self.seen, self._possible)
        return ramp if ramp >= LEAST_RAMP else 0.0

    def line_error_ns(self, at_ns: int) -> float:
        """1-sigma of the offset because a window's points lie on a parabola, not on a line.

        The middle of a parabola is ramp·span²/24 from its best line, its lower edge up to twice.
        """
        return self.ramp * (self._span_ns**2 / 24 + self._since_ns(at_ns) ** 2 / 2)

    def line_turn(self, at_ns: int) -> float:
        """1-sigma of the drift, half a window after that instant."""
        return self.ramp * (self._span_ns / 2 + self._since_ns(at_ns))

    def _since_ns(self, at_ns: int) -> int:
        return 0 if self._taken_ns is None else at_ns - self._taken_ns


def _change(old: _Slope, new: _Slope) -> tuple[float, float, int]:
    """By how much the slope has changed, 1-sigma of that, and in which time."""
    sigma = math.sqrt(old.variance + new.variance)
    return abs(new.slope - old.slope), sigma, new.at_ns - old.at_ns


def _bend(clouds: Clouds, slope: float) -> float:
    """Ramp that both directions' floors show within one window beyond their noise, per ns.

    A clock's bend takes both away from the line by as much, one up and one down; queues do not.
    """
    there_ns, back_ns, _ = _bends(clouds, slope)
    if there_ns * back_ns <= 0:
        return 0.0
    shared_ns = (there_ns + back_ns) / 2
    ramp = shared_ns * (THIRDS / clouds.span_ns) ** 2
    straight = clouds._replace(y=clouds.y - ramp * clouds.t**2 / 2)
    there_ns, back_ns, scatter_ns = _bends(straight, slope)
    unlike_ns = abs(there_ns - back_ns) + RAMP_SIGMAS * scatter_ns
    # Most of it is left after that, or it is not theirs.
    return abs(ramp) if unlike_ns < abs(shared_ns) / 2 and abs(ramp) < MOST_RAMP else 0.0


def _bends(clouds: Clouds, slope: float) -> tuple[float, float, float]:
    """Floors of the outer thirds over that of the middle one, as either direction says of the
    clocks, and the scatter of the probes that they are estimated from."""
    heights = clouds.heights(slope)
    third = np.minimum(((clouds.t / clouds.span_ns + 0.5) * THIRDS).astype(np.intp), THIRDS - 1)
    bends, scatter_ns = [], 0.0
    for part, sign in ((slice(0, clouds.forward), 1.0), (slice(clouds.forward, None), -1.0)):
        thirds = [heights[part][third[part] == number] for number in range(THIRDS)]
        if min(map(len, thirds)) < FLOOR_PROBES:
            return 0.0, 0.0, 0.0
        lows = [lowest(each, FLOOR_PROBES) for each in thirds]
        rises = [low - float(each.min()) for low, each in zip(lows, thirds, strict=True)]
        scatter_ns = math.hypot(scatter_ns, rises[0], 2 * rises[1], rises[2])
        bends.append(sign * (lows[0] - 2 * lows[1] + lows[2]))
    return bends[0], bends[1], scatter_ns

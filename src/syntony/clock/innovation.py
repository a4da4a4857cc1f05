"""What a pair's innovations say of its model: noise beyond the claims, and a drift that ramps.

The Kalman filter of a pair assumes a drift that walks at random and windows that are worth what
they claim. Where either is wrong, predictions miss by more than expected, window after
window.
"""

from __future__ import annotations

import math
from collections import deque

FOLLOW = 0.25
"""Share by which the mean of normalised innovations follows a new one: four windows."""
MOST_NIS = 400.0
"""One window counts for at most this, (20 sigma)², so that a step is forgotten in a dozen."""
EXPLAINED_NIS = 2.0
"""Mean up to which chance explains it (95 % of means of so many windows)."""
RAMP_SIGMAS = 4.0
"""A change of slope between two windows without common probes beyond this is no noise."""
RAMP_MEMORY_NS = 20e9
"""How long a ramp that is no longer seen is reckoned with: fans and loads turn within seconds."""
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
        """By how much variances are larger than the model says, at least 1."""
        return self._mean if self._mean > EXPLAINED_NIS else 1.0


class DriftRamp:
    """How fast the drift was last seen to change one way (temperature), per ns."""

    def __init__(self) -> None:
        self.ramp = 0.0
        self._span_ns = 0.0
        self._seen: deque[tuple[int, float, float]] = deque()
        """Windows' middle, slope and its variance: the newest that shares no probes with the next
        one, and those after it."""

    def take(self, ref_ns: int, span_ns: float, slope: float, slope_var: float) -> None:
        """A window's own slope; compared with that of the last window that shares no probes."""
        if math.isinf(slope_var):
            return
        while len(self._seen) > 1 and ref_ns - self._seen[1][0] >= span_ns:
            self._seen.popleft()
        if self._seen and ref_ns - self._seen[0][0] >= span_ns:
            then_ns, before, before_var = self._seen[0]
            noise = RAMP_SIGMAS * math.sqrt(slope_var + before_var)
            seen = max(abs(slope - before) - noise, 0.0) / (ref_ns - then_ns)
            last_ns = self._seen[-1][0]
            self.ramp = max(seen, self.ramp * math.exp((last_ns - ref_ns) / RAMP_MEMORY_NS))
            if self.ramp < LEAST_RAMP:
                self.ramp = 0.0
        self._span_ns = span_ns
        self._seen.append((ref_ns, slope, slope_var))

    @property
    def line_error_ns(self) -> float:
        """1-sigma of a window's offset because its points lie on a parabola, not on a line.

        The middle of a parabola is ramp·span²/24 from its best line, its lower edge up to twice.
        """
        return self.ramp * self._span_ns**2 / 24

    @property
    def line_turn(self) -> float:
        """1-sigma of the drift, a window after the one that it was measured in."""
        return self.ramp * self._span_ns / 2

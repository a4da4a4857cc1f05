"""What a pair's innovations say of its model: noise beyond the claims, and a drift that ramps.

The Kalman filter of a pair assumes a drift that walks at random and windows that are worth what
they claim. Where either is wrong, predictions miss by more than expected, window after
window.
"""

from __future__ import annotations

import math

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
LEAST_RAMP_PPB_PER_S = 10.0
"""Slower ramps are in the random walk already."""


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
        self._at_ns = 0
        self._slope = 0.0
        self._slope_var = math.inf

    def take(self, ref_ns: int, span_ns: float, slope: float, slope_var: float) -> None:
        """A window's own slope; compared with that of the last window that shares no probes."""
        since_ns = float(ref_ns - self._at_ns)
        if math.isinf(slope_var) or (since_ns < span_ns and not math.isinf(self._slope_var)):
            return
        if not math.isinf(self._slope_var):
            noise = RAMP_SIGMAS * math.sqrt(slope_var + self._slope_var)
            seen = max(abs(slope - self._slope) - noise, 0.0) / since_ns
            kept = self.ramp * math.exp(-since_ns / RAMP_MEMORY_NS)
            self.ramp = max(seen, kept)
            if self.ramp < LEAST_RAMP_PPB_PER_S * 1e-18:
                self.ramp = 0.0
        self._span_ns, self._at_ns = span_ns, ref_ns
        self._slope, self._slope_var = slope, slope_var

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

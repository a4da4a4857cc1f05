"""Robust trend of a slow quantity: a module's temperature, the light that it receives."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from syntony.model import HOUR_NS

MAX_SAMPLES = 64
"""Number of samples of a trend; with one in 15 minutes, 16 hours."""
SPACING_NS = 900_000_000_000
LEAST = 8
"""Minimum samples of a trend: two hours."""
_MAD_TO_SIGMA = 1.4826


class Slope(NamedTuple):
    """A robust line through the samples."""

    per_hour: float
    now: float
    """The line's value at the newest sample."""
    scatter: float
    """1-sigma of the samples about the line."""
    hours: float
    """Time span of the samples."""

    @property
    def significant(self) -> bool:
        """The change over the whole time is beyond three sigmas of scatter."""
        return abs(self.per_hour) * self.hours > 3 * self.scatter > 0 or (
            self.scatter == 0 and self.per_hour != 0
        )

    def hours_to(self, limit: float) -> float | None:
        """When the line crosses `limit`; None if it goes the other way, is past it or is level."""
        away = limit - self.now
        if not self.significant or away * self.per_hour <= 0:
            return None
        return away / self.per_hour


class Trend:
    """Samples of one quantity, thinned to one in `SPACING_NS`."""

    def __init__(self, spacing_ns: int = SPACING_NS) -> None:
        self._spacing_ns = spacing_ns
        self._samples: deque[tuple[int, float]] = deque(maxlen=MAX_SAMPLES)

    def add(self, at_ns: int, value: float) -> None:
        """Add a measurement; those closer than the spacing are dropped."""
        if not self._samples or at_ns - self._samples[-1][0] >= self._spacing_ns:
            self._samples.append((at_ns, value))

    def slope(self) -> Slope | None:
        """The Theil–Sen line (median of the slopes of all pairs: a third of the samples may be
        wild); None before there are enough samples."""
        return theil_sen(list(self._samples)) if len(self._samples) >= LEAST else None


def theil_sen(samples: Sequence[tuple[int, float]]) -> Slope:
    """A robust line through (instant ns, value) samples, at least two of them at distinct times."""
    slopes = [
        (late - early) * HOUR_NS / (t1 - t0)
        for (t0, early), (t1, late) in combinations(samples, 2)
        if t1 != t0
    ]
    per_hour = statistics.median(slopes)
    last_ns = samples[-1][0]
    at_last = [value + per_hour * (last_ns - at) / HOUR_NS for at, value in samples]
    now = statistics.median(at_last)
    scatter = _MAD_TO_SIGMA * statistics.median(abs(value - now) for value in at_last)
    return Slope(per_hour, now, scatter, (last_ns - samples[0][0]) / HOUR_NS)

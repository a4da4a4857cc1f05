"""Detect paths of one pair that disagree, by rotating source ports; correct them by majority.

All paths of a pair of NICs share one pair of clocks, so they must give one offset. Where one path
is shorter in one direction only, the lowest forward and the lowest reverse probe come from
different paths, and half the difference is taken for an offset. Each path by itself gives an
offset; an asymmetric path gives another one than the others, and the median of at least three is
right as long as most of them are symmetric.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import NamedTuple

from syntony.clock.robust import MAD_TO_SIGMA

MIN_PATHS = 3
"""Fewest paths: of two that disagree the wrong one is unknown."""
MIN_WINDOWS = 8
"""Minimum windows of a path before it counts: half a minute."""
FOLLOW = 0.1
"""Share of a difference by which a path's floors follow a window's, both ways alike."""
LEAST_NS = 30.0
NOISES = 5.0
"""Paths disagree when one is further from the median than this, and than so many times the noise
of the paths' own windows (both): what kernel stamps scatter is no disagreement."""
_MEDIAN_LOSS = 1.2533
"""1-sigma of a median over that of a mean of as many (√(π/2))."""
FORGET_WINDOWS = 60
"""A path without data for this many windows is forgotten."""


class PathDisagreement(NamedTuple):
    """How far the paths of one pair contradict each other."""

    paths: int
    """Number of paths that count."""
    spread_ns: float
    """The offset of the path furthest from the median, 0 where they agree within their noise."""
    correction_ns: float
    """To be added to the offset of all paths together."""
    sigma_ns: float
    """1-sigma of the correction."""


AGREED = PathDisagreement(0, 0.0, 0.0, 0.0)


class _Path:
    def __init__(self, forward_ns: float, reverse_ns: float) -> None:
        self.forward_ns = forward_ns
        self.reverse_ns = reverse_ns
        self.noise_var = 0.0
        self.windows = 1
        self.missed = 0

    @property
    def offset_ns(self) -> float:
        return (self.forward_ns - self.reverse_ns) / 2

    def follow(self, forward_ns: float, reverse_ns: float) -> None:
        self.windows += 1
        self.missed = 0
        # The mean of the first windows, then an average that forgets.
        share = max(FOLLOW, 1 / self.windows)
        off = (forward_ns - reverse_ns) / 2 - self.offset_ns
        self.forward_ns += share * (forward_ns - self.forward_ns)
        self.reverse_ns += share * (reverse_ns - self.reverse_ns)
        self.noise_var += share * (off * off - self.noise_var)

    @property
    def noise_ns(self) -> float:
        """1-sigma of `offset_ns`: that of one window, averaged over those it remembers."""
        share = max(FOLLOW, 1 / self.windows)
        return math.sqrt(self.noise_var * share / (2 - share))


class PathBalance:
    """The paths of one pair over many windows."""

    def __init__(self) -> None:
        self._paths: dict[int, _Path] = {}

    def take(self, there: Mapping[int, float], back: Mapping[int, float]) -> PathDisagreement:
        """One window.

        Args:
            there: path number to the least delay of its forward probes, ns up to a constant shared
                by all, on the relation of all paths together.
            back: the same of the reverse ones.
        """
        for number in there.keys() & back.keys():
            known = self._paths.get(number)
            if known is None:
                self._paths[number] = _Path(there[number], back[number])
            else:
                known.follow(there[number], back[number])
        for number in list(self._paths.keys() - (there.keys() & back.keys())):
            self._paths[number].missed += 1
            if self._paths[number].missed > FORGET_WINDOWS:
                del self._paths[number]
        return self._judge()

    def _judge(self) -> PathDisagreement:
        voices = [path for path in self._paths.values() if path.windows >= MIN_WINDOWS]
        if len(voices) < MIN_PATHS:
            return PathDisagreement(len(voices), 0.0, 0.0, 0.0)
        # A handful of numbers: numpy would take ten times as long.
        median = statistics.median(path.offset_ns for path in voices)
        away = [abs(path.offset_ns - median) for path in voices]
        noise_ns = statistics.median(path.noise_ns for path in voices)
        spread_ns = max(away)
        if spread_ns <= max(LEAST_NS, NOISES * noise_ns):
            return PathDisagreement(len(voices), 0.0, 0.0, 0.0)
        scatter_ns = max(MAD_TO_SIGMA * statistics.median(away), noise_ns)
        sigma_ns = _MEDIAN_LOSS * scatter_ns / math.sqrt(len(voices))
        return PathDisagreement(len(voices), spread_ns, median, sigma_ns)

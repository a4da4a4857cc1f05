"""Round trips of probed pairs of NICs, compared with one another. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from syntony.model import MS
from syntony.traffic.pairs import Pair

LOOK_NS = 500 * MS
"""Interval of round-trip readings: the same as of samples of all flows."""
LOOKS = 4
"""Readings that must agree: two seconds, so that a short queue does not count."""


class RoundTripExcess(NamedTuple):
    """How much longer one pair's round trip is than another's, over the last readings."""

    least_ns: int
    most_ns: int


class RoundTrips:
    def __init__(self) -> None:
        self._looks: dict[Pair, deque[int]] = {}

    def take(self, shortest: Mapping[Pair, int]) -> None:
        """Take a reading; a pair that is missing from it is not answered, and starts again.

        Args:
            shortest: of each pair, over its source ports, in ns.
        """
        looks = {pair: self._looks.get(pair) or deque(maxlen=LOOKS) for pair in shortest}
        for pair, rtt_ns in shortest.items():
            looks[pair].append(rtt_ns)
        self._looks = looks

    def newest_ns(self, pair: Pair) -> int | None:
        """The newest round trip; None if not answered at the last reading."""
        looks = self._looks.get(pair)
        return looks[-1] if looks else None

    def fastest(self, pairs: Iterable[Pair]) -> Pair | None:
        """The pair with the shortest round trip at the last reading."""
        known = {pair: looks[-1] for pair in pairs if (looks := self._looks.get(pair))}
        return min(known, key=known.__getitem__, default=None)

    def excess(self, pair: Pair, other: Pair) -> RoundTripExcess | None:
        """Of `pair` over `other`; None before both have been answered at `LOOKS` looks in a row."""
        mine, its = self._looks.get(pair, ()), self._looks.get(other, ())
        if len(mine) < LOOKS or len(its) < LOOKS:
            return None
        each = [a - b for a, b in zip(mine, its, strict=True)]
        return RoundTripExcess(min(each), max(each))

"""The data that ranks send and the results they must get, for checking. Pure.

Integers modulo 2^32: sums are exact in any order, and one wrong bit anywhere stays wrong. Every
(rank, step) has its own odd weight on a pseudo-random pattern that shifts with the step, so a
chunk that is stale, missing, doubled or of the wrong rank shows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_WEIGHT_STEP = 0x9E3779B1
"""Odd, about 2^32 over the golden ratio (Knuth, multiplicative hashing): weights spread out."""
_SEED = 20_011


class Content:
    """The data of a job with `ranks` ranks and `elements` 32-bit numbers per rank and step."""

    def __init__(self, ranks: int, elements: int) -> None:
        self.ranks = ranks
        self.elements = elements
        draw = np.random.default_rng(_SEED)
        # Twice the length: a rolled pattern is a slice, without a copy.
        once = draw.integers(0, 1 << 32, elements, dtype=np.uint32)
        self._pattern = np.concatenate([once, once])

    def contribution(self, rank: int, step: int) -> NDArray[np.uint32]:
        """The input of `rank` to an all-reduce. (elements,)"""
        return self._rolled(step) * _weight(rank, step)

    def sum(self, step: int) -> NDArray[np.uint32]:
        """The result that every rank must get. (elements,)"""
        total = np.uint32(sum(int(_weight(rank, step)) for rank in range(self.ranks)) % (1 << 32))
        return self._rolled(step) * total

    def send(self, src: int, dst: int, step: int) -> NDArray[np.uint32]:
        """The data that `src` sends to `dst` in an all-to-all. (elements // ranks,)"""
        share = self._rolled(step)[: self.elements // self.ranks]
        return share * _weight(src * self.ranks + dst, step)

    def _rolled(self, step: int) -> NDArray[np.uint32]:
        at = (step * 127) % self.elements
        return self._pattern[at : at + self.elements]


def count_wrong(found: NDArray[np.uint32], wanted: NDArray[np.uint32]) -> int:
    """How many elements differ."""
    return int(np.count_nonzero(found != wanted))


def _weight(number: int, step: int) -> np.uint32:
    return np.uint32(((number + 1) * _WEIGHT_STEP + step * 2) % (1 << 32) | 1)

"""Plans tests of pairs as perfect matchings, so that every host is busy in every round. Pure.

All pairs take N−1 rounds; a sample of about log₂ N rounds finds a bad host as surely, since it is
bad with every partner, and says of a bad path only what chance shows.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int32]
_Class = TypeVar("_Class", bound=Hashable)
SLOW_MADS = 5.0
"""A pair is slow beyond so many median absolute deviations from its class's median."""
SLOW_SHARE = 0.1
"""And beyond this share of the median: a fleet that is all alike has no deviation to speak of."""
MIN_CLASS = 3
"""Minimum number of pairs of a class for a comparison."""


def rounds_of(hosts: int) -> int:
    """How many rounds let every host meet every other."""
    return max(0, hosts - 1 + hosts % 2)


def matchings(hosts: int, rounds: Sequence[int] | None = None) -> Ints:
    """Perfect matchings of hosts 0…N−1, every pair in one of the N−1 rounds (circle method).

    Args:
        hosts: N.
        rounds: which of the N−1 (N for an odd N); all by default.

    Returns:
        (rounds, pairs, 2), the smaller number first. With an odd N one host rests in every round
        and is left out.
    """
    import numpy as np
    from numpy.lib.stride_tricks import sliding_window_view

    even = hosts + hosts % 2
    if even < 2:
        return np.empty((0, 0, 2), dtype=np.int32)
    turn = np.arange(even - 1, dtype=np.int32) if rounds is None else np.array(rounds, np.int32)
    half = even // 2 - 1
    # Three turns of the table one after the other: every round is then a slice of it, and nothing
    # has to be divided.
    table = np.tile(np.arange(even - 1, dtype=np.int32), 3)
    ahead = sliding_window_view(table, half)[turn + 1] if half else table[:0].reshape(1, 0)
    behind = sliding_window_view(table[::-1], half)[len(table) - even - turn + 1] if half else ahead
    pairs = np.empty((len(turn), even // 2, 2), dtype=np.int32)
    pairs[:, 0, 0], pairs[:, 0, 1] = turn, even - 1
    np.minimum(ahead, behind, out=pairs[:, 1:, 0])
    np.maximum(ahead, behind, out=pairs[:, 1:, 1])
    if hosts % 2:  # pairs with the placeholder that makes N even
        pairs = pairs[:, 1:]
    return pairs


def sample_rounds(hosts: int) -> int:
    """⌈log₂ N⌉, and at most all."""
    return min(rounds_of(hosts), max(1, math.ceil(math.log2(max(2, hosts)))))


def sampled(hosts: int, count: int, seed: int) -> Ints:
    """`count` of the matchings of hosts in an order drawn by `seed`: no pair comes twice.

    Returns:
        (rounds, pairs, 2).
    """
    import numpy as np

    draw = np.random.default_rng(seed)
    total = rounds_of(hosts)
    chosen = draw.choice(total, size=min(count, total), replace=False)
    order = draw.permutation(hosts).astype(np.int32)
    pairs: Ints = order[matchings(hosts, [int(number) for number in chosen])]
    pairs.sort(axis=2)
    return pairs


def slow_pairs(
    values: Mapping[tuple[str, str], float], classes: Mapping[tuple[str, str], _Class]
) -> dict[tuple[str, str], float]:
    """Pairs that take longer than others of their class, and the class's median.

    Args:
        values: pair to latency, in any unit (give a bandwidth as its inverse).
        classes: pair to what it is compared with: its number of hops, its rail. Pairs of a class
            with fewer than `MIN_CLASS` are never slow.
    """
    by_class: dict[_Class, list[tuple[str, str]]] = defaultdict(list)
    for pair in values:
        by_class[classes[pair]].append(pair)
    slow = {}
    for pairs in by_class.values():
        if len(pairs) < MIN_CLASS:
            continue
        limit, median = limit_of([values[pair] for pair in pairs])
        slow.update({pair: median for pair in pairs if values[pair] > limit})
    return slow


def limit_of(values: Sequence[float]) -> tuple[float, float]:
    """The largest value that is still usual among these, and their median."""
    median = statistics.median(values)
    spread = statistics.median(abs(value - median) for value in values)
    return median + max(SLOW_MADS * spread, SLOW_SHARE * abs(median)), median

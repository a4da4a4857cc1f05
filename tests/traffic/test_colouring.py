"""The reference colouring: Kőnig's theorem on random flows that come and go."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from syntony.traffic.colouring import FAR, NONE, ChainColouring, Numbers

LEAVES, FLOWS = 5, 60
Ends = dict[int, tuple[int, int]]


def numbers(*values: int) -> Numbers:
    return np.array(values, dtype=np.int32)


def join(colouring: ChainColouring, ends: Ends, reach: int = FAR) -> int:
    ups, downs = zip(*ends.values(), strict=True)
    return colouring.add(numbers(*ends), numbers(*ups), numbers(*downs), reach)


def colours(colouring: ChainColouring) -> list[int]:
    return [int(colour) for colour in colouring.colours()]


def ways_used(colouring: ChainColouring, ends: Ends) -> Counter[tuple[int, int, int]]:
    """Flows by side, leaf and colour."""
    chosen = colours(colouring)
    return Counter(
        (side, leaf, chosen[flow])
        for flow, pair in ends.items()
        for side, leaf in enumerate(pair)
        if chosen[flow] != NONE
    )


@pytest.mark.parametrize("seed", range(12))
def test_every_flow_gets_a_way_and_no_way_more_than_its_share(seed: int) -> None:
    draw = random.Random(f"colouring {seed}")
    ways = draw.randint(1, 4)
    colouring = ChainColouring(LEAVES, ways, FLOWS)
    ends, most = Ends(), Counter[tuple[int, int]]()
    for flow in range(FLOWS):
        before = colours(colouring)
        pair = draw.randrange(LEAVES), draw.randrange(LEAVES)
        moved = join(colouring, {flow: pair})
        after = colours(colouring)
        assert moved == sum(before[each] != after[each] for each in ends)
        ends[flow] = pair
        # A leaf keeps the nodes that its busiest moment needed.
        most |= Counter(end for each in ends.values() for end in enumerate(each))
        assert all((colour != NONE) == (k in ends) for k, colour in enumerate(after))
        used = ways_used(colouring, ends)
        assert all(here <= -(-most[side, leaf] // ways) for (side, leaf, _), here in used.items())
        if draw.random() < 0.3:
            gone = draw.choice(sorted(ends))
            colouring.remove(numbers(gone))
            del ends[gone]


@pytest.mark.parametrize(("reach", "moved"), [(0, 0), (1, 0), (2, 2), (FAR, 2)])
def test_no_more_others_are_moved_than_allowed(reach: int, moved: int) -> None:
    colouring = ChainColouring(3, 2, 5)
    for flow, pair in enumerate([(0, 0), (1, 0), (2, 1), (2, 2)]):
        join(colouring, {flow: pair})
    assert colours(colouring) == [0, 1, 0, 1, NONE]
    # Leaf 1 is free on way 0 only, leaf 1 below on way 1 only; either way two have to exchange.
    assert join(colouring, {4: (1, 1)}, reach) == moved
    assert (colours(colouring)[4] != NONE) == (moved > 0)


@pytest.mark.parametrize("flow", [(0, 0, 0), (-1, 0, 0), (3, 0, 0), (1, 3, 0), (1, 0, -1)])
def test_a_flow_comes_once_and_from_a_leaf_that_exists(flow: tuple[int, int, int]) -> None:
    colouring = ChainColouring(3, 2, 3)
    join(colouring, {0: (2, 2)})
    number, up, down = flow
    with pytest.raises(ValueError, match="flow"):
        join(colouring, {number: (up, down)})
    join(colouring, {2: (0, 0)})


@pytest.mark.parametrize("flow", [-1, 1, 3])
def test_only_a_flow_that_is_there_can_leave(flow: int) -> None:
    colouring = ChainColouring(3, 2, 3)
    join(colouring, {0: (0, 0), 2: (0, 0)})
    with pytest.raises(ValueError, match="no flow"):
        colouring.remove(numbers(flow))
    colouring.remove(numbers(0, 2))
    with pytest.raises(ValueError, match="no flow"):
        colouring.remove(numbers(0))

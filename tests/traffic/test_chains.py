"""Chains of moves on problems so small that the right answer is plain."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.traffic import chains
from syntony.traffic.chains import Board
from syntony.traffic.problem import DEAD, PlacementProblem


def board(ways: list[list[int]], capacity: list[float]) -> Board:
    """Flows of demand 1; each candidate is one link. Every flow starts at its first one."""
    first = np.cumsum([0, *map(len, ways)])
    problem = PlacementProblem(
        first=first,
        ways=np.array([[link] for each in ways for link in each], dtype=np.int32),
        capacity=np.array(capacity),
        ideal_bps=np.ones(len(ways)),
        priority=np.zeros(len(ways), dtype=np.int8),
    )
    found = Board(problem)
    for flow in range(len(ways)):
        found.put(flow, int(first[flow]))
    return found


def links(found: Board, ways: list[list[int]]) -> list[int]:
    firsts = np.cumsum([0, *map(len, ways)])
    return [each[int(found.chosen[flow] - firsts[flow])] for flow, each in enumerate(ways)]


@pytest.mark.parametrize(("capacity", "moves"), [(1.0, 2), (2.0, 1), (3.0, 0), (0.5, 2)])
def test_a_link_is_relieved_until_it_is_full_and_no_further(capacity: float, moves: int) -> None:
    ways = [[0, 1, 2]] * 3
    found = board(ways, [capacity, capacity, capacity])
    found.settle()
    assert found.moves == moves
    assert DEAD not in found.chosen.tolist()


@pytest.mark.parametrize(("most", "placed"), [(1, [0, 0, 1]), (2, [1, 0, 2]), (100, [1, 0, 2])])
def test_a_chain_is_looked_for_at_so_many_links(
    most: int, placed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first flow takes the place of the third, which has another one."""
    monkeypatch.setattr(chains, "MAX_CHAIN", most)
    ways = [[0, 1], [0], [1, 2]]
    found = board(ways, [1.0, 1.0, 1.0])
    found.settle()
    assert links(found, ways) == placed

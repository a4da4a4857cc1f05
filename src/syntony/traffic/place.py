"""Placement: one path for each flow, so that the minimum rate is largest. Pure.

The demand of a flow is its ideal rate, which only its own ends limit. Flows are placed one after
the other where their links stay emptiest; then every link whose demand exceeds its capacity is
relieved by a chain of moves: a flow leaves it for a path that may overload one other link, which is
relieved the same way. On a leaf–spine fabric with equal flows such a chain is the alternating
(Kempe) chain of Kőnig's edge-colouring theorem, by which any traffic fits into a 1:1 fabric. Chains
end when no link is overloaded; if that is impossible, the worst link is relieved first (the minimum
rate), then the sum of the excess demand (the mean).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from syntony.traffic.chains import Board
from syntony.traffic.demand import Capacities, Flow
from syntony.traffic.problem import (
    DEAD,
    PlacementProblem,
    known_capacities,
    link_names,
    make_problem,
)

Choice = NDArray[np.int64]
"""Row of `Problem.ways` for each flow, or `DEAD`, (flows,)."""


class Placer(Protocol):
    """`solve`, or the native one of `syntony.io.fluid`."""

    def __call__(self, problem: PlacementProblem, start: Choice | None = None) -> Choice: ...


def place(flows: Sequence[Flow], capacities: Capacities) -> dict[str, str]:
    """A path for each flow that has a living one.

    Classes are placed from the highest down: a class never gives way to a lower one. Flows that
    have a path keep it unless moving them helps.

    Args:
        flows: all that share the links, anyone who owns them.
        capacities: of links, see `Capacities`.
    """
    links = link_names(flows)
    problem = make_problem(flows, links, known_capacities(links, capacities))
    chosen = solve(problem, current_choice(problem, flows))
    return {
        flow.flow_id: flow.paths[row - problem.first[number]].path_id
        for number, (flow, row) in enumerate(zip(flows, chosen.tolist(), strict=True))
        if row != DEAD
    }


def current_choice(problem: PlacementProblem, flows: Sequence[Flow]) -> Choice:
    """Current choice of each flow; `DEAD` if unknown."""
    chosen = np.full(len(flows), DEAD, dtype=np.int64)
    for number, flow in enumerate(flows):
        for place_of, path in enumerate(flow.paths):
            if path.path_id == flow.path_id:
                chosen[number] = problem.first[number] + place_of
                break
    return chosen


def solve(problem: PlacementProblem, start: Choice | None = None) -> Choice:
    """Choices for all flows.

    In a fabric of several tiers the outermost links are settled first, then those further in among
    the paths that are left, then all together: a chain through the lower tier alone finds its way
    where one that has to fit every tier at once finds none.

    Args:
        start: what to begin with: flows stay there unless moving them helps. None: nothing placed.
    """
    chosen, staged = start, problem
    for outer in range((problem.ways.shape[1] - 1) // 2):
        stage, delegate = _outer_links(staged, outer)
        if stage is None:
            continue
        of_class = _solve(stage, None if chosen is None else _delegated(chosen, delegate))
        staged = _narrowed(staged, of_class, delegate)
        chosen = _still_open(staged, chosen, of_class, delegate)
    if staged is not problem:
        chosen = _solve(staged, chosen)
    return _solve(problem, chosen)


def _solve(problem: PlacementProblem, start: Choice | None) -> Choice:
    """All tiers at once."""
    board = Board(problem)
    for priority in sorted(set(problem.priority.tolist())):
        mine = np.flatnonzero(problem.priority == priority)
        if start is not None:
            for flow in mine.tolist():
                if start[flow] != DEAD and board.alive(int(start[flow])):
                    board.put(flow, int(start[flow]))
        waiting = [flow for flow in mine.tolist() if board.chosen[flow] == DEAD]
        # The largest first, as in every packing; equal ones in their order.
        for flow in sorted(waiting, key=lambda f: -problem.ideal_bps[f]):
            row = board.emptiest(flow)
            if row != DEAD:
                board.put(flow, row)
        board.settle()
    return board.chosen


def _outer_links(
    problem: PlacementProblem, outer: int
) -> tuple[PlacementProblem | None, NDArray[np.int64]]:
    """The problem of one pair of stages, the `outer`-th link from both ends.

    Returns:
        It, or None if there is nothing to choose; and for each row the row that represents all
        rows of its flow with the same two links.
    """
    rows = len(problem.ways)
    owner = np.repeat(np.arange(problem.flows), np.diff(problem.first))
    pair = problem.ways[:, [outer, -1 - outer]]
    links = len(problem.capacity) + 1
    key = (owner * links + pair[:, 0] + 1) * links + pair[:, 1] + 1
    # Open rows come first, so that they stand for the others.
    order = np.lexsort((np.arange(rows), ~problem.open, key))
    _, where, inverse = np.unique(key[order], return_index=True, return_inverse=True)
    delegate = np.empty(rows, dtype=np.int64)
    delegate[order] = order[where][inverse]
    barred = np.ones(rows, dtype=bool)
    barred[delegate] = ~problem.open[delegate]
    if len(where) <= problem.flows:
        return None, delegate
    return replace(problem, ways=np.ascontiguousarray(pair), barred=barred), delegate


def _delegated(chosen: Choice, delegate: NDArray[np.int64]) -> Choice:
    return np.where(chosen == DEAD, DEAD, delegate[np.maximum(chosen, 0)])


def _narrowed(
    problem: PlacementProblem, of_class: Choice, delegate: NDArray[np.int64]
) -> PlacementProblem:
    """Only the rows for which the chosen ones stand."""
    owner = np.repeat(np.arange(problem.flows), np.diff(problem.first))
    return replace(problem, barred=~problem.open | (delegate != of_class[owner]))


def _still_open(
    staged: PlacementProblem, chosen: Choice | None, of_class: Choice, delegate: NDArray[np.int64]
) -> Choice | None:
    """Flows whose path is of the chosen class stay on it; the others are placed again."""
    if chosen is None:
        return None
    same = (chosen != DEAD) & (delegate[np.maximum(chosen, 0)] == of_class)
    return np.where(same & staged.alive[np.maximum(chosen, 0)], chosen, DEAD)

"""Placement: one path for each flow, so that the worst-off flow gets the most. Pure.

A flow wants what it could get if only its own ends were in its way. Flows go one after the other
to where their links stay emptiest; then every link that is asked for more than it has is relieved
by a chain of moves: a flow leaves it for a path that may crowd one other link, which is relieved
the same way. On a leaf–spine fabric with equal flows such a chain is the alternating (Kempe) chain
of Kőnig's edge-colouring theorem, by which any traffic fits into a 1:1 fabric. Chains end where
nothing is crowded; where that cannot be, the worst link is relieved first (the minimum rate), then
the sum of what does not fit (the mean).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from syntony.traffic.chains import Board
from syntony.traffic.demand import Capacities, Flow
from syntony.traffic.problem import (
    DEAD,
    Problem,
    known_capacities,
    link_names,
    make_problem,
)

Choice = NDArray[np.int64]
"""Row of `Problem.ways` for each flow, or `DEAD`, (flows,)."""


class Placer(Protocol):
    """`solve`, or the native one of `syntony.io.fluid`."""

    def __call__(self, problem: Problem, start: Choice | None = None) -> Choice: ...


def place(flows: Sequence[Flow], capacities: Capacities) -> dict[str, str]:
    """A path for each flow that has a living one.

    Classes are placed from the highest down: a class never gives way to a lower one. Flows that
    have a path keep it unless moving them helps.

    Args:
        flows: all that share the links, whoever owns them.
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


def current_choice(problem: Problem, flows: Sequence[Flow]) -> Choice:
    """Where the flows are now; `DEAD` where that is not known."""
    chosen = np.full(len(flows), DEAD, dtype=np.int64)
    for number, flow in enumerate(flows):
        for place_of, path in enumerate(flow.paths):
            if path.path_id == flow.path_id:
                chosen[number] = problem.first[number] + place_of
                break
    return chosen


def solve(problem: Problem, start: Choice | None = None) -> Choice:
    """Choices for all flows.

    Args:
        problem: what to place.
        start: what to begin with: flows stay there unless moving them helps. None: nothing placed.
    """
    board = Board(problem)
    for priority in sorted(set(problem.priority.tolist())):
        mine = np.flatnonzero(problem.priority == priority)
        kept = [] if start is None else [f for f in mine.tolist() if start[f] != DEAD]
        for flow in kept:
            if board.alive(int(start[flow])):  # type: ignore[index]
                board.put(flow, int(start[flow]))  # type: ignore[index]
        waiting = [flow for flow in mine.tolist() if board.chosen[flow] == DEAD]
        # The largest first, as in every packing; equal ones in their order.
        for flow in sorted(waiting, key=lambda f: -problem.wanted[f]):
            row = board.emptiest(flow)
            if row != DEAD:
                board.put(flow, row)
        board.settle()
    return board.chosen

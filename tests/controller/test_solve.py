"""When clocks are solved again, and that a mesh which is kept between solves follows its edges."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.clock.anchored import AnchoredSolver
from syntony.clock.laplacian import Laplacian
from syntony.clock.network import NetworkSolver
from syntony.controller.solve import SolveLoop
from syntony.model import ClockState, Edge, S


def edge(a: str, b: str, ref_ns: int = S) -> Edge:
    return Edge(
        a=a, b=b, ref_ns=ref_ns, theta_ns=7.0, drift_ppb=0.0, sigma_ns=10.0, drift_sigma_ppb=5.0,
        rtt_floor_ns=8_000.0, probes=80, mode="both", a_epoch=1, b_epoch=1,
    )  # fmt: skip


def test_a_clock_without_fleet_time_is_solved_at_once() -> None:
    loop = SolveLoop(AnchoredSolver(), bool)
    loop.take("h1", [edge("h1", "h2")])
    assert loop.due(0)
    loop.step(0)
    loop.take("h1", [edge("h1", "h2")])
    assert not loop.due(1)
    loop.take("h3", [edge("h3", "h1")])
    assert loop.due(1)
    loop.step(1)
    assert not loop.due(2)
    assert loop.due(1 + S)


def test_a_clock_that_the_fleet_no_longer_has_is_forgotten() -> None:
    """A NIC was exchanged, and its clock has another name now: the old one is not in holdover."""
    clocks = {"h1", "h2", "h2/eth1"}
    loop = SolveLoop(AnchoredSolver(), clocks.__contains__)
    loop.take("h1", [edge("h1", "h2"), edge("h1", "h2/eth1")])
    assert [each.node for each in loop.step(0)] == ["h1", "h2", "h2/eth1"]
    clocks.remove("h2/eth1")
    loop.take("h1", [edge("h1", "h2")])
    loop.step(S)
    loop.take("h1", [edge("h1", "h2", 20 * S)])
    assert [each.node for each in loop.step(20 * S)] == ["h1", "h2"]
    clocks.add("h2/eth1")
    states = {each.node: each.state for each in loop.step(21 * S)}
    assert states["h2/eth1"] is ClockState.HOLDOVER, "one that is there is not forgotten"


def parts(solver: NetworkSolver, now_ns: int, *edges: Edge) -> dict[str, str]:
    solver.update(edges, now_ns)
    return {line.node: line.component for line in solver.solve(now_ns)}


def test_parts_of_the_mesh_follow_its_edges() -> None:
    apart = {"h1": "h1", "h2": "h1", "h3": "h3", "h4": "h3"}
    solver = NetworkSolver()
    assert parts(solver, S, edge("h1", "h2"), edge("h3", "h4")) == apart
    assert parts(solver, 2 * S, edge("h1", "h2"), edge("h3", "h4")) == apart
    joined = parts(solver, 3 * S, edge("h2", "h3"))
    assert joined == dict.fromkeys(apart, "h1")
    assert parts(solver, 4 * S, edge("h3", "h4"), edge("h1", "h2")) == joined
    # Nobody has measured from h2 to h3 for long.
    assert parts(solver, 20 * S, edge("h1", "h2"), edge("h3", "h4")) == apart


def test_nothing_of_edges_that_cannot_be_is_solved_with() -> None:
    solver = NetworkSolver()
    absurd = [edge("h1", "h1"), edge("h1", "h9", 1 << 61), edge("h1", "h9", -(1 << 70))]
    assert parts(solver, S, *absurd, edge("h1", "h2")) == {"h1": "h1", "h2": "h1"}


@pytest.mark.parametrize("count", [30, 600])
def test_a_mesh_that_forgets_knows_no_more_than_a_new_one(count: int) -> None:
    rng = np.random.default_rng(count)
    orders = [rng.permutation(count) for _ in range(6)]
    plus, minus = np.concatenate(orders), np.concatenate([np.roll(each, 1) for each in orders])
    weights = rng.uniform(0.1, 1.0, len(plus))
    others = weights * np.where(plus < count // 2, 1.0, 1e-3)
    kept, fresh = Laplacian(plus, minus, count), Laplacian(plus, minus, count)
    kept.sigmas(weights)
    kept.forget()
    assert kept.sigmas(others).tolist() == fresh.sigmas(others).tolist()
    assert kept.spans(others).tolist() == fresh.spans(others).tolist()

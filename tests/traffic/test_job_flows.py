"""What is reported a job's flows to anyone who places them, and of the links that flows crowd."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.traffic.one_end import NOW, Host, here, there
from tests.traffic.test_flow_state import sample
from tests.traffic.test_place import leaf_spine

from syntony.agent.steering.orders import flows_report
from syntony.model.paths import FourTuple
from syntony.traffic.chains import FULL, Board
from syntony.traffic.connection import SubflowState
from syntony.traffic.flows import PLAIN_BPS, ReportedFlow, job_flows
from syntony.traffic.moving import MoveOrder, Moving
from syntony.traffic.place import current_choice
from syntony.traffic.policy import FailoverMode, Policy
from syntony.traffic.problem import (
    DEAD,
    PlacementProblem,
    known_capacities,
    link_names,
    make_problem,
)
from syntony.traffic.relocate import Relocation

MOVABLE = Policy(mode=FailoverMode.ACT, place=("tr*",))


def reported(host: Host, policy: Policy = MOVABLE) -> list[ReportedFlow]:
    return list(job_flows([host.conn], Relocation(policy, host.steering)))


def test_a_subflow_that_carries_is_told_with_whose_it_is() -> None:
    host = Host(MOVABLE)
    meter = host.conn.subflows[host.first].meter
    meter.tx_bps, meter.rx_bps, meter.windows = 7, 5, 3
    (flow,) = reported(host)
    assert flow == ReportedFlow("train", 7, "nic0", host.first, dialled=True, movable=True,
                           moving=False, tx_bps=7, rx_bps=5, windows=3)  # fmt: skip
    assert flow.traced, "however little it carries"
    assert flow.dscp == -1, "nobody has looked"
    assert flow.window_limited_ns == -1
    meter.take(sample(NOW, dscp=26, window_limited_ns=8))
    (flow,) = reported(host)
    (view,) = flows_report([flow], (), lambda *_: (), fleet_ns=0, join_port=0).flows
    assert (flow.dscp, view.dscp) == (26, 26)
    assert (flow.window_limited_ns, view.window_limited_ns) == (8, 8)


@pytest.mark.parametrize(
    ("change", "policy", "dialled", "movable"),
    [
        ({}, MOVABLE, True, True),
        ({"accepted": True}, MOVABLE, False, False),
        ({}, Policy(mode=FailoverMode.ACT, place=("other",)), True, False),
        ({}, Policy(mode=FailoverMode.ACT), True, False),
    ],
)
def test_who_dialled_may_move_it_if_the_job_has_asked_for_it(
    change: dict[str, Any], policy: Policy, dialled: bool, movable: bool
) -> None:
    (flow,) = reported(Host(policy, **change), policy)
    assert (flow.dialled, flow.movable) == (dialled, movable)


def test_what_does_not_carry_or_belongs_to_nobody_is_not_told() -> None:
    host = Host(MOVABLE)
    coming = host.add(FourTuple(here(1), 1, there(1), 2), "nic1")
    host.add(FourTuple("192.0.2.1", 1, there(0), 2), None)
    assert {flow.nic for flow in reported(host)} == {"nic0", "nic1"}, (
        "not of a NIC that is not ours"
    )
    coming.state = SubflowState.COMING
    assert {flow.nic for flow in reported(host)} == {"nic0"}
    host.conn.job = ""
    assert reported(host) == []


def test_a_flow_under_way_is_told_as_moving_and_one_on_standby_stays() -> None:
    host = Host(MOVABLE)
    host.add(FourTuple(here(1), 1, there(1), 2), "nic1")
    order = MoveOrder(move_id="m", token=7, flow=host.first, port=1, evidence="e")
    host.conn.moving["nic0", there(0)] = Moving(order, host.first, "nic0", NOW, 1)
    assert {flow.nic: flow.moving for flow in reported(host)} == {"nic0": True, "nic1": False}
    host.conn.subflows[host.first].slow.reason = host.steering._why(
        host.conn, ("nic0", there(0)), NOW
    )
    assert {flow.nic: flow.movable for flow in reported(host)} == {"nic0": False, "nic1": True}


@pytest.mark.parametrize(
    ("token", "tx", "rx", "traced"),
    [(0, PLAIN_BPS - 1, 0, False), (0, PLAIN_BPS - 1, 1, True), (0, 0, PLAIN_BPS, True),
     (9, 0, 0, True)],
)  # fmt: skip
def test_plain_flows_are_traced_from_a_rate_on(token: int, tx: int, rx: int, traced: bool) -> None:
    flow = ReportedFlow("j", token, "n", FourTuple("a", 1, "b", 2), dialled=True, movable=False,
                   moving=False, tx_bps=tx, rx_bps=rx, windows=1)  # fmt: skip
    assert flow.traced == traced


# --- crowded links ---


def board(
    flows: int, spines: int, on: list[int], *, first: str = ""
) -> tuple[Board, PlacementProblem, list[str]]:
    """Flows of one leaf to another, one a NIC, on these spines; a link carries one flow. Link
    number 0 is `first`."""
    told_flows = leaf_spine([(k, flows + k) for k in range(flows)], spines=spines, hosts=flows)
    links = sorted(link_names(told_flows), key=lambda name: name != first)
    problem = make_problem(told_flows, links, known_capacities(links, {}))
    made = Board(problem)
    for flow, spine in enumerate(on):
        made.put(flow, int(problem.first[flow]) + spine)
    return made, problem, links


def test_a_chain_that_would_crowd_another_link_is_taken_back() -> None:
    made, problem, links = board(3, 2, [0, 0, 1])
    before = made.chosen.copy()
    up = links.index("leaf0->spine0")
    step = (0, int(problem.first[0]) + 1)
    assert not made._carry_out(up, [step], FULL)
    assert made.chosen.tolist() == before.tolist()
    assert problem.load(made.chosen).tolist() == problem.load(before).tolist()
    assert made._carry_out(up, [step], 2.0), "where so much is allowed it is done"
    assert made.chosen[0] == step[1]
    assert not made._carry_out(up, [(1, int(problem.first[1])), (1, step[1])], 9.0), (
        "one flow twice"
    )


@pytest.mark.parametrize("flows", [2, 3, 4])
@pytest.mark.parametrize("spines", [2, 3])
@pytest.mark.parametrize("first", ["h0->leaf0", "leaf0->spine0", "spine1->leaf1"])
def test_from_wherever_flows_are_the_worst_link_is_as_good_as_any_placement(
    flows: int, spines: int, first: str
) -> None:
    """Compared with all placements that there are."""
    best = min(
        max(np.bincount(on, minlength=spines)) for on in product(range(spines), repeat=flows)
    )
    for on in product(range(spines), repeat=flows):
        made, problem, _ = board(flows, spines, list(on), first=first)
        made.settle()
        assert problem.load(made.chosen).max() == pytest.approx(best * problem.ideal_bps[0])


def test_flows_that_are_well_placed_stay_and_unknown_paths_are_not_placed() -> None:
    flows = leaf_spine([(0, 2), (1, 3)], spines=2, hosts=2)
    links = link_names(flows)
    problem = make_problem(flows, links, known_capacities(links, {}))
    assert current_choice(problem, flows).tolist() == [DEAD, DEAD]
    made, problem, _ = board(2, 2, [1, 0])
    placed = made.chosen.tolist()
    made.settle()
    assert made.chosen.tolist() == placed
    assert made.moves == 0

"""Paths that move to, or leave, a switch that never answers are noticed by checks."""

from __future__ import annotations

import pytest
from tests.fabric.test_learn import FLOWS, Routers, checked

from syntony.fabric.learn import SILENT_AGAIN_NS, FlowKey, PathLearner
from syntony.model import S

BEGIN_NS = 200 * S


def flows_of(spines: int) -> list[FlowKey]:
    return [FLOWS[0]._replace(sport=61_000 + k) for k in range(spines * 8)]


def old(flow: FlowKey, spines: int) -> tuple[str, ...]:
    return ("leaf", f"spine{flow.sport % spines}", f"leaf-of-{flow.dst}")


def known(spines: int) -> tuple[PathLearner, Routers]:
    """All flows learnt, of which none crosses the silent spine 9."""
    learning, routers = PathLearner(), Routers(1, silent=frozenset({"spine9"}))
    learning.plan(flows_of(spines))
    routers.truth = lambda flow: old(flow, spines)
    routers.run(learning, BEGIN_NS)
    return learning, routers


@pytest.mark.parametrize(("spines", "seconds"), [(1, 15), (2, 15), (4, 20)])
def test_half_of_the_paths_of_each_switch_moved_to_one_that_never_answers(
    spines: int, seconds: int
) -> None:
    """The old switches go on answering the checks of the other half."""
    learning, routers = known(spines)
    moved = {flow for flow in flows_of(spines) if flow.sport // spines % 2}
    routers.truth = lambda flow: (
        ("leaf", "spine9", old(flow, spines)[2]) if flow in moved else old(flow, spines)
    )
    found = checked(learning, routers, BEGIN_NS, BEGIN_NS + seconds * S)
    assert moved <= found.keys()
    assert all(learning.hops(flow) == ("leaf", "", "leaf-of-10.0.1.0") for flow in moved)


def test_one_path_that_left_a_silent_hop_makes_those_beside_it_asked_for_at_once() -> None:
    """The silent spine is dead."""
    learning, routers = known(2)
    flows = flows_of(2)
    learning, over = PathLearner(), {flow for flow in flows if flow.sport % 4 < 2}
    learning.plan(flows)
    routers.truth = lambda flow: (
        ("leaf", "spine9", old(flow, 2)[2]) if flow in over else old(flow, 2)
    )
    routers.run(learning, BEGIN_NS)
    routers.truth = lambda flow: old(flow, 2)
    found = checked(learning, routers, BEGIN_NS, BEGIN_NS + 6 * S)
    assert over <= found.keys()
    assert all(learning.hops(flow) == old(flow, 2) for flow in over)


def test_a_switch_that_no_longer_answers_is_not_asked_all_the_time() -> None:
    """All paths across it are doubted now and then, not for each of them."""
    learning, routers = known(1)
    begin_ns = BEGIN_NS + 12 * S
    routers.run(learning, begin_ns, BEGIN_NS)
    routers.seldom = {"spine0"}
    routers.requested = 0
    checked(learning, routers, begin_ns, begin_ns + 2 * SILENT_AGAIN_NS)
    assert routers.requested < 8 * (3 + 3) * 4


def test_hops_are_remembered_only_while_they_may_not_be_doubted_again() -> None:
    learning = PathLearner()
    learning._doubt(("leaf", "spine0"), BEGIN_NS)
    learning._doubt(("leaf", "spine1"), BEGIN_NS + SILENT_AGAIN_NS - 1)
    learning._doubt(("leaf", "spine0"), BEGIN_NS + SILENT_AGAIN_NS - 1)
    assert learning._doubted_ns.keys() == {("leaf", "spine0"), ("leaf", "spine1")}
    learning._doubt(("leaf", "spine1"), BEGIN_NS + SILENT_AGAIN_NS)
    assert learning._doubted_ns.keys() == {("leaf", "spine1")}

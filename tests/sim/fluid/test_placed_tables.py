"""Placement of a table of flows: what a row may say, waves, names of paths, and rates."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from syntony.errors import InputError
from syntony.sim.fluid.clos import LeafSpine
from syntony.sim.fluid.offline import GBPS, Placed, place_table
from syntony.sim.fluid.scenario import damage
from syntony.traffic.demand import Priority


def net() -> LeafSpine:
    return LeafSpine(leaves=2, hosts_per_leaf=3, spines=2)


def table(*flows: tuple[int, int], **columns: list[Any]) -> list[Placed]:
    ends = {"src": [f"n{a}" for a, _ in flows], "dst": [f"n{b}" for _, b in flows]}
    return place_table(ends | columns, net())


def spines(found: list[Placed]) -> list[str]:
    return [each.path.path_id.split("/")[1] for each in found]


def test_two_flows_take_two_spines_and_have_all_of_their_nics() -> None:
    found = table((0, 3), (1, 4))
    assert sorted(spines(found)) == ["spine0", "spine1"]
    assert [each.rate_gbps for each in found] == pytest.approx([100.0, 100.0])
    assert [each.flow.flow_id for each in found] == ["0", "1"]
    assert found[0].path.path_id == f"leaf0/{spines(found)[0]}/leaf1"
    assert found[0].path.links[0] == "n0->leaf0"
    assert [each.wave for each in found] == [0, 0]
    assert all(each.moved for each in found)


def test_below_one_leaf_there_is_one_path() -> None:
    (found,) = table((0, 1))
    assert found.path.path_id == "leaf0"
    assert found.path.links == ("n0->leaf0", "leaf0->n1")


def test_planes_are_told_apart_by_their_cables() -> None:
    planes = LeafSpine(leaves=2, hosts_per_leaf=1, spines=1, planes=2)
    found = place_table({"src": ["n0"], "dst": ["n1"]}, planes)
    assert found[0].path.path_id in {"p0-leaf0/p0-spine0/p0-leaf1", "p1-leaf0/p1-spine0/p1-leaf1"}


def test_who_has_a_good_path_stays_on_it() -> None:
    path = ["leaf0/spine1/leaf1", "leaf0/spine0/leaf1"]
    found = table((0, 3), (1, 4), path=path)
    assert [each.path.path_id for each in found] == path
    assert not any(each.moved for each in found)


def test_a_row_says_what_a_flow_is() -> None:
    found = table(
        (0, 3), (1, 4), flow_id=["a", None], job=["x", None], priority=["Guaranteed", None],
        weight=[2, None], demand_gbps=[30, None], size=[1.5, None],
    )  # fmt: skip
    first, second = (each.flow for each in found)
    assert (first.flow_id, first.job, first.priority) == ("a", "x", Priority.GUARANTEED)
    assert (first.weight, first.demand_bps) == (2.0, 30 * GBPS)
    assert (second.flow_id, second.job, second.priority) == ("1", "", Priority.STANDARD)
    assert (second.weight, second.demand_bps) == (1.0, None)
    assert [each.rate_gbps for each in found] == pytest.approx([30.0, 100.0])


def test_short_and_long_paths_share_the_cable_that_both_begin_with() -> None:
    found = table((0, 1), (0, 3))
    assert [len(each.path.links) for each in found] == [2, 4]
    assert [each.rate_gbps for each in found] == pytest.approx([50.0, 50.0])


def test_weights_share_what_cannot_be_parted() -> None:
    found = table((0, 3), (1, 3), weight=[1.0, 3.0])
    assert [each.rate_gbps for each in found] == pytest.approx([25.0, 75.0])


def test_flows_that_wait_share_no_links_in_time_with_those_they_wait_for() -> None:
    found = table((0, 3), (0, 4), (0, 5), (1, 3), flow_id=list("abcd"), after=["", "a", "b", None])
    assert [(each.flow.flow_id, each.wave) for each in found] == [
        ("a", 0), ("b", 1), ("c", 2), ("d", 0)
    ]  # fmt: skip
    assert [each.rate_gbps for each in found] == pytest.approx([50.0, 100.0, 100.0, 50.0])


def test_the_order_of_rows_is_kept_whatever_waits() -> None:
    found = table((0, 3), (1, 4), (2, 5), flow_id=list("abc"), after=["c", "", "b"])
    assert [(each.flow.flow_id, each.wave) for each in found] == [("a", 2), ("b", 0), ("c", 1)]


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"src": ["n0"]}, "missing-columns: FLOWS has no column dst"),
        ({}, "missing-columns: FLOWS has no column src, dst"),
        ({"src": [], "dst": []}, "empty"),
        ({"src": ["n0"], "dst": ["n0"]}, "to-itself: flow 0 goes from n0"),
        ({"src": ["n0"], "dst": ["n33"]}, r"unknown-host: flow 0: dst 'n33' is no NIC; did you"),
        ({"src": [None], "dst": ["n3"]}, "unknown-host: flow 0: src ''"),
        ({"src": ["zzz"], "dst": ["n3"]}, "unknown-host: flow 0: src 'zzz' is no NIC$"),
        ({"src": ["n0"] * 2, "dst": ["n3"] * 2, "flow_id": ["a", "a"]}, "duplicate-flow"),
        ({"src": ["n0"], "dst": ["n3"], "priority": ["urgent"]}, "bad-priority: flow 0: 'urgent'"),
        ({"src": ["n0"], "dst": ["n3"], "size": [0]}, "bad-size: flow 0: size is 0, not above"),
        ({"src": ["n0"], "dst": ["n3"], "weight": ["much"]}, "bad-weight"),
        ({"src": ["n0"], "dst": ["n3"], "weight": [float("inf")]}, "bad-weight"),
        ({"src": ["n0"], "dst": ["n3"], "demand_gbps": [-1]}, "bad-demand"),
        ({"src": ["n0"], "dst": ["n3"], "after": ["b"]}, "unknown-flow: a flow waits for 'b'"),
        ({"src": ["n0"], "dst": ["n3"], "after": ["0"]}, "trigger-cycle: flow 0"),
        (
            {"src": ["n0", "n1"], "dst": ["n3", "n4"], "after": ["1", "0"]},
            "trigger-cycle: flow 0",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_placed_is_refused_by_name(columns: dict[str, Any], name: str) -> None:
    with pytest.raises(InputError, match=name):
        place_table(columns, net())


def test_a_fabric_in_two_parts_is_refused() -> None:
    cut = net()
    damage(cut, ["leaf0--spine0", "leaf0--spine1"], [], 1)
    with pytest.raises(InputError, match="disconnected"):
        place_table({"src": ["n0"], "dst": ["n3"]}, cut)


def test_slower_cables_count_at_their_speed() -> None:
    slow = net()
    damage(slow, [], ["leaf0->spine0=40"], 1)
    columns: dict[str, list[Any]] = {
        "src": ["n0", "n1", "n2"], "dst": ["n3", "n4", "n5"], "demand_gbps": [40, 50, 50]
    }  # fmt: skip
    found = place_table(columns, slow)
    assert Counter(spines(found)) == {"spine0": 1, "spine1": 2}
    assert [each.rate_gbps for each in found] == pytest.approx([40.0, 50.0, 50.0])

"""Placement against what theory says must be possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.traffic.chains import Board
from syntony.traffic.demand import CandidatePath, Flow, Priority
from syntony.traffic.fair import max_min
from syntony.traffic.place import place
from syntony.traffic.problem import known_capacities, link_names, make_problem

GBPS = 10**9


def leaf_spine(
    pairs: list[tuple[int, int]], *, spines: int, hosts: int, job: str = "j", **more: object
) -> list[Flow]:
    """Flows between NICs of a leaf–spine fabric with `hosts` NICs at each leaf."""
    flows = []
    for number, (src, dst) in enumerate(pairs):
        a, b = src // hosts, dst // hosts
        ends = (f"h{src}->leaf{a}", f"leaf{b}->h{dst}")
        paths = tuple(
            CandidatePath(f"s{s}", (ends[0], f"leaf{a}->spine{s}", f"spine{s}->leaf{b}", ends[1]))
            for s in range(spines)
        )
        flows.append(Flow(f"{job}{number}", job, paths, **more))  # type: ignore[arg-type]
    return flows


def rates(flows: list[Flow], chosen: dict[str, str], capacity: dict[str, int]) -> dict[str, float]:
    """Max-min rates in Gb/s, 100 where nothing is said of a link."""
    names: dict[str, int] = {}
    rows = []
    for flow in flows:
        links = next(p.links for p in flow.paths if p.path_id == chosen[flow.flow_id])
        rows.append([names.setdefault(link, len(names)) for link in links])
    width = max(len(row) for row in rows)
    table = np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int32)
    room = np.array([float(capacity.get(name, 100)) for name in names])
    found = max_min(table, room)
    return {flow.flow_id: float(rate) for flow, rate in zip(flows, found, strict=True)}


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_any_permutation_fits_into_a_fabric_without_oversubscription(
    leaves: int, hosts: int, random: object
) -> None:
    # Kőnig: a bipartite multigraph of degree d has an edge colouring with d colours.
    order = list(range(leaves * hosts))
    random.shuffle(order)  # type: ignore[attr-defined]
    flows = leaf_spine(list(enumerate(order)), spines=hosts, hosts=hosts)
    crossing = [f for f, (a, b) in zip(flows, enumerate(order), strict=True) if a != b]
    chosen = place(crossing, {})
    found = rates(crossing, chosen, {}) if crossing else {}
    assert all(rate == pytest.approx(100) for rate in found.values())


def test_four_queue_pairs_each_still_fit() -> None:
    rng = np.random.default_rng(3)
    pairs = [(a, b) for a, b in enumerate(rng.permutation(32).tolist()) if a != b]
    flows = leaf_spine([pair for pair in pairs for _ in range(4)], spines=8, hosts=8)
    found = rates(flows, place(flows, {}), {})
    assert sum(found.values()) == pytest.approx(100 * len(pairs))


def test_a_dead_link_is_never_used_and_a_flow_without_a_way_is_left_out() -> None:
    flows = leaf_spine([(0, 2), (1, 3)], spines=2, hosts=2)
    dead = {"leaf0->spine1": 0}
    assert place(flows, dead) == {"j0": "s0", "j1": "s0"}
    assert place(flows, {**dead, "spine0->leaf1": 0}) == {}


def test_the_worst_off_come_before_the_mean() -> None:
    # Three flows, uplinks of 2 and 1: two on the wide one, one on the narrow one.
    flows = leaf_spine([(0, 3), (1, 4), (2, 5)], spines=2, hosts=3)
    wide = {"leaf0->spine0": 200 * GBPS, "leaf0->spine1": 100 * GBPS}
    ends = {link: 100 * GBPS for f in flows for link in (f.paths[0].links[0], f.paths[0].links[3])}
    down = {"spine0->leaf1": 200 * GBPS, "spine1->leaf1": 100 * GBPS}
    chosen = place(flows, wide | ends | down)
    assert sorted(chosen.values()) == ["s0", "s0", "s1"]


def test_who_is_well_placed_stays() -> None:
    flows = leaf_spine([(0, 4), (1, 5), (2, 6), (3, 7)], spines=4, hosts=4)
    placed = [Flow(f.flow_id, f.job, f.paths, path_id=f"s{3 - n}") for n, f in enumerate(flows)]
    assert place(placed, {}) == {f.flow_id: f.path_id for f in placed}


def test_a_lower_class_goes_where_the_higher_is_not() -> None:
    high = leaf_spine([(0, 3)], spines=2, hosts=3, job="g", priority=Priority.GUARANTEED)
    low = leaf_spine([(1, 4), (2, 5)], spines=2, hosts=3, job="s", priority=Priority.SCAVENGER)
    chosen = place(low + high, {})
    assert chosen["s0"] == chosen["s1"] != chosen["g0"]


def test_unknown_capacities_are_taken_for_the_usual_one() -> None:
    flows = leaf_spine([(0, 2), (1, 3)], spines=2, hosts=2)
    chosen = place(flows, {"h0->leaf0": 100 * GBPS, "leaf0->spine0": None})
    assert len(set(chosen.values())) == 2


def test_a_known_demand_is_what_counts() -> None:
    # Two that send little share one uplink, the one that sends much has the other.
    little = [
        Flow(f.flow_id, f.job, f.paths, demand_bps=10 * GBPS)
        for f in leaf_spine([(0, 3), (1, 4)], spines=2, hosts=3)
    ]
    much = leaf_spine([(2, 5)], spines=2, hosts=3, job="m")
    capacity = {link: 100 * GBPS for f in (*little, *much) for p in f.paths for link in p.links}
    chosen = place([*little, *much], capacity)
    assert chosen["j0"] == chosen["j1"] != chosen["m0"]


def test_nothing_to_place() -> None:
    assert place([], {}) == {}
    assert place([Flow("f", "j", ())], {}) == {}


@given(ways=st.integers(2, 9), others=st.integers(0, 6))
def test_links_are_relieved_until_nothing_is_crowded(ways: int, others: int) -> None:
    """All on one way out of as many: every one but one has to leave, one chain after the other."""
    flows = leaf_spine([(k, ways + k) for k in range(ways)], spines=ways, hosts=ways)
    more = leaf_spine([(2 * ways + k, 3 * ways + k) for k in range(others)], spines=ways,
                      hosts=ways, job="other")  # fmt: skip
    flows = [replace(each, path_id="s0") for each in [*flows, *more[:ways]]]
    names = link_names(flows)
    board = Board(make_problem(flows, names, known_capacities(names, {})))
    for flow in range(len(flows)):
        board.put(flow, flow * ways)
    board.settle()
    rows = [int(row) % ways for row in board.chosen]
    assert sorted(rows[:ways]) == list(range(ways))
    assert len(set(rows[ways:])) == len(rows[ways:])
    assert board.moves == len({*rows[:ways]} - {0}) + len({*rows[ways:]} - {0}), "no detour"

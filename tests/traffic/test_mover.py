"""Steering: it helps, it is careful, and it comes to rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.traffic.steered import GBPS, World
from tests.traffic.test_place import leaf_spine

from syntony.model import S
from syntony.traffic.demand import Flow
from syntony.traffic.measurements import LinkLoad, MeasuredRate, Measurements, PathDelay
from syntony.traffic.mover import Mover
from syntony.traffic.moves import MoveCause, MovePolicy
from syntony.traffic.trials import TrialResult


def on(flows: list[Flow], *paths: str) -> list[Flow]:
    return [replace(flow, path_id=path) for flow, path in zip(flows, paths, strict=True)]


def colliding(count: int = 2, spines: int = 2) -> list[Flow]:
    hosts = max(count, spines)
    flows = leaf_spine([(k, hosts + k) for k in range(count)], spines=spines, hosts=hosts)
    return on(flows, *["s0"] * count)


def test_two_flows_on_one_uplink_part_and_stay_apart() -> None:
    world, mover = World(colliding()), Mover()
    world.run(mover, 40)
    assert len(world.moves) == 1
    assert world.moves[0].cause is MoveCause.CROWDED
    assert min(world.rates().values()) == pytest.approx(100 * GBPS)
    assert not mover.on_trial


def test_every_move_ends_with_a_verdict() -> None:
    world, mover = World(colliding()), Mover()
    found: list[TrialResult] = []
    for _ in range(10):
        world.run(mover, 1)
        found += mover.judged.values()
    assert found == [TrialResult.HELPED]
    assert mover.judged == {}


def test_rates_alone_are_enough() -> None:
    world = World(colliding(4, 4), delays=False)
    world.run(Mover(), 40)
    assert min(world.rates().values()) == pytest.approx(100 * GBPS)
    assert len(world.moves) <= 4


def test_nothing_is_moved_where_nobody_suffers() -> None:
    # Both on one uplink, which carries both.
    world = World([replace(flow, demand_bps=30 * 10**9) for flow in colliding()], capacity={"x": 1})
    world.run(Mover(), 20)
    assert not world.moves


def test_a_flow_of_unknown_demand_that_sends_little_is_no_reason_to_move() -> None:
    flows = colliding()
    mover = Mover()
    rates = {f.flow_id: MeasuredRate(S, 20 * GBPS, "s0") for f in flows}
    delays = {(f.flow_id, "s0"): PathDelay(S, 12_000, 10_000) for f in flows}
    mover.update(flows)
    capacities = {link: 100 * 10**9 for f in flows for p in f.paths for link in p.links}
    assert mover.step(Measurements(rates=rates, delays=delays, capacities=capacities), S) == ()


def test_a_wrong_map_is_noticed_the_move_undone_and_not_repeated() -> None:
    flows = colliding()
    # Whatever path they take, they go over spine 0.
    truth = {(f.flow_id, p.path_id): f.paths[0].links for f in flows for p in f.paths}
    world, mover = World(flows, truth=truth), Mover()
    world.run(mover, 60)
    causes = Counter(move.cause for move in world.moves)
    assert causes[MoveCause.UNDO] >= 1
    assert sum(causes.values()) <= 4, "in half a minute: they rest"
    assert {flow.path_id for flow in world.flows.values()} == {"s0"}


def test_a_dead_link_is_left_at_once_and_by_all() -> None:
    flows = on(leaf_spine([(0, 2), (1, 3)], spines=2, hosts=2), "s0", "s1")
    world, mover = World(flows, capacity={"leaf0->spine1": 1.0}), Mover()
    world.capacity["leaf0->spine1"] = 0.0
    world.run(mover, 1)
    assert [(m.flow_id, m.new, m.cause) for m in world.moves] == [("j1", "s0", MoveCause.DEAD)]
    world.run(mover, 20)
    assert len(world.moves) == 1, "there is nowhere to go back to"


def test_flows_without_a_path_are_placed() -> None:
    flows = leaf_spine([(0, 2), (1, 3)], spines=2, hosts=2)
    mover = Mover()
    mover.update(flows)
    moves = mover.step(Measurements(), S)
    assert {move.cause for move in moves} == {MoveCause.UNPLACED}
    assert len({move.new for move in moves}) == 2


def test_no_second_move_before_the_first_is_answered_and_judged() -> None:
    flows, mover = colliding(), Mover()
    world = World(flows)
    mover.update(flows)
    seen = world._measure()
    (move,) = mover.step(seen, S)
    for later in (2, 3, 4):
        mover.update(flows)
        assert mover.step(seen, later * S) == ()
        assert mover.under_way == {move.flow_id}
    mover.done(move.flow_id, 4 * S, ok=True)
    mover.update([replace(f, path_id=mover._paths[f.flow_id]) for f in flows])
    assert mover.step(seen, 5 * S) == (), "older than the move: no ground to judge it on"
    assert mover.on_trial == {move.flow_id}


def test_a_failed_move_is_not_tried_again_soon() -> None:
    flows, mover = colliding(), Mover()
    seen = World(flows)._measure()
    mover.update(flows)
    (move,) = mover.step(seen, S)
    mover.done(move.flow_id, S, ok=False)
    assert mover._paths[move.flow_id] == "s0"
    mover.update(flows)
    again = mover.step(seen, 2 * S)
    assert move.flow_id not in {each.flow_id for each in again}


def test_an_actuator_that_never_answers_has_failed() -> None:
    flows, mover = colliding(), Mover(MovePolicy(stale_ns=100 * S))
    seen = World(flows)._measure()
    mover.update(flows)
    (move,) = mover.step(seen, S)
    mover.step(seen, 7 * S)
    assert move.flow_id not in mover.under_way
    assert mover._paths[move.flow_id] == "s0"


def test_a_job_that_vanishes_in_the_middle_of_a_move_is_forgotten() -> None:
    flows, mover = colliding(), Mover()
    seen = World(flows)._measure()
    mover.update(flows)
    (move,) = mover.step(seen, S)
    left = [flow for flow in flows if flow.flow_id != move.flow_id]
    mover.update(left)
    assert not mover.under_way
    mover.done(move.flow_id, 2 * S, ok=True)
    assert mover.step(World(left)._measure(), 3 * S) == ()
    assert move.flow_id not in mover._paths
    mover.update([])
    assert mover.step(seen, 4 * S) == ()


def test_a_new_controller_goes_on_from_where_the_flows_are() -> None:
    world, first = World(colliding(4, 4)), Mover()
    world.run(first, 3)
    before = len(world.moves)
    world.run(Mover(), 40)
    assert min(world.rates().values()) == pytest.approx(100 * GBPS)
    assert len(world.moves) - before <= 4


def test_no_more_moves_in_a_step_than_allowed() -> None:
    world = World(colliding(8, 8))
    world.run(Mover(MovePolicy(max_moves=2)), 100)
    assert max(world.by_step) <= 2
    assert min(world.rates().values()) == pytest.approx(100 * GBPS)


def test_others_traffic_is_seen_and_avoided() -> None:
    # Somebody else fills spine 1's uplink; spine 2 is free.
    flows = colliding(2, 3)
    mover = Mover()
    mover.update(flows)
    rates = {f.flow_id: MeasuredRate(S, 50 * GBPS, "s0") for f in flows}
    delays = {(f.flow_id, "s0"): PathDelay(S, 400_000, 10_000) for f in flows}
    loads = {"leaf0->spine0": LinkLoad(S, 100 * GBPS), "leaf0->spine1": LinkLoad(S, 95 * GBPS)}
    capacities = {link: 100 * 10**9 for f in flows for p in f.paths for link in p.links}
    (move,) = mover.step(Measurements(loads, rates, delays, capacities), S)
    assert move.new == "s2"


def test_a_path_that_queues_although_it_should_be_empty_is_not_taken() -> None:
    flows = colliding(2, 3)
    mover = Mover()
    mover.update(flows)
    rates = {f.flow_id: MeasuredRate(S, 50 * GBPS, "s0") for f in flows}
    delays = {(f.flow_id, "s0"): PathDelay(S, 400_000, 10_000) for f in flows}
    delays |= {(f.flow_id, "s1"): PathDelay(S, 300_000, 10_000) for f in flows}
    (move,) = mover.step(Measurements(rates=rates, delays=delays), S)
    assert move.new == "s2"


@settings(deadline=None, max_examples=6)
@given(
    seed=st.integers(0, 2**32 - 1),
    age=st.integers(0, 3),
    noise=st.sampled_from([0.0, 0.05, 0.2]),
    wrong=st.sampled_from([0.0, 0.1, 0.5]),
    spines=st.integers(1, 5),
)
def test_it_comes_to_rest_whatever_it_is_told(
    seed: int, age: int, noise: float, wrong: float, spines: int
) -> None:
    rng = np.random.default_rng(seed)
    leaves, hosts = 3, 4
    order = rng.permutation(leaves * hosts).tolist()
    pairs = [(a, b) for a, b in enumerate(order) if a // hosts != b // hosts]
    if not pairs:
        return
    flows = leaf_spine(pairs, spines=spines, hosts=hosts)
    flows = on(flows, *(f"s{s}" for s in rng.integers(0, spines, len(flows))))
    truth = {}
    for flow in flows:
        for path in flow.paths:
            if rng.random() < wrong:
                truth[flow.flow_id, path.path_id] = flow.paths[int(rng.integers(spines))].links
    world = World(flows, seed=seed, age=age, noise=noise, truth=truth)
    before = world.rates()
    world.run(Mover(), 180)
    after = world.rates()
    per_flow = Counter(move.flow_id for move in world.moves)
    # A minute and a half. A flow rests 30, then 60 s, and each move may be taken back.
    assert max(per_flow.values(), default=0) <= 4
    if noise == wrong == 0:
        assert min(after.values()) >= min(before.values()) * 0.999
        assert not any(world.by_step[-60:]), "quiet after a minute"

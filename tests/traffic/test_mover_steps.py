"""The mover's rules one by one: what it may do, whom it leaves alone, what it remembers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.traffic.steered import GBPS, World
from tests.traffic.test_mover import colliding, on
from tests.traffic.test_place import leaf_spine

from syntony.model import S
from syntony.traffic.extra_ports import (
    AGAIN_NS,
    MAX_PAIRS,
    PARTIAL_NS,
    PROBING_NS,
    ExtraPortProbing,
)
from syntony.traffic.measurements import MeasuredRate, Measurements, PathDelay
from syntony.traffic.mover import Mover
from syntony.traffic.moves import MoveCause, MovePolicy
from syntony.traffic.pairs import PartialPathFailure
from syntony.traffic.place import Choice
from syntony.traffic.problem import PlacementProblem
from syntony.traffic.trials import TrialResult

POLICY = MovePolicy()


def seen_at(at_ns: int, **rates: float) -> Measurements:
    """Two flows on one uplink, that get half each unless told otherwise."""
    world = World(colliding())
    world.at_ns = at_ns
    found = world._measure()
    reported = {name: MeasuredRate(at_ns, bps * GBPS) for name, bps in rates.items()}
    return replace(found, rates={**found.rates, **reported})


def began(policy: MovePolicy = POLICY) -> tuple[Mover, str]:
    mover = Mover(policy)
    mover.update(colliding())
    (move,) = mover.step(seen_at(S), S)
    assert (move.old, move.new, move.cause) == ("s0", "s1", MoveCause.CROWDED)
    assert "queues" in move.evidence
    return mover, move.flow_id


@pytest.mark.parametrize(("late_ns", "failed"), [(POLICY.act_ns, False), (POLICY.act_ns + 1, True)])
def test_an_actuator_has_so_long(late_ns: int, failed: bool) -> None:
    mover, flow = began(MovePolicy(stale_ns=100 * S))
    mover.step(seen_at(S), S + late_ns)
    assert (flow not in mover.under_way) is failed
    assert mover._paths[flow] == ("s0" if failed else "s1")


def test_what_was_not_even_tried_is_thought_of_again_soon_and_what_failed_rests() -> None:
    mover, flow = began()
    mover.done(flow, S, ok=False, tried=False)
    mover.update(colliding())
    assert mover._held({}, S + POLICY.retry_ns - 1) == {flow}
    assert mover._held({}, S + POLICY.retry_ns) == set()
    tried, flow = began()
    tried.done(flow, S, ok=False)
    assert tried._held({}, S + POLICY.hold_down_ns - 1) == {flow}
    assert tried._held({}, S + POLICY.hold_down_ns) == set()
    urgent = {flow: (MoveCause.DEAD, "")}
    assert tried._held(urgent, S) == set(), "off a dead path there is no rest"
    crowded = {flow: (MoveCause.CROWDED, "")}
    assert tried._held(crowded, S) == {flow}


def test_a_word_on_a_move_that_nobody_asked_for_changes_nothing() -> None:
    mover, flow = began()
    mover.done("stranger", S, ok=True)
    assert mover.under_way == {flow}
    mover.done(flow, 2 * S, ok=True)
    mover.done(flow, 3 * S, ok=False)
    assert mover._paths[flow] == "s1", "answered once"


@pytest.mark.parametrize(
    ("after", "verdict"), [(100.0, TrialResult.HELPED), (40.0, TrialResult.NO_GAIN)]
)
def test_a_move_is_judged_by_what_came_of_it_and_taken_back_without_gain(
    after: float, verdict: TrialResult
) -> None:
    mover, flow = began()
    mover.done(flow, S, ok=True)
    moved = [replace(f, path_id=mover._paths[f.flow_id]) for f in colliding()]
    mover.update(moved)
    at_ns = S + POLICY.settle_ns
    rates = {f.flow_id: MeasuredRate(at_ns, after * GBPS, f.path_id) for f in moved}
    delays = {(f.flow_id, f.path_id): PathDelay(at_ns, 10_000, 10_000) for f in moved}
    back = mover.step(Measurements(rates=rates, delays=delays), at_ns)
    assert mover.judged == {flow: verdict}
    if verdict is TrialResult.HELPED:
        assert back == ()
        assert mover.on_trial == frozenset()
        return
    (undo,) = back
    assert (undo.flow_id, undo.old, undo.new, undo.cause) == (flow, "s1", "s0", MoveCause.UNDO)
    assert mover._paths[flow] == "s0"
    mover.done(flow, at_ns, ok=True)
    mover.update(colliding())
    mover.step(Measurements(), at_ns + S)
    assert mover.judged[flow] is TrialResult.UNKNOWN, "what is taken back is not judged"
    later = mover.step(seen_at(at_ns + 2 * S), at_ns + 2 * S)
    assert flow not in {move.flow_id for move in later}, "and the path is left alone"


def test_a_move_away_from_a_flow_that_was_last_measured_long_ago_is_kept() -> None:
    """Its host had not reported: whether the move helped it is unknown."""
    mover, at_ns = Mover(), 100 * S
    mover.update(colliding())
    seen = seen_at(at_ns)
    *_, stale = seen.rates
    rates = {**seen.rates, stale: replace(seen.rates[stale], at_ns=S)}
    delays = {key: delay for key, delay in seen.delays.items() if key[0] != stale}
    (move,) = mover.step(replace(seen, rates=rates, delays=delays), at_ns)
    assert move.flow_id != stale
    mover.done(move.flow_id, at_ns, ok=True)
    mover.update([replace(f, path_id=mover._paths[f.flow_id]) for f in colliding()])
    at_ns += POLICY.settle_ns
    later = replace(seen, rates={move.flow_id: MeasuredRate(at_ns, 50 * GBPS)}, delays={})
    assert mover.step(later, at_ns) == ()
    assert mover.judged == {move.flow_id: TrialResult.UNKNOWN}


def test_a_flow_that_has_just_come_back_by_itself_is_not_judged_by_rates_from_before() -> None:
    """As when its agent ends an old move: others had more before."""
    mover, flow = began()
    mover.done(flow, S, ok=True)
    moved = [replace(f, path_id=mover._paths[f.flow_id]) for f in colliding()]
    mover.update(moved)
    alone = {f.flow_id: 100.0 for f in moved}
    mover.step(seen_at(S + POLICY.settle_ns, **alone), S + POLICY.settle_ns)
    assert mover.judged == {flow: TrialResult.HELPED}
    at_ns = 100 * S
    mover.update(colliding())
    before = seen_at(at_ns - S, **alone)
    (move,) = mover.step(replace(before, delays=seen_at(at_ns).delays), at_ns)
    mover.done(move.flow_id, at_ns, ok=True)
    mover.update([replace(f, path_id=mover._paths[f.flow_id]) for f in colliding()])
    at_ns += POLICY.settle_ns
    delays = {(f.flow_id, f.path_id): PathDelay(at_ns, 10_000, 10_000) for f in moved}
    assert mover.step(replace(seen_at(at_ns, **alone), delays=delays), at_ns) == ()
    assert mover.judged.get(move.flow_id) is not TrialResult.NO_GAIN


def test_nothing_is_taken_back_to_a_path_that_died_meanwhile() -> None:
    mover, flow = began()
    mover.done(flow, S, ok=True)
    moved = [replace(f, path_id=mover._paths[f.flow_id]) for f in colliding()]
    mover.update(moved)
    at_ns = S + POLICY.settle_ns
    rates = {f.flow_id: MeasuredRate(at_ns, 40 * GBPS, f.path_id) for f in moved}
    links = {link: 100 * 10**9 for f in moved for p in f.paths for link in p.links}
    found = mover.step(Measurements(rates=rates, capacities=links | {"leaf0->spine0": 0}), at_ns)
    assert flow not in {move.flow_id for move in found}


@pytest.mark.parametrize(("on_s1", "barred"), [(1, True), (2, False)])
def test_a_path_that_waits_for_others_is_barred_and_one_that_waits_for_us_is_not(
    on_s1: int, barred: bool
) -> None:
    """Packets wait on it: with room for what ours ask of it, the map does not know why."""
    requested: list[PlacementProblem] = []

    def placer(problem: PlacementProblem, start: Choice | None = None) -> Choice:
        requested.append(problem)
        assert start is not None
        return start

    flows = leaf_spine([(k, 4 + k) for k in range(4)], spines=3, hosts=4)[: 2 + on_s1]
    flows = on(flows, *["s0", "s0", "s1", "s1"][: len(flows)])
    mover = Mover(POLICY, placer)
    mover.update(flows)
    waits = PathDelay(S, 200_000, 10_000)
    capacities = {link: 100 * 10**9 for f in flows for path in f.paths for link in path.links}
    delays = {("j0", "s0"): waits, ("j0", "s1"): waits}
    assert mover.step(Measurements(delays=delays, capacities=capacities), S) == ()
    (problem,) = requested
    assert problem.barred is not None
    assert problem.barred[:3].tolist() == [False, barred, False]


def test_while_a_move_is_under_way_where_the_flow_is_is_not_believed() -> None:
    mover, flow = began()
    mover.update(colliding())
    assert mover._paths[flow] == "s1"
    mover.done(flow, S, ok=True)
    mover.update(on(colliding(), "s0", "s0"))
    assert mover._paths[flow] == "s0", "answered: now it is"


@pytest.mark.parametrize(("most", "moved"), [(1, 1), (2, 2), (9, 3)])
def test_an_urgent_plan_larger_than_allowed_is_begun(most: int, moved: int) -> None:
    flows = leaf_spine([(k, 4 + k) for k in range(3)], spines=4, hosts=4)
    mover = Mover(MovePolicy(max_moves=most))
    mover.update(flows)
    assert len(mover.step(Measurements(), S)) == moved


def test_moves_wait_for_the_budget_of_a_second() -> None:
    flows = leaf_spine([(k, 4 + k) for k in range(3)], spines=4, hosts=4)
    mover = Mover(MovePolicy(max_moves_per_s=1))
    mover.update(flows)
    moves = [mover.step(Measurements(), S + k * S) for k in range(2)]
    assert [len(each) for each in moves] == [1, 1]


# --- partial failures of a pair ---


def verdict_of(partial: PartialPathFailure) -> tuple[int | None, bool]:
    return partial.since_ns, partial.unsure


def test_a_pair_is_torn_by_two_silent_flows_while_others_answer_well_into_the_silence() -> None:
    partial = PartialPathFailure()
    partial.died(1, 1_000, 1_400)
    partial.answered(3, 9_000)
    assert verdict_of(partial) == (None, False), "one may stand in a queue"
    partial.died(2, 2_000, 2_400)
    assert verdict_of(partial) == (1_000, False), "since the second newest of those that are silent"
    partial.lives(2)
    assert verdict_of(partial) == (None, False)
    fresh = PartialPathFailure()
    fresh.died(1, 1_000, 1_400)
    fresh.died(2, 2_000, 2_400)
    fresh.answered(3, 1_199)
    assert verdict_of(fresh) == (None, True)
    fresh.answered(3, 1_200)
    assert verdict_of(fresh) == (1_000, False)
    fresh.answered(3, 5)
    assert verdict_of(fresh) == (1_000, False), "older words change nothing"
    fresh.answered(1, 1_150)
    assert verdict_of(fresh) == (None, True), "answered later than was thought"
    fresh.keep({2, 3})
    assert verdict_of(fresh) == (None, False)


def test_a_pair_is_asked_fast_for_a_while_then_as_torn_or_not_for_a_second() -> None:
    extra_ports, pair = ExtraPortProbing(), ("nic0", "10.0.0.2")
    assert extra_ports.due_ns() is None
    assert extra_ports.begin(pair, S)
    assert not extra_ports.begin(pair, S + 1)
    assert extra_ports.suspect == {pair}
    assert extra_ports.due_ns() == S + PROBING_NS
    assert not extra_ports.end(S + PROBING_NS - 1, lambda _: True)
    assert extra_ports.suspect == {pair}
    assert extra_ports.end(S + PROBING_NS, lambda _: True)
    assert not extra_ports.suspect
    assert extra_ports.partial == {pair}
    assert extra_ports.due_ns() == S + PROBING_NS + PARTIAL_NS
    again_ns = S + PROBING_NS + PARTIAL_NS
    assert not extra_ports.begin(pair, again_ns), "it is known"
    assert not extra_ports.end(again_ns, lambda _: True), "as before"
    assert extra_ports.end(again_ns + PARTIAL_NS, lambda _: False), "it is well again"
    assert extra_ports.partial == frozenset()
    assert extra_ports.begin(pair, again_ns + PARTIAL_NS)
    once = ExtraPortProbing()
    once.begin(pair, S)
    once.end(S + PROBING_NS, lambda _: False)
    assert not once.begin(pair, S + AGAIN_NS - 1)
    assert once.begin(pair, S + AGAIN_NS)


def test_only_so_many_pairs_are_asked_at_a_time() -> None:
    extra_ports = ExtraPortProbing()
    assert [extra_ports.begin(("nic0", f"10.0.0.{k}"), S) for k in range(MAX_PAIRS + 1)] == [
        *[True] * MAX_PAIRS, False
    ]  # fmt: skip

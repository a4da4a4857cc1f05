"""Bounds of the traffic room from both sides, and turns that simulations seldom take."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from tests.traffic.one_end import NOW, POLICY, Host, here, life, machine, of, there
from tests.traffic.test_job_flows import board
from tests.traffic.test_model import three_tiers
from tests.traffic.test_mover import colliding
from tests.traffic.test_place import GBPS, leaf_spine
from tests.traffic.test_plain import INODE
from tests.traffic.test_plain import Host as PlainHost
from tests.traffic.test_relocate import JOIN, PORT, give, on_rail, order, outcome, settled

from syntony.model import MS, S
from syntony.model.paths import FourTuple, StallEvent
from syntony.traffic import events
from syntony.traffic.chains import Board
from syntony.traffic.connection_table import ConnectionTable
from syntony.traffic.demand import Flow, Priority
from syntony.traffic.fair import max_min
from syntony.traffic.instructions import Cause, Create, Destroy, Reason, Retire, Withdraw
from syntony.traffic.measurements import Measurements, PathDelay
from syntony.traffic.mover import Mover, _same
from syntony.traffic.moves import FlowMove, MoveCause, MovePolicy
from syntony.traffic.moving import Guard
from syntony.traffic.place import place, solve
from syntony.traffic.problem import (
    DEAD,
    PlacementProblem,
    known_capacities,
    link_names,
    make_problem,
)
from syntony.traffic.relocate import Relocation
from syntony.traffic.shares import ShareClaim, share
from syntony.traffic.trials import MoveTrial
from syntony.traffic.turn import Turn

STALLED = Reason(Cause.FABRIC, "stalled", NOW, NOW)

# --- placement ---


def problem_of(flows: list[Flow], capacity: dict[str, int] | None = None) -> PlacementProblem:
    links = link_names(flows)
    return make_problem(flows, links, known_capacities(links, capacity or {}))


def test_unplaced_flows_of_three_tiers_are_placed_apart() -> None:
    flows = three_tiers([(0, 2), (1, 3)])
    problem = problem_of(flows)
    chosen = solve(problem)
    assert (chosen >= 0).all()
    assert problem.load(chosen).max() == pytest.approx(problem.ideal_bps[0])


def test_a_dead_path_of_three_tiers_is_left_for_one_that_lives() -> None:
    flows = [replace(flow, path_id="s1c1") for flow in three_tiers([(0, 2)])]
    for dead in ("l0->s1", "s1->c11", "c11->t1", "t1->l1"):
        (path,) = place(flows, {dead: 0}).values()
        assert path != "s1c1"
    assert place(flows, {"h0->l0": 0}) == {}


def test_the_emptiest_way_has_the_least_crowded_worst_link_then_the_emptiest_links() -> None:
    made, problem, _ = board(3, 3, [0, 0, 1])
    first = int(problem.first[2])
    made.put(2, DEAD)
    assert made.emptiest(2) == first + 1, "both others are empty: the first"
    made.put(1, int(problem.first[1]) + 1)
    assert made.emptiest(2) == first + 2
    # Nothing is crowded anywhere: the way whose links carry least in all.
    flows = leaf_spine([(0, 3), (1, 4), (2, 5)], spines=2, hosts=3)
    flows = [replace(f, demand_bps=d * GBPS) for f, d in zip(flows, (40, 20, 30), strict=True)]
    links = {link: 100 * GBPS for f in flows for p in f.paths for link in p.links}
    mixed = problem_of(flows, links)
    free = Board(mixed)
    free.put(0, int(mixed.first[0]))
    free.put(1, int(mixed.first[1]) + 1)
    assert free.emptiest(2) == int(mixed.first[2]) + 1


def test_moves_are_counted_and_loads_follow_them() -> None:
    made, problem, _ = board(2, 2, [0, 0])
    assert made.moves == 0
    made.put(0, int(problem.first[0]) + 1)
    assert made.moves == 1
    made.put(0, DEAD)
    assert made.moves == 2
    assert problem.load(made.chosen).max() == problem.ideal_bps[1]
    assert made.emptiest(0) == int(problem.first[0]) + 1


def test_a_class_has_what_those_above_it_leave_and_a_little_of_what_is_full() -> None:
    """Where every way is full each is as bad as the next; one that is half full is taken."""
    flows = leaf_spine([(0, 3), (1, 4), (2, 5)], spines=2, hosts=3)
    sizes = (100, 50, 100)
    classes = (Priority.GUARANTEED, Priority.GUARANTEED, Priority.STANDARD)
    flows = [
        replace(flow, demand_bps=size * GBPS, priority=priority)
        for flow, size, priority in zip(flows, sizes, classes, strict=True)
    ]
    links = {link: 100 * GBPS for f in flows for p in f.paths for link in p.links}
    chosen = place(flows, links)
    assert chosen["j2"] == chosen["j1"] != chosen["j0"]
    made = Board(problem_of(flows, links))
    made.put(0, 0)
    made.settle()
    full = made._capacity[:-1].min()
    assert full == pytest.approx(0.05 * 100 * GBPS)


def test_what_only_a_dead_link_limits_is_nothing_and_ties_settle_together() -> None:
    links = np.array([[0, 1], [0, -1], [1, -1]], dtype=np.int32)
    assert max_min(links, np.array([0.0, 9.0])).tolist() == [0, 0, 9]
    assert max_min(links, np.array([10.0, 10.0])).tolist() == [5, 5, 5]
    weight, demand = np.array([2.0, 1.0, 1.0]), np.array([np.inf, 1.0, np.inf])
    assert max_min(links, np.array([10.0, 12.0]), weight, demand).tolist() == [8, 1, 4]


def test_every_claim_gets_a_little_before_anything_else() -> None:
    claims = [ShareClaim(("l",), Priority.GUARANTEED, 1.0, float("inf")),
              ShareClaim(("l",), Priority.SCAVENGER, 1.0, float("inf"))]  # fmt: skip
    assert share(claims, {"l": 100.0}).tolist() == pytest.approx([99.0, 100 * 0.01])
    many = [replace(claims[0]) for _ in range(200)]
    assert share(many, {"l": 100.0}).tolist() == pytest.approx([0.5] * 200)


# --- the mover ---


def moves_of(count: int, cause: MoveCause, rest: MoveCause | None = None) -> list[FlowMove]:
    return [
        FlowMove(f"f{k}", "j", "a", "b", rest if rest is not None and k else cause, "", S)
        for k in range(count)
    ]


@pytest.mark.parametrize(
    ("group", "taken", "most", "done"),
    [
        (moves_of(3, MoveCause.CROWDED), 0, 3, 3), (moves_of(3, MoveCause.CROWDED), 1, 4, 3),
        (moves_of(3, MoveCause.CROWDED), 1, 3, None),  # a chain is done as a whole, next time
        (moves_of(4, MoveCause.CROWDED), 0, 3, 3),  # larger than what may be done at all: begun
        (moves_of(4, MoveCause.CROWDED), 1, 3, None), (moves_of(4, MoveCause.DEAD), 0, 3, 3),
        (moves_of(4, MoveCause.DEAD, MoveCause.ROOM), 0, 3, 3),
        (moves_of(4, MoveCause.DEAD), 1, 3, None),
    ],
)  # fmt: skip
def test_a_chain_of_moves_is_done_as_a_whole(
    group: list[FlowMove], taken: int, most: int, done: int | None
) -> None:
    mover = Mover(MovePolicy(max_moves=most))
    mine = list(group)
    may = mover._affordable(mine, moves_of(taken, MoveCause.CROWDED), S)
    assert (len(mine) if may else None) == done
    if may and MoveCause.ROOM in {move.cause for move in group}:
        assert mine[0].cause is not MoveCause.ROOM, "those that suffer first"


def test_flows_are_the_same_whatever_path_they_are_on() -> None:
    flows = leaf_spine([(0, 2), (1, 3)], spines=2, hosts=2)
    again = leaf_spine([(0, 2), (1, 3)], spines=2, hosts=2)
    assert _same(flows, again)
    assert _same(flows, [replace(flow, path_id="s1") for flow in again])
    assert not _same(flows, again[:1])
    changes = ({"weight": 2.0}, {"demand_bps": 5}, {"priority": Priority.SCAVENGER},
               {"flow_id": "x"}, {"paths": again[0].paths[:1]})  # fmt: skip
    for change in changes:
        assert not _same(flows, [again[0], replace(again[1], **change)])


@pytest.mark.parametrize(
    ("queue_ns", "age_ns", "left"),
    [(MovePolicy().queue_ns - 1, 0, True), (MovePolicy().queue_ns, 0, False),
     (MovePolicy().queue_ns, MovePolicy().stale_ns, False),
     (MovePolicy().queue_ns, MovePolicy().stale_ns + 1, True)],
)  # fmt: skip
def test_a_path_that_queues_though_it_should_be_empty_is_not_gone_to(
    queue_ns: int, age_ns: int, left: bool
) -> None:
    flows = colliding(2, 2)
    at_ns = 100 * S
    delays = {(f.flow_id, "s0"): PathDelay(at_ns, 200_000, 0) for f in flows}
    delays |= {(f.flow_id, "s1"): PathDelay(at_ns - age_ns, queue_ns, 0) for f in flows}
    links = {link: 100 * GBPS for f in flows for p in f.paths for link in p.links}
    mover = Mover()
    mover.update(flows)
    moves = mover.step(Measurements(delays=delays, capacities=links), at_ns)
    assert bool(moves) is left


def test_trials_of_flows_that_are_gone_are_over() -> None:
    mover = Mover()
    mover.update(colliding())
    move = FlowMove("j0", "j", "s0", "s1", MoveCause.CROWDED, "", S)
    mover._trials = [MoveTrial({"j0": move}, frozenset(), {}, {}, S, {"j0"})]
    assert mover.on_trial == mover.under_way == {"j0"}
    mover.update(colliding()[1:])
    assert mover.on_trial == mover.under_way == frozenset()


# --- connections ---


@pytest.mark.parametrize(("late_ns", "kept"), [((5 * S), True), ((5 * S) + 1, False)])
def test_what_the_listing_has_not_shown_for_a_while_is_gone(late_ns: int, kept: bool) -> None:
    host = Host()
    table = ConnectionTable(POLICY, host.health, host.steering.ports)
    table.by_token[7] = host.conn
    subflow = host.conn.subflows[host.first]
    subflow.seen_ns = host.conn.seen_ns = NOW
    table.forget(NOW + late_ns)
    assert (7 in table.by_token) is (host.first in host.conn.subflows) is kept
    coming = Host()
    coming.announced(1)
    (create,) = of(coming.settle(), Create)
    table.by_token[7] = coming.conn
    table.forget(NOW + 100 * S)
    assert create.flow in coming.conn.subflows, "not listed before it is up"


def test_pairs_are_asked_after_for_connections_of_jobs_alone() -> None:
    host = Host()
    table = ConnectionTable(POLICY, host.health, host.steering.ports)
    table.by_token[7] = host.conn
    assert table.pairs()
    host.conn.job = None
    assert table.pairs() == set()


def test_nothing_is_forgotten_while_nobody_lists() -> None:
    for late_ns, looked in ((S, True), (S + 1, False)):
        found = machine()
        found._listed_ns, found._watch_due_ns = NOW, None
        found.forget(NOW + late_ns)
        assert (found._watch_due_ns is not None) is looked


def test_nothing_is_forgotten_for_the_first_samples_after_a_pause() -> None:
    for late_ns, looked in ((S - 1, False), (S, True)):
        found = machine()
        found.handle(StallEvent(at_ns=NOW, lasted_ns=20 * S))
        found._listed_ns, found._watch_due_ns = NOW + late_ns, None
        found.forget(NOW + late_ns)
        assert (found._watch_due_ns is not None) is looked


def test_after_a_stall_of_our_own_silence_counts_from_then() -> None:
    found = machine()
    (subflow,) = found.connections[7].subflows.values()
    subflow.stalled = STALLED
    assert found.handle(StallEvent(at_ns=NOW + S, lasted_ns=S)) == []
    assert subflow.acked_ns == NOW + S
    assert not found.connections[7].subflows[subflow.flow].stalled
    host = PlainHost()
    subflow = host.machine.plain.flows[INODE].subflow
    subflow.stalled = STALLED
    host.tell(StallEvent(at_ns=3 * S, lasted_ns=S))
    assert subflow.acked_ns == 3 * S
    assert not host.machine.plain.flows[INODE].subflow.stalled


def test_a_join_counts_from_when_the_kernel_was_asked() -> None:
    host = Host()
    host.announced(1)
    (create,) = of(host.settle(), Create)
    found = machine()
    found.connections[7] = host.conn
    found.join_started(create, NOW + 9)
    assert host.conn.subflows[create.flow].since_ns == NOW + 9
    found.join_started(msgspec.structs.replace(create, token=99), NOW + 20)
    found.join_started(
        msgspec.structs.replace(create, flow=host.first._replace(local_port=1)), NOW + 20
    )
    assert host.conn.subflows[create.flow].since_ns == NOW + 9
    found.handle(events.ConnectionDown(at_ns=NOW, token=99))
    assert 7 in found.connections


def test_leaving_waits_for_the_seconds_budget() -> None:
    host = Host()
    host.add(FourTuple(here(1), 61_000, there(1), POLICY.port), "nic1")
    while host.steering._budget.take(NOW):
        pass
    host.kill(0, NOW - POLICY.settle_ns)
    turn = host.settle(NOW)
    assert of(turn, Destroy) == []
    assert NOW < min(turn.dues) <= NOW + S
    assert of(host.settle(NOW + S), Destroy)


def test_who_left_willingly_is_not_lost_and_nothing_is_withdrawn() -> None:
    for cause, lost, withdrawn in (
        (Cause.SURPLUS, False, False), (Cause.CONTENTION, False, False),
        (Cause.DEAD_MAN, False, False), (Cause.PEER, True, False), (Cause.PATH, True, True),
    ):  # fmt: skip
        host = Host()
        host.conn.announced = {"nic0": 1, "nic1": 2}
        host.add(FourTuple(here(1), 61_000, there(1), POLICY.port), "nic1")
        turn = host.settle()
        turn.out.clear()
        host.steering.end(
            turn, host.conn.subflows[host.first], Reason(cause, "e", NOW, NOW)
        )  # fmt: skip
        assert bool(host.conn.lost) is lost, cause
        assert bool(of(turn, Withdraw)) is withdrawn, cause
        assert ("nic0" in host.conn.announced) is not withdrawn
        assert not host.conn.stalls


@pytest.mark.parametrize(("tries", "waits"), [(2, False), (4, True)])
def test_after_joins_in_vain_a_stalled_path_waits_to_be_replaced(tries: int, waits: bool) -> None:
    host = Host()
    host.conn.subflows[host.first].stalled = STALLED
    for _ in range(tries):
        host.conn.tries("nic0", there(0)).failed(NOW, POLICY)
    turn = host.settle(NOW)
    assert bool(of(turn, Create)) is not waits
    if waits:
        due_ns = NOW + POLICY.join_ns
        assert due_ns in turn.dues
        assert of(host.settle(due_ns), Create)


@pytest.mark.parametrize(("failed", "across"), [(3, False), (4, True)])
def test_rails_are_crossed_only_where_none_has_hope(failed: int, across: bool) -> None:
    """One rail is dead; of the other joins have failed, and the next waits."""
    host = Host(rails=3)
    host.announced(0)
    host.announced(1)
    host.conn.subflows.clear()
    host.conn.alone_ns = NOW - S
    host.kill(0, NOW - POLICY.settle_ns)
    tries = host.conn.tries("nic1", there(1))
    tries.count, tries.began_ns, tries.next_ns = failed, NOW, NOW + S
    creates = of(host.settle(NOW), Create)
    assert bool(creates) is across
    ends = [(each.flow.local, each.flow.remote) for each in creates]
    assert not set(ends) & {(here(rail), there(rail)) for rail in range(3)}


def test_an_address_that_was_given_up_is_tried_at_once_where_nothing_else_is_left() -> None:
    """Over its own rail, too: with one rail there is no other."""
    host = Host(rails=1)
    host.announced(0).withdrawn = Reason(Cause.PEER, "withdrawn", NOW - MS, NOW - MS)
    host.conn.subflows.clear()
    host.conn.alone_ns = NOW - S
    for flow_id in (0, 1):
        host.health.liveness(life(flow_id, NOW, alive=False))
    assert host.health.unanswered("nic0", there(0)), "else it would not be waited for anyway"
    [join] = of(host.settle(NOW), Create)
    assert (join.flow.local, join.flow.remote) == (here(0), there(0))


def test_flows_that_are_no_longer_asked_leave_no_death_behind() -> None:
    host = Host()
    for flow_id in (0, 1):
        host.health.liveness(life(flow_id, NOW, alive=False))
    assert host.health.unanswered("nic0", there(0))
    host.health.watch_only(frozenset({10, 11}), NOW)
    assert not host.health.unanswered("nic0", there(0))
    assert host.health.due_ns() is None
    assert not host.health.unanswered("nic1", there(1)), "asked as before"


# --- moves ---


def test_a_peer_that_listens_elsewhere_is_no_place_to_move_to() -> None:
    world = settled()
    conn = world.hosts["a"].machine.connections[7]
    for remote in conn.remotes.values():
        remote.port = JOIN + 1
    give(world, order(world))
    assert outcome(world) == "the peer cannot be joined at the agents' port"
    assert world.hosts["a"].machine.relocation.outcomes[-1].tried


def guarded() -> tuple[Host, FourTuple, Guard]:
    policy = msgspec.structs.replace(POLICY, place=("tr*",))
    host = Host(policy)
    wanted = order(settled())
    guard = Guard(wanted, 1_000, NOW)
    host.conn.guards[host.first] = guard
    return host, host.first, guard


@pytest.mark.parametrize(
    ("bps", "due_ns", "stalled", "reverted"),
    [(899, NOW, False, True), (900, NOW, False, False), (899, NOW + 1, False, False),
     (899, NOW, True, False)],
)  # fmt: skip
def test_a_move_that_nobody_confirmed_is_reverted_if_it_made_things_worse(
    bps: int, due_ns: int, stalled: bool, reverted: bool
) -> None:
    host, flow, guard = guarded()
    guard.due_ns = due_ns
    subflow = host.conn.subflows[flow]
    subflow.meter.tx_bps, subflow.meter.rx_bps = bps - 100, 100
    subflow.stalled = STALLED if stalled else None
    moving = Relocation(host.steering._policy, host.steering)
    turn = Turn(host.conn, NOW, [], [])
    moving.advance(turn)
    assert bool(host.conn.moving) is reverted
    assert (flow in host.conn.guards) is (due_ns > NOW)
    assert (due_ns in turn.dues) is (due_ns > NOW)
    if reverted:
        (create,) = of(turn, Create)
        assert (create.old, create.reason.cause) == (flow, Cause.DEAD_MAN)
        assert "0.0 Mb/s after move m1" in create.reason.evidence


def test_only_the_confirmed_moves_are_kept_whatever_happens() -> None:
    found = machine()
    (flow,) = found.connections[7].subflows
    for move_id, kept in (("m2", True), ("m1", False)):
        found.connections[7].guards = {flow: Guard(order(settled()), 5, NOW)}
        found.confirm(frozenset({move_id}))
        assert bool(found.connections[7].guards) is kept


def test_an_old_subflow_that_may_not_end_yet_is_looked_at_again() -> None:
    world = settled()
    old = on_rail(world.hosts["a"])
    give(world, order(world))
    world.run(50 * MS)
    relocating = world.hosts["a"].machine
    (moving,) = relocating.connections[7].moving.values()
    assert moving.retired_ns is not None
    now_ns = moving.retired_ns + (60 * MS)
    while relocating.steering._budget.take(now_ns):
        pass
    out = relocating._settle(relocating.connections[7], now_ns)
    assert not [each for each in out if isinstance(each, Destroy | Retire)]
    assert old in relocating.connections[7].subflows
    due_ns = relocating._first_due()
    assert due_ns is not None
    assert due_ns <= now_ns + (60 * MS)
    assert moving.new.local_port == PORT

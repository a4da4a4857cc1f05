"""Failover's decisions about one connection at one instant: no simulation, no other host."""

from __future__ import annotations

import pytest
from tests.traffic.one_end import (
    NOW,
    POLICY,
    Host,
    here,
    life,
    nics,
    of,
    there,
    watched,
)

from syntony.model import MS, S
from syntony.model.paths import FourTuple
from syntony.traffic.announcing import Announcer
from syntony.traffic.instructions import (
    Announce,
    Cause,
    Create,
    Destroy,
    Note,
    Reason,
    Withdraw,
)
from syntony.traffic.pairs import Reply, WatchedFlow
from syntony.traffic.policy import FailoverMode, Policy

# --- announcing ---


def test_each_nic_is_announced_once_and_again_when_nobody_came() -> None:
    host = Host(accepted=True)
    first = of(host.settle(), Announce)
    assert [(each.address, each.port, each.local_id) for each in first] == [
        (here(0), POLICY.port, 1), (here(1), POLICY.port, 2)
    ]  # fmt: skip
    assert of(host.settle(NOW + S), Announce) == []
    again_ns = NOW + POLICY.hold_down_max_ns
    turn = host.settle(again_ns - 1)
    assert of(turn, Announce) == []
    assert again_ns in turn.dues
    repeated = of(host.settle(again_ns), Announce)
    assert [each.address for each in repeated] == [here(1)], "the peer has joined the other"


def test_an_announcement_that_was_used_is_not_repeated() -> None:
    host = Host(accepted=True)
    host.settle()
    host.add(FourTuple(here(1), POLICY.port, there(1), 61_000), "nic1")
    turn = host.settle(NOW + POLICY.hold_down_max_ns)
    assert of(turn, Announce) == []
    assert not [due for due in turn.dues if due > NOW + POLICY.hold_down_max_ns]


def test_who_has_no_path_left_calls_at_every_address_once() -> None:
    host = Host(accepted=True)
    host.settle()
    host.conn.subflows.clear()
    call_ns = NOW + 2 * POLICY.join_ns
    assert of(host.settle(NOW), Announce) == []
    turn = host.settle(call_ns - 1)
    assert of(turn, Announce) == [], "two ends that find together by themselves would have"
    assert call_ns in turn.dues
    assert [each.address for each in of(host.settle(call_ns), Announce)] == [here(0), here(1)]
    assert of(host.settle(call_ns + MS), Announce) == [], "once"


def test_a_call_is_for_all_with_a_carrier_and_nothing_else_for_those_that_are_fit() -> None:
    host = Host(accepted=True, rails=3)
    host.carrier("nic2", up=False)
    host.kill(1)
    fit = of(host.settle(), Announce)
    assert [each.address for each in fit] == [here(0)] or [each.address for each in fit] == [
        here(0), here(1)
    ]  # fmt: skip
    host.conn.subflows.clear()
    host.settle(NOW + S)
    called = of(host.settle(NOW + 2 * S), Announce)
    assert [each.address for each in called] == [here(0), here(1)], "the third has no carrier"


def test_a_nic_that_was_left_is_announced_when_its_hold_down_is_over() -> None:
    host = Host(accepted=True)
    host.announced(1)
    host.conn.lost["nic1", there(1)] = Reason(Cause.PATH, "", NOW, NOW)
    host.kill(1)
    assert [each.address for each in of(host.settle(NOW + 20 * MS), Announce)] == [here(0)]
    for flow_id in (10, 11):
        host.health.liveness(life(flow_id, NOW + 200 * MS, alive=True))
    until_ns = host.health.usable_from_ns("nic1", there(1))
    assert until_ns >= NOW + 200 * MS + POLICY.hold_down_ns
    turn = host.settle(until_ns - 1)
    assert of(turn, Announce) == []
    assert until_ns in turn.dues
    assert [each.address for each in of(host.settle(until_ns), Announce)] == [here(1)]


def test_what_is_dead_on_another_rail_does_not_keep_a_nic_from_being_announced() -> None:
    host = Host(accepted=True)
    host.announced(0)
    host.announced(1)
    host.health.watch([*watched(), WatchedFlow(30, "nic1", there(0), "peer/nic0", 0)])
    host.conn.lost["nic1", there(1)] = Reason(Cause.PATH, "", NOW, NOW)
    found = Announcer(POLICY, host.health)
    assert found._from_ns(host.conn, nics()[1], call=False) == 0
    host.health._pairs["nic1", there(0)].dead = Reason(Cause.PATH, "", NOW, NOW)
    assert found._from_ns(host.conn, nics()[1], call=False) == 0
    host.health._pairs["nic1", there(1)].dead = Reason(Cause.PATH, "", NOW, NOW)
    assert found._from_ns(host.conn, nics()[1], call=False) is None


def test_ipv6_is_announced_without_a_port_and_listened_at_by_who_accepted() -> None:
    for accepted, listens in ((True, 33_000), (False, 0)):
        host = Host(accepted=accepted, six=True)
        orders = of(host.settle(), Announce)
        assert [(each.address, each.port, each.listen_port) for each in orders] == [
            ("fd00::1", 0, listens), ("fd01::1", 0, listens)
        ]  # fmt: skip
        assert [each.joined for each in orders] == [True, False]


# --- leaving ---


def test_a_dead_path_is_left_for_a_living_one_and_withdrawn() -> None:
    host = Host()
    host.settle()
    second = FourTuple(here(1), 61_000, there(1), POLICY.port)
    host.add(second, "nic1")
    host.kill(0)
    turn = host.settle(NOW + 10 * MS)
    (destroyed,) = of(turn, Destroy)
    assert (destroyed.flow, destroyed.new) == (host.first, second)
    (withdrawn,) = of(turn, Withdraw)
    assert (withdrawn.address, withdrawn.local_id) == (here(0), 1)
    assert turn.out.index(destroyed) < turn.out.index(withdrawn)
    assert host.conn.lost["nic0", there(0)] == destroyed.reason
    assert list(host.conn.subflows) == [second]
    assert list(host.conn.ended) == [host.first]


def test_an_address_that_another_subflow_uses_is_not_withdrawn() -> None:
    host = Host()
    host.settle()
    host.add(FourTuple(here(1), 61_000, there(1), POLICY.port), "nic1")
    host.add(FourTuple(here(0), 61_001, there(1), POLICY.port), "nic0")
    host.kill(0)
    turn = host.settle(NOW + 10 * MS)
    assert [each.flow for each in of(turn, Destroy)] == [host.first]
    assert of(turn, Withdraw) == []


@pytest.mark.parametrize("mode", [FailoverMode.ACT, FailoverMode.OBSERVE])
def test_the_last_path_is_kept_and_that_is_told_once(mode: FailoverMode) -> None:
    host = Host(Policy(mode=mode, min_paths=1))
    host.kill(0)
    turn = host.settle(NOW + 10 * MS)
    assert of(turn, Destroy) == []
    assert [each.action for each in of(turn, Note)] == ["keep-last-path"]
    assert of(host.settle(NOW + 20 * MS), Note) == []


def test_observing_it_only_says_what_it_would_leave() -> None:
    host = Host(Policy(mode=FailoverMode.OBSERVE))
    host.add(FourTuple(here(1), 61_000, there(1), POLICY.port), "nic1")
    host.kill(0)
    turn = host.settle(NOW + 10 * MS)
    assert [each.action for each in of(turn, Note)] == ["would-leave"]
    assert len(turn.out) == 1
    assert len(host.conn.subflows) == 2


@pytest.mark.parametrize(("least", "left"), [(1, True), (2, False)])
def test_no_more_paths_are_left_than_policy_allows(least: int, left: bool) -> None:
    host = Host(Policy(mode=FailoverMode.ACT, min_paths=least))
    host.add(FourTuple(here(1), 61_000, there(1), POLICY.port), "nic1")
    host.kill(0)
    assert bool(of(host.settle(NOW + 10 * MS), Destroy)) is left


def test_a_path_is_not_left_for_one_that_may_be_dying_too() -> None:
    host = Host()
    host.add(FourTuple(here(1), 61_000, there(1), POLICY.port), "nic1")
    host.kill(0)
    for flow_id in (10, 11):
        host.health.liveness(life(flow_id, NOW, alive=False))
    now_ns = NOW + 10 * MS
    turn = host.settle(now_ns)
    assert of(turn, Destroy) == []
    assert of(turn, Note) == []
    assert now_ns + POLICY.settle_ns in turn.dues


def test_a_path_of_a_nic_that_is_not_ours_is_lost_by_the_name_it_is_found_by() -> None:
    host = Host()
    host.add(FourTuple(here(1), 61_000, there(1), POLICY.port), "nic1")
    foreign = host.add(FourTuple("192.0.2.1", 61_002, there(1), POLICY.port), None)
    host.steering.end(host.settle(), foreign, Reason(Cause.FABRIC, "", NOW, NOW))
    assert host.conn.lost.keys() == {foreign.pair}
    assert host.conn.stalls.keys() == {foreign.pair}


def test_an_address_that_has_gone_from_the_machine_is_a_fault_of_its_own() -> None:
    host = Host()
    gone = host.add(FourTuple("10.0.0.77", 61_000, there(0), POLICY.port), "nic0")
    fault = host.steering.fault(host.conn, gone)
    assert fault is not None
    assert fault.cause is Cause.ADDRESS
    assert host.steering.fault(host.conn, host.conn.subflows[host.first]) is None
    foreign = host.add(FourTuple("192.0.2.1", 61_002, there(1), POLICY.port), None)
    assert host.steering.fault(host.conn, foreign) is None, "not ours to judge"


def test_a_withdrawn_address_is_left() -> None:
    host = Host()
    second = host.add(FourTuple(here(1), 61_000, there(1), POLICY.port), "nic1")
    why = Reason(Cause.PEER, "the peer has withdrawn the address", NOW, NOW)
    host.announced(1).withdrawn = why
    assert host.steering.fault(host.conn, second) == why
    turn = host.settle()
    assert [each.flow for each in of(turn, Destroy)] == [second.flow]
    assert of(turn, Withdraw) == [], "our end of it is well"


# --- joining ---


def test_an_announced_rail_is_joined_from_our_ports_and_given_up_after_its_time() -> None:
    host = Host()
    host.announced(1)
    (create,) = of(host.settle(), Create)
    assert (create.flow.local, create.flow.remote) == (here(1), there(1))
    assert create.flow.remote_port == POLICY.port
    assert POLICY.port_low <= create.flow.local_port <= POLICY.port_high
    turn = host.settle(NOW + POLICY.join_ns - 1)
    assert not of(turn, Create) + of(turn, Destroy)
    assert NOW + POLICY.join_ns in turn.dues
    turn = host.settle(NOW + POLICY.join_ns)
    assert [each.flow for each in of(turn, Destroy)] == [create.flow]
    (again,) = of(turn, Create)
    assert again.flow != create.flow, "from another port"


def test_what_the_kernel_has_told_and_nobody_read_is_no_failed_join() -> None:
    host = Host()
    host.announced(1)
    host.settle()
    host.steering.events_read_ns = NOW + POLICY.join_ns - 1
    assert of(host.settle(NOW + S), Destroy) == []
    host.steering.events_read_ns = NOW + POLICY.join_ns
    assert of(host.settle(NOW + S), Destroy)


@pytest.mark.parametrize(
    ("lost", "away_ns", "reason"),
    [
        (None, 0, (Cause.JOIN, "both NICs are of one rail")),
        (Cause.REMOTE_NIC, 1_500 * MS, (Cause.RETURN, "remote-nic, 1500 ms ago")),
        (Cause.LOCAL_NIC, 20 * MS, (Cause.RETURN, "local-nic, 20 ms ago")),
        # Another way between the same NICs: nothing has come back.
        (Cause.FABRIC, POLICY.hold_down_ns - 1, (Cause.FABRIC, "stalled")),
        (Cause.FABRIC, POLICY.hold_down_ns, (Cause.RETURN, "fabric, 1000 ms ago")),
    ],
)
def test_a_join_says_what_it_is_for(
    lost: Cause | None, away_ns: int, reason: tuple[Cause, str]
) -> None:
    host = Host()
    host.announced(1)
    if lost is not None:
        at_ns = NOW - away_ns
        host.conn.lost["nic1", there(1)] = Reason(lost, "stalled", at_ns, at_ns)
    (create,) = of(host.settle(), Create)
    assert (create.reason.cause, create.reason.evidence) == reason


def test_a_join_to_a_torn_pair_says_so() -> None:
    host = Host()
    host.announced(1)
    host.conn.lost["nic1", there(1)] = Reason(Cause.FABRIC, "stalled", NOW - 5 * S, NOW - 5 * S)
    more = [WatchedFlow(20 + n, "nic1", there(1), "peer/nic1", 1) for n in (0, 1)]
    host.health.watch([*watched(), *more])
    for flow_id in (10, 11):
        host.health.liveness(life(flow_id, NOW - 4 * S, alive=False))
    for flow in more:
        host.health.liveness(life(flow.flow_id, NOW, alive=True))
    host.health.revive_answered({20: Reply(NOW)}, NOW)
    assert host.health.is_partial("nic1", there(1))
    creates = of(host.settle(), Create)
    reported = "fabric, 5000 ms ago; some source ports are still silent"
    assert {create.reason.evidence for create in creates} == {reported}


def test_who_accepted_does_not_join_and_who_may_not_act_does_nothing() -> None:
    accepted = Host(accepted=True)
    accepted.announced(1)
    assert of(accepted.settle(), Create) == []
    for policy, stopped in ((Policy(mode=FailoverMode.OBSERVE), False), (POLICY, True)):
        host = Host(policy)
        host.announced(1)
        host.steering.stopped = stopped
        assert host.settle().out == []
    free = Host()
    free.conn.job = ""
    free.announced(1)
    assert free.settle().out == []


def test_a_rail_with_a_hold_down_waits_unless_nothing_else_is_left() -> None:
    host = Host()
    host.announced(1)
    host.kill(1)
    for flow_id in (10, 11):
        host.health.liveness(life(flow_id, NOW + S, alive=True))
    until_ns = host.health.usable_from_ns("nic1", there(1))
    turn = host.settle(until_ns - 1)
    assert of(turn, Create) == []
    assert until_ns in turn.dues
    host.conn.subflows.clear()
    alone = of(host.settle(until_ns - 1), Create)
    assert [each.flow.remote for each in alone] == [there(1)]


def test_an_address_that_was_withdrawn_is_tried_again_the_sooner_if_it_answers() -> None:
    why = Reason(Cause.PEER, "", NOW, NOW)
    for answers, wait_ns in ((True, POLICY.join_max_ns), (False, POLICY.hold_down_max_ns)):
        host = Host()
        host.announced(1).withdrawn = why
        if not answers:
            host.health.watch(watched(1))
        assert of(host.settle(NOW + wait_ns - 1), Create) == []
        assert len(of(host.settle(NOW + wait_ns), Create)) == 1


def test_without_a_rail_that_lives_at_both_ends_rails_are_crossed() -> None:
    host = Host(rails=3)
    host.announced(1)
    host.conn.subflows.clear()
    host.carrier("nic1", up=False)
    call_ns = NOW + 2 * POLICY.join_ns
    assert of(host.settle(NOW), Create) == []
    assert of(host.settle(call_ns - 1), Create) == []
    (create,) = of(host.settle(call_ns), Create)
    assert (create.flow.local, create.flow.remote) in {(here(0), there(1)), (here(2), there(1))}
    assert create.reason.evidence == "no rail lives at both ends"
    assert of(host.settle(call_ns + MS), Create) == [], "one at a time"


def test_a_subflow_across_rails_ends_when_one_of_a_rail_is_there() -> None:
    host = Host()
    host.announced(1)
    host.announced(0)
    across = host.add(FourTuple(here(0), 61_000, there(1), POLICY.port), "nic0", NOW)
    turn = host.settle(NOW + POLICY.hold_down_ns - 1)
    assert of(turn, Destroy) == []
    assert NOW + POLICY.hold_down_ns in turn.dues
    host.add(FourTuple(here(1), 61_005, there(1), POLICY.port), "nic1", NOW)
    (ended,) = of(host.settle(NOW + POLICY.hold_down_ns), Destroy)
    assert (ended.flow, ended.reason.cause) == (across.flow, Cause.SURPLUS)
    only = Host()
    only.announced(1)
    only.conn.subflows.clear()
    only.add(across.flow, "nic0", 0)
    only.carrier("nic1", up=False)
    assert of(only.settle(), Destroy) == [], "nothing else is left"


def test_of_two_over_one_pair_the_later_ends_and_only_the_initiator_ends_it() -> None:
    for accepted in (False, True):
        host = Host(accepted=accepted)
        twin = host.add(FourTuple(here(0), 61_000, there(0), POLICY.port), "nic0", NOW)
        ended = of(host.settle(NOW + POLICY.hold_down_ns), Destroy)
        assert [each.flow for each in ended] == ([] if accepted else [twin.flow])


def test_a_stalled_way_is_replaced_before_it_is_left_where_it_is_the_only_one() -> None:
    host = Host()
    stalled = Reason(Cause.FABRIC, "stuck", NOW, NOW)
    host.conn.subflows[host.first].stalled = stalled
    (create,) = of(host.settle(), Create)
    assert (create.old, create.reason) == (host.first, stalled)
    assert of(host.settle(NOW + MS), Create) == [], "one at a time"
    host.conn.subflows.pop(create.flow)
    host.add(create.flow, "nic0", NOW)
    ended = of(host.settle(NOW + 2 * MS), Destroy)
    assert [each.flow for each in ended] == [host.first]
    assert not host.steering.ports.good(host.first.local, host.first.remote, 33_000)


def test_a_stall_is_no_matter_of_the_way_where_the_pair_itself_may_be_dying() -> None:
    host = Host()
    host.conn.subflows[host.first].stalled = Reason(Cause.FABRIC, "stuck", NOW, NOW)
    for flow_id in (0, 1):
        host.health.liveness(life(flow_id, NOW, alive=False))
    assert of(host.settle(), Create) == []


def test_who_may_not_act_says_what_would_be_replaced() -> None:
    host = Host(Policy(mode=FailoverMode.OBSERVE))
    host.conn.subflows[host.first].stalled = Reason(Cause.FABRIC, "stuck", NOW, NOW)
    assert [each.action for each in of(host.settle(), Note)] == ["would-replace"]
    assert host.settle(NOW + S).out == []


def test_peers_that_never_announced_are_joined_by_the_plan_when_they_answer() -> None:
    by_ns = NOW + 50 * MS
    host, silent = Host(), Host()
    host.conn.announced_by_ns = silent.conn.announced_by_ns = by_ns
    turn = host.settle(by_ns - 1)
    assert of(turn, Create) == []
    assert by_ns in turn.dues
    (create,) = of(host.settle(by_ns), Create)
    assert create.flow.remote == there(1)
    for flow_id in (10, 11):
        silent.health.liveness(life(flow_id, 0, alive=False))
    assert of(silent.settle(by_ns), Create) == []


def test_actions_beyond_the_budget_of_a_second_wait_their_turn() -> None:
    host = Host(Policy(mode=FailoverMode.ACT, max_actions_per_s=1), rails=3)
    host.steering.events_read_ns = NOW  # no join is given up meanwhile
    host.announced(1)
    host.announced(2)
    first = host.settle()
    assert len(of(first, Create)) == 1
    assert NOW + S in first.dues
    later = host.settle(NOW + S)
    assert {each.flow.remote for each in of(first, Create) + of(later, Create)} == {
        there(1), there(2)
    }  # fmt: skip

"""What seldom happens to connections, one event at a time: late, double, foreign, withdrawn."""

from __future__ import annotations

import errno

import msgspec
import numpy as np
import pytest
from tests.traffic.flow_samples import flow_sample
from tests.traffic.one_end import NOW, POLICY, Host, here, life, nics, there, watched
from tests.traffic.test_plain import INODE, OTHER, OWN, redirects
from tests.traffic.test_plain import Host as PlainHost
from tests.traffic.test_relocate import give, on_rail, order, outcome, settled

from syntony.model import MS, S
from syntony.model.paths import FourTuple, LinkEvent
from syntony.traffic import events
from syntony.traffic.connection import FIRST_SUBFLOW_ID, MptcpConnection, SubflowState
from syntony.traffic.connection_table import ConnectionTable
from syntony.traffic.failover import Failover
from syntony.traffic.fair import max_min
from syntony.traffic.health import SETTLED_NS, Health
from syntony.traffic.instructions import Cause, Create, Destroy, KernelRefusal, Reason, Retire
from syntony.traffic.moving import Outcome
from syntony.traffic.pairs import Reply, WatchedFlow
from syntony.traffic.plain import MAX_OWNER_LOOKUPS
from syntony.traffic.policy import FailoverMode, Policy
from syntony.traffic.probe_plan import PlannedNics
from syntony.traffic.relocate import GIVE_UP_NS
from syntony.traffic.source_ports import SourcePorts
from syntony.traffic.standby import refused_standby

TOKEN = 7
FIRST = FourTuple(here(0), 33_000, there(0), 5_000)
SECOND = FourTuple(here(1), 61_000, there(1), POLICY.port)
WHY = Reason(Cause.LOCAL_NIC, "e", NOW, NOW)


class Table:
    """One connection of a table, by the events that it hears of."""

    def __init__(self, *, accepted: bool = False) -> None:
        self.health = Health(POLICY, nics())
        self.health.watch(watched())
        self.ports = SourcePorts(POLICY, 1)
        self.table = ConnectionTable(POLICY, self.health, self.ports)
        self.conn = self.table.established(
            events.ConnectionUp(at_ns=NOW, token=TOKEN, flow=FIRST, accepted=accepted)
        )

    def refused(self, instruction: Create | Destroy, code: int = errno.EINVAL) -> KernelRefusal:
        return KernelRefusal(at_ns=NOW, instruction=instruction, errno=code, text="no")


def create(flow: FourTuple) -> Create:
    return Create(token=TOKEN, job="train", flow=flow, local_id=2, reason=WHY)


# --- connections ---


def test_a_connections_first_subflow_is_the_kernels_number_zero() -> None:
    assert Table().conn.subflows[FIRST].local_id == 0


def test_an_announcement_that_overtakes_its_connection_makes_it() -> None:
    table = Table().table
    early = events.AddressAnnounced(at_ns=NOW, token=9, remote_id=2, address=there(1), port=1)
    conn = table.find(early)
    assert conn is not None
    assert conn.accepted, "the peer's side is established first"
    table.take(conn, early)
    later = table.established(
        events.ConnectionUp(at_ns=NOW, token=9, flow=FIRST._replace(local_port=1), accepted=True)
    )
    assert later.remotes[2].address == there(1), "and is not forgotten"
    assert table.find(events.JobFound(at_ns=NOW, token=11, job="train")) is None
    assert 11 not in table.by_token


def test_a_renamed_nic_keeps_what_it_announced_and_its_subflows() -> None:
    found = Table()
    found.conn.announced = {"nic0": 1, "nic1": 2}
    event = LinkEvent(at_ns=NOW, nic="eth9", carrier=True, admin_up=True, addresses=(here(0),),
                      carrier_down_count=0)  # fmt: skip
    found.table.renamed(event)
    assert found.conn.announced == {"eth9": 1, "nic1": 2}
    assert found.conn.subflows[FIRST].nic == "eth9"
    found.table.renamed(msgspec.structs.replace(event, nic="nic1", addresses=(here(1),)))
    assert found.conn.subflows[FIRST].nic == "eth9", "not its address"


def test_a_new_plan_may_know_other_rails() -> None:
    found = Table()
    found.table.take(found.conn, events.AddressAnnounced(
        at_ns=NOW, token=TOKEN, remote_id=4, address="10.9.0.2", port=0))  # fmt: skip
    assert (found.conn.remotes[4].rail, found.conn.remotes[4].port) == (3, 5_000)
    moved = WatchedFlow(90, "nic1", "10.9.0.2", "peer/nic1", 1)
    found.health.watch([*watched(), moved])
    found.table.replan()
    assert found.conn.remotes[4].rail == 1


def test_a_host_that_is_given_a_new_plan_looks_at_its_connections_again() -> None:
    machine = Failover(POLICY, nics(), seed=1)
    machine.watch(watched(), NOW)
    machine.handle(events.ConnectionUp(at_ns=NOW, token=TOKEN, flow=FIRST, accepted=False))
    machine.handle(events.AddressAnnounced(
        at_ns=NOW, token=TOKEN, remote_id=4, address="10.9.0.2", port=0))  # fmt: skip
    assert machine.connections[TOKEN].remotes[4].rail == 3
    machine.watch([*watched(), WatchedFlow(90, "nic1", "10.9.0.2", "peer/nic1", 1)], NOW)
    assert machine.connections[TOKEN].remotes[4].rail == 1


def test_what_was_given_up_and_comes_up_all_the_same_is_not_taken() -> None:
    found = Table()
    up = events.SubflowUp(at_ns=NOW, token=TOKEN, flow=SECOND, local_id=2, remote_id=2)
    found.conn.ended.append(SECOND)
    assert found.table.take(found.conn, up) == ()
    assert SECOND not in found.conn.subflows
    found.conn.ended.clear()
    found.table.take(found.conn, up)
    assert found.conn.subflows[SECOND].state is SubflowState.UP


def test_a_refused_end_is_ordered_again_and_a_refused_join_without_a_subflow_is_forgotten() -> None:
    found = Table()
    found.conn.ended.append(FIRST)
    end = Destroy(token=TOKEN, job="train", flow=FIRST, reason=WHY)
    assert found.table.take(found.conn, found.refused(end, errno.ESRCH)) == ()
    assert FIRST not in found.conn.ended
    assert found.table.take(found.conn, found.refused(create(SECOND))) == ()
    assert not found.ports.good(SECOND.local, SECOND.remote, SECOND.local_port)
    assert found.conn.tries("nic1", there(1)).count == 0, "nobody waits for it"


def test_the_end_of_a_subflow_that_is_not_known_says_nothing() -> None:
    found = Table()
    down = events.SubflowDown(at_ns=NOW, token=TOKEN, flow=SECOND, error=0)
    assert found.table.take(found.conn, down) == ()
    assert not found.conn.lost


@pytest.mark.parametrize(
    ("cause", "before", "after"),
    [(Cause.SLOW, True, False), (Cause.RETURN, False, True), (Cause.CONTENTION, True, True),
     (Cause.CONTENTION, False, False)],
)  # fmt: skip
def test_what_the_kernel_did_not_put_on_standby_is_as_it_was(
    cause: Cause, before: bool, after: bool
) -> None:
    subflow = Host().conn.subflows[FIRST]
    reason = Reason(cause, "e", NOW, NOW)
    subflow.slow.reason = reason if before else None
    refused_standby(subflow, Retire(token=TOKEN, job="j", flow=FIRST, reason=reason))
    assert subflow.on_standby is after


# --- what is known of pairs ---


def test_news_of_flows_that_are_not_planned_are_none() -> None:
    health = Host().health
    assert health.liveness(life(99, NOW, alive=True)) is False
    assert health.revive_answered({99: Reply(NOW)}, NOW) is False
    assert health.dead("nic0", there(0)) is None


def test_a_pair_that_is_believed_in_is_not_given_up_before_then() -> None:
    host = Host()
    for flow_id in (0, 1):
        host.health.liveness(life(flow_id, NOW, alive=False))
    pair = ("nic0", there(0))
    assert host.health.since_ns(pair) == NOW
    host.health.keep_until(pair, NOW + S)
    host.health.keep_until(pair, NOW + MS)
    assert host.health.due_ns() == NOW + S
    assert not host.health.decide_deaths(NOW + S - 1)
    assert host.health.decide_deaths(NOW + S) == [pair]
    host.health.presume_dead({pair: NOW}, NOW)
    assert host.health.since_ns(pair) is None, "it has been given its time"


def test_a_nic_is_settled_when_it_has_been_as_it_is_for_a_while() -> None:
    host = Host()
    host.carrier("nic0", up=False)
    for after_ns, settled_ in ((SETTLED_NS, False), (SETTLED_NS + 1, True)):
        assert host.health.settled("nic0", NOW + after_ns) is settled_
    assert not host.health.settled("none", NOW + S)


def test_other_addresses_of_a_remote_nic_are_its_aliases() -> None:
    plan = PlannedNics(watched())
    assert plan.aliases([there(0)]) == {there(0), "fd00::2"}
    assert plan.aliases([there(1), "x"]) == {there(1), "fd01::2", "x"}
    assert plan.aliases([]) == set()


def test_outcomes_are_done_when_the_flow_has_moved() -> None:
    for result, done in (("moved", True), ("reverted", False), ("no such subflow", False)):
        assert Outcome(move_id="m", result=result, at_ns=0, tried=True).done is done


def test_what_nothing_limits_has_no_end() -> None:
    rates = max_min(np.array([[-1], [0]], dtype=np.int32), np.array([100.0]))
    assert rates.tolist() == [np.inf, 100.0]
    assert max_min(np.array([[-1]], dtype=np.int32), np.array([100.0]), None,
                   np.array([7.0])).tolist() == [7.0]  # fmt: skip


# --- steering ---


def test_the_last_path_stays_where_the_peer_cannot_be_joined() -> None:
    host = Host(accepted=True)
    host.conn.subflows[host.first].stalled = Reason(Cause.FABRIC, "stalled", NOW, NOW)
    turn = host.settle()
    notes = [each.action for each in turn.out if hasattr(each, "action")]
    assert "keep-last-path" in notes
    assert not [each for each in turn.out if isinstance(each, Create)]


def test_rails_without_an_address_of_the_family_are_not_wanted() -> None:
    host = Host(six=True)
    host.health._nics["nic1"].addresses = (here(1),)
    ways = list(host.steering._peers.join_pairs(_with_remotes(host.conn), 6))
    assert [way.nic for way in ways] == ["nic0"]


def _with_remotes(conn: MptcpConnection) -> MptcpConnection:
    from syntony.traffic.connection import RemoteAddress

    conn.remotes = {1: RemoteAddress("fd00::2", 0, 0), 2: RemoteAddress("fd01::2", 0, 1)}
    return conn


# --- moves ---


def test_a_flow_that_failover_has_in_hand_is_not_moved() -> None:
    world = settled()
    flow = on_rail(world.hosts["a"])
    subflow = world.hosts["a"].machine.connections[7].subflows[flow]
    subflow.stalled = Reason(Cause.FABRIC, "stalled", world.now_ns, world.now_ns)
    give(world, order(world))
    assert outcome(world) == "failover has it in hand"
    assert world.hosts["a"].machine.relocation.outcomes[-1].tried is False


def test_a_move_whose_old_subflow_goes_by_itself_is_done() -> None:
    world = settled()
    old = on_rail(world.hosts["a"])
    give(world, order(world))
    world.run(5 * MS)
    conn = world.hosts["a"].machine.connections[7]
    del conn.subflows[old]
    world.hosts["a"].machine._settle(conn, world.now_ns)
    assert outcome(world) == "moved"
    assert not conn.moving


def test_an_old_subflow_that_does_not_end_is_carried_on_with() -> None:
    world = settled()
    old = on_rail(world.hosts["a"])
    give(world, order(world))
    world.run(50 * MS)
    machine = world.hosts["a"].machine
    (moving,) = machine.connections[7].moving.values()
    assert moving.retired_ns is not None
    out = machine._settle(machine.connections[7], moving.began_ns + GIVE_UP_NS)
    assert outcome(world) == "the old subflow could not be ended in time"
    (back,) = [each for each in out if isinstance(each, Retire)]
    assert (back.flow, back.retired) == (old, False)


def test_orders_beyond_the_seconds_budget_are_not_carried_out() -> None:
    world = settled(policy=Policy(mode=FailoverMode.ACT, place=("tr*",), max_actions_per_s=1))
    for number in range(4):
        give(world, order(world, move_id=f"m{number}", flow=on_rail(world.hosts["a"], number % 2)))
    reported = [each.result for each in world.hosts["a"].machine.relocation.outcomes]
    assert "the second's budget of actions is spent" in reported


# --- plain connections ---


def test_whose_a_socket_is_is_asked_until_it_is_known_or_often_enough() -> None:
    host = PlainHost()
    plain = host.machine.plain
    sample = host.sample()
    assert not plain.is_new(sample), "it is known"
    stranger = msgspec.structs.replace(sample, inode=77, flow=OWN._replace(local_port=9))
    assert plain.is_new(stranger)
    host.tell(stranger)
    for requested in range(MAX_OWNER_LOOKUPS):
        assert plain.is_new(stranger), requested
        assert plain.owner(events.SocketOwner(at_ns=0, inode=77, job="")) == []
    assert not plain.is_new(stranger)
    assert plain.is_new(msgspec.structs.replace(stranger, flow=OTHER)), "another connection by now"
    assert not plain.is_new(msgspec.structs.replace(stranger, token=5))
    assert not plain.is_new(msgspec.structs.replace(stranger, inode=0))
    off = PlainHost(Policy(mode=FailoverMode.ACT, plain=False)).machine.plain
    assert not off.is_new(stranger)
    assert off.sample(stranger) == []


def test_a_way_on_which_the_peer_is_heard_is_no_news_where_we_are_on_it() -> None:
    host = PlainHost()
    host.carrier("n0", up=False)
    known = host.machine.plain.flows[INODE]
    host.now_ns += S
    assert redirects(host.tell(events.WireReceived(at_ns=host.now_ns, wire=known.wire))) == []
    assert known.peer_received_ns == host.now_ns
    stranger = FourTuple("10.7.0.1", 1, "10.7.0.2", 2)
    assert host.tell(events.WireReceived(at_ns=host.now_ns, wire=stranger)) == []
    assert host.tell(events.WireReceived(at_ns=host.now_ns, wire=OWN)) == [], "its own way"


def test_a_way_that_is_another_connections_by_now_or_whose_address_is_gone_is_left() -> None:
    host = PlainHost()
    host.carrier("n0", up=False)
    plain = host.machine.plain
    known = plain.flows[INODE]
    known.wires = tuple(way for way in known.wires if way != known.wire)
    fault = plain._fault(known)
    assert fault is not None
    assert (fault.cause, "another connection" in fault.evidence) == (Cause.ADDRESS, True)
    gone = plain._pair_fault(OWN._replace(local="10.8.0.1"))
    assert gone is not None
    assert gone.evidence == "10.8.0.1 is no longer here"


def test_a_detour_beyond_the_seconds_budget_waits_its_turn() -> None:
    host = PlainHost()
    plain = host.machine.plain
    for _ in range(10_000):
        if not plain._budget.take(host.now_ns):
            break
    assert host.carrier("n0", up=False) == []
    due_ns = plain.due_ns()
    assert due_ns is not None
    assert host.now_ns < due_ns <= host.now_ns + S
    host.now_ns = due_ns
    assert redirects(plain.tick(due_ns))


def test_a_sample_of_a_subflow_that_was_ended_changes_nothing() -> None:
    world = settled()
    host = world.hosts["a"]
    flow = on_rail(host)
    conn = host.machine.connections[7]
    del conn.subflows[flow]
    conn.ended.append(flow)
    sample = flow_sample(flow, world.now_ns, token=7, bytes_acked=1, bytes_received=1)
    assert host.machine.handle(sample) == []
    assert flow not in conn.subflows


def test_a_new_subflow_has_an_address_id_that_none_from_before_our_time_has() -> None:
    """To make room under an id the kernel ends every subflow that has it."""
    table = Table()
    sample = flow_sample(
        SECOND, NOW, token=TOKEN + 1, local_id=FIRST_SUBFLOW_ID, bytes_acked=1, bytes_received=1
    )
    conn, _ = table.table.sampled(sample)
    up = events.SubflowUp(
        at_ns=NOW, token=conn.token, flow=SECOND._replace(local_port=61_001),
        local_id=FIRST_SUBFLOW_ID + 1, remote_id=2,
    )  # fmt: skip
    table.table.take(conn, up)
    assert conn.new_id() == FIRST_SUBFLOW_ID + 2

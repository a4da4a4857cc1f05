"""Plain connections: which ways there are, when one is left, followed, and gone back to."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import mostly_slow
from tests.traffic.flow_samples import flow_sample
from tests.traffic.two_ends import TwoEnds

from syntony.agent.pacing import socket_key
from syntony.agent.steering.orders import flows_report
from syntony.model import MS, S
from syntony.model.paths import FlowSample, FourTuple, LinkEvent, LivenessEvent, PathEvent
from syntony.traffic import events
from syntony.traffic.failover import Event, Failover
from syntony.traffic.flows import ReportedFlow, job_flows
from syntony.traffic.instructions import (
    Cause,
    Expect,
    Instruction,
    Note,
    Redirect,
    ShortenTimeout,
    WatchPaths,
)
from syntony.traffic.pairs import LocalNic, Reply, WatchedFlow
from syntony.traffic.plain_wires import REDRAWS, other_wires, redraw
from syntony.traffic.policy import FailoverMode, Policy

PORTS = range(61_000, 65_536)
OWN = FourTuple("10.0.0.1", 40_000, "10.0.0.2", 5_000)
OTHER = OWN._replace(local="10.1.0.1", remote="10.1.0.2")
INODE = 9


def two_peers() -> list[WatchedFlow]:
    """A plan: each peer probed on both rails."""
    return [
        WatchedFlow(10 * peer + k, f"n{k}", f"10.{k}.0.{peer}", f"p{peer}/n{k}", k)
        for peer in (2, 3)
        for k in (0, 1)
    ]


@given(near=st.integers(1, 65_535), far=st.integers(1, 65_535), rails=st.integers(1, 4))
def test_both_ends_know_the_same_ways(near: int, far: int, rails: int) -> None:
    flow = FourTuple("10.0.0.1", near, "10.0.0.2", far)
    mine = {f"10.{rail}.0.1": rail for rail in range(rails)}
    theirs = {f"10.{rail}.0.2": rail for rail in range(rails)}
    ways = other_wires(flow, mine, theirs, PORTS)
    back = other_wires(flow.reverse, theirs, mine, PORTS)
    assert {way.reverse for way in back} == set(ways)
    assert len(ways) == REDRAWS + rails**2 - 1
    for draw in range(REDRAWS):
        assert min(near, far) in redraw(flow, draw, PORTS)[1::2], "a listener's port stays"


class Host:
    """The machine of one host with two NICs and one peer, reported things as its agent tells it."""

    own = OWN

    def __init__(self, policy: Policy | None = None, number: int = 1) -> None:
        own, peer = number, 3 - number
        nics = [LocalNic(name=f"n{k}", rail=k, addresses=(f"10.{k}.0.{own}",)) for k in (0, 1)]
        self.machine = Failover(policy or Policy(mode=FailoverMode.ACT), nics, seed=1)
        plan = [WatchedFlow(k, f"n{k}", f"10.{k}.0.{peer}", f"b/n{k}", k) for k in (0, 1)]
        self.machine.watch(plan, 0)
        self.now_ns = 0
        for flow_id in (0, 1):
            self.tell(self.probes(flow_id, alive=True))
        if number == 1:
            self.tell(self.sample())
        found = events.SocketOwner(at_ns=0, inode=INODE, job="train")
        self.first = self.tell(found)

    def tell(self, event: Event | PathEvent) -> list[Instruction]:
        return self.machine.handle(event)

    def probes(self, flow_id: int, *, alive: bool) -> LivenessEvent:
        return LivenessEvent(at_ns=self.now_ns, flow_id=flow_id, alive=alive,
                             since_ns=self.now_ns, misses=5)  # fmt: skip

    def carrier(self, nic: str, *, up: bool) -> list[Redirect]:
        address = f"10.{nic[1:]}.0.1"
        event = LinkEvent(at_ns=self.now_ns, nic=nic, carrier=up, admin_up=True,
                          addresses=(address,), carrier_down_count=0)  # fmt: skip
        return redirects(self.tell(event))

    def sample(self, acked: int = 1, **changes: int) -> FlowSample:
        usual = flow_sample(self.own, self.now_ns, token=0, inode=INODE, bytes_acked=acked)
        return msgspec.structs.replace(usual, **changes)

    def after(self, duration_ns: int) -> list[Redirect]:
        """Time passes, event by event; the connection is listed twice a second."""
        end_ns, out = self.now_ns + duration_ns, list[Redirect]()
        while self.now_ns < end_ns:
            due_ns = self.machine.next_due_ns()
            self.now_ns = min(end_ns, max(self.now_ns + MS, due_ns or end_ns))
            out += redirects(self.machine.tick(self.now_ns))
        return out

    def silent(self, duration_ns: int, retransmits: int, acked: int) -> list[Redirect]:
        """Data under way, unanswered."""
        out = list[Redirect]()
        for silent_ns in range(0, duration_ns, 15 * MS):
            self.now_ns += 15 * MS
            out += redirects(self.tell(self.sample(
                acked, unacked=5, retransmits=retransmits, last_ack_ns=silent_ns
            )))  # fmt: skip
        return out


def redirects(instructions: list[Instruction]) -> list[Redirect]:
    return [each for each in instructions if isinstance(each, Redirect)]


def test_whatever_comes_on_another_way_is_expected_before_anything_fails() -> None:
    (expect,) = [each for each in Host().first if isinstance(each, Expect)]
    assert expect.flow == OWN
    assert OTHER in expect.wires
    assert len(expect.wires) == REDRAWS + 3


def test_its_kernel_is_told_to_retransmit_sooner_if_that_may_be() -> None:
    (quicken,) = [each for each in Host().first if isinstance(each, ShortenTimeout)]
    assert (quicken.inode, quicken.rto_ns) == (INODE, Policy().plain_rto_ns)
    for policy in (
        Policy(mode=FailoverMode.OBSERVE),
        Policy(mode=FailoverMode.ACT, plain_rto_ns=0),
    ):
        assert not any(isinstance(each, ShortenTimeout) for each in Host(policy).first)


@pytest.mark.parametrize(
    "policy",
    [Policy(mode=FailoverMode.OBSERVE), Policy(mode=FailoverMode.ACT, jobs=("other-*",)),
     Policy(mode=FailoverMode.ACT, plain=False)],
)  # fmt: skip
def test_nothing_is_touched_unless_it_may_be(policy: Policy) -> None:
    host = Host(policy)
    assert not host.first
    assert not host.carrier("n0", up=False)


def test_what_is_observed_is_told_once() -> None:
    host = Host(Policy(mode=FailoverMode.OBSERVE))
    event = LinkEvent(at_ns=0, nic="n0", carrier=False, admin_up=True, addresses=("10.0.0.1",),
                      carrier_down_count=1)  # fmt: skip
    (note,) = [each for each in host.tell(event) if isinstance(each, Note)]
    assert (note.action, note.old, note.new) == ("would-detour", OWN, OTHER)


@pytest.mark.parametrize(("silent_ms", "suspect"), [(29, False), (30, True)])
@pytest.mark.parametrize("managed", [True, False])
def test_where_a_jobs_data_hang_its_pair_is_asked_on_more_ports(
    silent_ms: int, suspect: bool, managed: bool
) -> None:
    host = Host(Policy(mode=FailoverMode.ACT, jobs=("*",) if managed else ("other-*",)))
    host.after(2 * S)
    host.tell(host.sample(2))
    host.now_ns += silent_ms * MS
    said = host.tell(host.sample(2, unacked=5, last_ack_ns=silent_ms * MS))
    requested = {pair for each in said if isinstance(each, WatchPaths) for pair in each.suspect}
    assert requested == ({("n0", "10.0.0.2")} if suspect and managed else set())


def flows_of(host: Host) -> list[ReportedFlow]:
    plain = host.machine.plain.managed()
    return list(job_flows(host.machine.connections.values(), host.machine.relocation, plain))


def test_what_it_sends_is_told_while_it_goes_by_its_own_name() -> None:
    host = Host()
    for second in range(1, 4):
        host.now_ns = second * S
        host.tell(host.sample(acked=second * 1_000_000, dscp=20 + second))
    (reported,) = flows_of(host)
    assert (reported.job, reported.token, reported.nic, reported.flow) == ("train", 0, "n0", OWN)
    assert reported.dscp == 23, "of now"
    assert reported.tx_bps == 8_000_000
    assert reported.dialled, "the end with the greater port"
    assert not reported.movable
    assert reported.traced
    assert not reported._replace(tx_bps=999_999).traced, "control connections are not"
    host.carrier("n0", up=False)
    assert not flows_of(host), "by another NIC"
    host.machine.plain.flows[INODE].wire = OWN._replace(local_port=OWN.local_port + 1)
    (redrawn,) = flows_of(host)
    assert redrawn.redrawn
    assert not redrawn.traced, "its own path is not the one that it takes"
    assert socket_key(redrawn) is None, "not paced"
    report = flows_report([reported, redrawn], (), lambda *_: ("a",), fleet_ns=0, join_port=0)
    assert [each.connection for each in report.flows] == [f"tcp-{OWN.local_port}-{OWN.remote_port}"]
    (view,) = report.redrawn
    assert (view.connection, view.hops) == (f"redrawn-{OWN.local_port}-{OWN.remote_port}", ())


def test_whose_is_nobodys_is_not_told() -> None:
    assert not flows_of(Host(Policy(mode=FailoverMode.ACT, jobs=("other-*",))))


def test_a_lost_carrier_moves_it_at_once_and_it_returns_after_the_hold_down() -> None:
    host = Host()
    (moved,) = host.carrier("n0", up=False)
    assert (moved.flow, moved.wire, moved.reason.cause) == (OWN, OTHER, Cause.LOCAL_CARRIER)
    host.now_ns += 3 * S
    assert not host.carrier("n0", up=True)
    assert not host.after(host.machine.health._policy.hold_down_ns - 10 * MS)
    (back,) = host.after(100 * MS)
    assert (back.wire, back.reason.cause) == (OWN, Cause.RETURN)


def test_with_its_own_carrier_gone_a_way_that_answers_late_is_better_than_none() -> None:
    host = Host()
    host.now_ns += S
    host.tell(host.probes(1, alive=False))
    (moved,) = host.carrier("n0", up=False)
    assert moved.wire == OTHER


def test_who_found_no_other_way_takes_the_first_that_lives() -> None:
    host = Host()
    plan = two_peers()
    host.machine.watch(plan, 0)
    for flow in plan:
        host.tell(host.probes(flow.flow_id, alive=True))
    host.now_ns += S
    host.tell(host.probes(20, alive=False))
    host.now_ns += 4 * MS
    host.tell(host.probes(21, alive=False))
    assert not host.after(4 * MS), "the one is dead, the other dying, it seems"
    host.tell(host.probes(21, alive=True))
    (moved,) = host.after(4 * MS)
    assert moved.wire == OTHER, "not before the first one has had as long as both were silent"


def test_a_stall_that_the_probes_explain_does_not_delay_the_return() -> None:
    """Measurements before the probes fell silent, when they are late: they explain the stall."""
    host = Host()
    (redrawn,) = host.silent(400 * MS, retransmits=1, acked=1)
    assert redrawn.reason.cause is Cause.FABRIC
    host.tell(host.probes(0, alive=False))
    (moved,) = host.after(100 * MS)
    assert moved.wire == OTHER
    host.tell(host.sample(acked=2, retransmits=2))
    host.after(2 * S)
    host.tell(host.probes(0, alive=True))
    hold_ns = host.machine.health.usable_from_ns("n0", OWN.remote) - host.now_ns
    (back,) = host.after(hold_ns + 3 * S)
    assert back.wire == OWN


def test_what_the_probes_say_of_a_nic_holds_for_all_its_addresses() -> None:
    """Probed by IPv4, used by IPv6."""
    own = FourTuple("fd00::1", 40_000, "fd00::2", 5_000)
    nics = [LocalNic(name=f"n{k}", rail=k, addresses=(f"10.{k}.0.1", f"fd0{k}::1")) for k in (0, 1)]
    plan = [
        WatchedFlow(k, f"n{k}", f"10.{k}.0.2", f"b/n{k}", k, others=(f"fd0{k}::2",)) for k in (0, 1)
    ]
    host = Host()
    host.machine = Failover(Policy(mode=FailoverMode.ACT), nics, seed=1)
    host.machine.watch(plan, 0)
    for flow_id in (0, 1):
        host.tell(host.probes(flow_id, alive=True))
    host.tell(msgspec.structs.replace(host.sample(), flow=own))
    (expect,) = [
        each
        for each in host.tell(events.SocketOwner(at_ns=0, inode=INODE, job="train"))
        if isinstance(each, Expect)
    ]
    assert all(way.remote.startswith("fd") for way in expect.wires)
    host.now_ns += S
    host.tell(host.probes(0, alive=False))
    (moved,) = host.after(50 * MS)
    assert moved.wire == own._replace(local="fd01::1", remote="fd01::2")


def test_a_dead_pair_moves_it_and_a_dying_one_is_no_refuge() -> None:
    host = Host()
    host.now_ns += S
    host.tell(host.probes(0, alive=False))
    (moved,) = host.after(50 * MS)
    assert moved.wire == OTHER
    host = Host()
    host.now_ns += S
    for flow_id in (0, 1):  # everything at once is no matter of one path
        host.tell(host.probes(flow_id, alive=False))
    assert not host.after(S)


def test_a_stalled_one_takes_other_ports_first_and_not_before_the_kernel_has_tried() -> None:
    host = Host()
    (first,) = host.silent(400 * MS, retransmits=1, acked=1)
    assert first.reason.cause is Cause.FABRIC
    assert first.wire[0::2] == OWN[0::2], "the NICs live: the same pair, another port"
    # As many retransmissions as before: nothing has been sent on the new way yet.
    assert not host.silent(2 * S, retransmits=1, acked=1)
    (second,) = host.silent(600 * MS, retransmits=2, acked=1)
    assert second.wire not in {OWN, first.wire}


def partial() -> Host:
    """Four ports probed between the connection's NICs, of which two have just fallen silent."""
    host = Host()
    plan = [WatchedFlow(k, f"n{k}", f"10.{k}.0.2", f"b/n{k}", k) for k in (0, 1)]
    more = [WatchedFlow(10 + k, "n0", "10.0.0.2", "b/n0", 0) for k in range(3)]
    host.machine.watch([*plan, *more], 0)
    for each in (0, 1, 10, 11, 12):
        host.tell(host.probes(each, alive=True))
    host.now_ns = S
    host.tell(host.sample(2))
    for each in (10, 11):
        host.tell(host.probes(each, alive=False))
    host.machine.health.revive_answered({12: Reply(host.now_ns)}, host.now_ns)
    return host


def test_where_the_fabric_loses_a_part_between_its_nics_it_takes_others_at_once() -> None:
    (way,) = partial().silent(120 * MS, retransmits=0, acked=2)
    assert way.wire == OTHER, "no other port, of which most would be lost as well"
    assert way.reason.cause is Cause.FABRIC


def test_it_goes_back_when_nothing_is_lost_there_any_more() -> None:
    host = partial()
    host.silent(120 * MS, retransmits=0, acked=2)
    for acked in range(3, 33):
        host.tell(host.sample(acked))
        assert not host.after(S), "its own port may be one of those"
    for each in (10, 11):
        host.tell(host.probes(each, alive=True))
    host.tell(host.sample(33))
    (back,) = host.after(S)
    assert back.wire == OWN


def test_it_answers_where_it_hears_its_peer_and_of_two_followers_one_goes_first() -> None:
    host = Host()
    heard = events.WireReceived(at_ns=host.now_ns, wire=OTHER)
    (moved,) = redirects(host.tell(heard))
    assert (moved.wire, moved.reason.cause) == (OTHER, Cause.PEER)
    assert not host.after(10 * S), "silent altogether: it may be waiting for its timer there"
    host.tell(host.sample(bytes_received=1))
    (back,) = host.after(2 * S)  # it sends, and is not heard here any more
    assert back.wire == OWN
    assert redirects(host.tell(heard)), "there again, for a new reason"
    host = Host()
    assert host.carrier("n0", up=False)
    host.carrier("n0", up=True)
    (back,) = host.after(2 * S)
    assert back.wire == OWN
    # The peer may still be there because we were: it is given time to come back.
    assert not redirects(host.tell(events.WireReceived(at_ns=host.now_ns, wire=OTHER)))
    host.now_ns += 5 * S
    assert redirects(host.tell(events.WireReceived(at_ns=host.now_ns, wire=OTHER)))


def test_with_no_rail_alive_at_both_ends_it_goes_across() -> None:
    host = Host()
    plan = two_peers()
    host.tell(LivenessEvent(at_ns=0, flow_id=0, alive=True, since_ns=0, misses=0))
    host.machine.watch(plan, 0)
    for flow in plan:
        host.tell(host.probes(flow.flow_id, alive=True))
    host.now_ns += S
    (first,) = host.carrier("n0", up=False)
    assert first.wire == OTHER
    for peer in (2, 3):  # nothing is heard through a NIC without carrier
        host.tell(host.probes(10 * peer, alive=False))
    host.tell(host.probes(21, alive=False))  # the peer's NIC of the other rail
    (second,) = host.after(50 * MS)
    assert second.wire == OWN._replace(local="10.1.0.1")


def test_a_refusal_of_what_is_over_or_of_nobody_changes_nothing() -> None:
    host = Host()
    (moved,) = host.carrier("n0", up=False)
    plain = host.machine.plain
    before = plain.flows[INODE].wire
    plain.refused(msgspec.structs.replace(moved, token=INODE + 1), host.now_ns)
    plain.refused(msgspec.structs.replace(moved, wire=OWN), host.now_ns)
    assert plain.flows[INODE].wire == before == moved.wire
    assert not plain.flows[INODE].failed


def test_a_refused_detour_is_none() -> None:
    host = Host()
    (moved,) = host.carrier("n0", up=False)
    host.machine.plain.refused(moved, host.now_ns)
    (known,) = host.machine.plain.managed()
    assert not known.detoured
    tried = redirects(host.machine.plain.settle_all(host.now_ns))
    assert not [each for each in tried if each.wire == OTHER], "not at once again"


def test_one_that_is_over_is_expected_no_more() -> None:
    host = Host()
    host.now_ns += 10 * S
    other = msgspec.structs.replace(host.sample(), inode=INODE + 1, flow=OWN._replace(local_port=7))
    host.tell(other)
    assert Expect(flow=OWN, wires=()) in host.machine.forget(host.now_ns)
    assert not list(host.machine.plain.managed())


def test_a_way_that_two_connections_have_is_neither_s() -> None:
    host = Host()
    taken = redraw(OWN, 0, PORTS)
    own = msgspec.structs.replace(host.sample(), inode=INODE + 1, flow=taken)
    (fewer,) = host.tell(own)  # somebody's connection has that very name
    assert isinstance(fewer, Expect)
    assert taken not in fewer.wires
    assert len(fewer.wires) == REDRAWS + 2
    host.now_ns += 3 * S
    host.tell(host.sample(acked=2))
    host.now_ns += S // 2
    again = [each for each in host.machine.forget(host.now_ns) if isinstance(each, Expect)]
    assert [taken in each.wires for each in again if each.flow == OWN] == [True]


@given(ports=st.sets(st.integers(30_000, 60_999), min_size=2, max_size=40))
def test_both_ends_allot_alike_whatever_they_hear_first(ports: set[int]) -> None:
    few = range(61_000, 61_050)  # so that ways collide

    def allotted(order: list[int], *, far: bool) -> dict[FourTuple, set[FourTuple]]:
        policy = Policy(mode=FailoverMode.ACT, port_low=few.start, port_high=few.stop - 1)
        host = Host(policy, number=2 if far else 1)
        for inode, port in enumerate(order, 100):
            flow = OWN._replace(local_port=port)
            news = msgspec.structs.replace(
                host.sample(), inode=inode, flow=flow.reverse if far else flow
            )
            host.tell(news)
            host.tell(events.SocketOwner(at_ns=0, inode=inode, job="train"))
        known = host.machine.plain.managed()

        def turn(flow: FourTuple) -> FourTuple:
            return flow.reverse if far else flow

        return {turn(each.flow): set(map(turn, each.wires)) for each in known}

    near = allotted(sorted(ports - {OWN.local_port}), far=False)
    assert near == allotted(sorted(ports | {OWN.local_port}, reverse=True), far=True)
    names = [way for ways in near.values() for way in ways]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("seed", mostly_slow(range(4), [0]))
@pytest.mark.parametrize("answers", [0, 1, 7])
@pytest.mark.parametrize("way", ["there", "back", "either"])
def test_a_cable_that_swallows_both_ways_is_passed_by_both_ends(
    way: str, answers: int, seed: int
) -> None:
    """Ports that lead over the same cable again, for one end or the other, are no end of it."""
    world = TwoEnds(seed, answers=answers)
    world.run(S + seed * 13 * MS)
    ends = {"there": [world.a], "back": [world.b], "either": [world.a, world.b]}[way]
    world.cut = {world.cable(end.wire) for end in ends}
    began_ns, before = world.now_ns, world.a.acked
    while world.a.acked <= before + 1 and world.now_ns < began_ns + 10 * S:
        world.run(100 * MS)
    assert world.a.acked > before + 1, f"seed {seed}: no way found"
    world.run(20 * S)
    assert len(world.a.moves) + len(world.b.moves) <= 20, f"seed {seed}: moves to and fro"
    world.cut.clear()
    world.run(8 * S)
    before = world.a.acked
    world.run(S)
    assert world.a.acked > before, f"seed {seed}: stands still though all is well"


def test_what_stalled_because_its_pair_of_nics_was_dying_has_not_failed_by_itself() -> None:
    host = Host()
    host.silent(400 * MS, retransmits=1, acked=1)
    host.silent(3 * S, retransmits=2, acked=1)
    known = host.machine.plain.flows[INODE]
    assert known.wire.local == OTHER.local
    assert OWN in known.failed
    for acked in range(2, 8):
        host.tell(host.sample(acked))
        host.after(S // 2)
    assert OWN in known.failed, "its pair is well: only itself can tell"
    host.tell(host.probes(0, alive=False))
    for acked in range(8, 28):
        host.tell(host.sample(acked))
        host.after(S // 2)
    assert OWN not in known.failed

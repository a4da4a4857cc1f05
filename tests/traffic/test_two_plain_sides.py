"""Both ends of plain connections that leave a path and come back."""

from __future__ import annotations

import pytest
from tests.traffic.test_plain import INODE, OTHER, OWN, redirects
from tests.traffic.test_plain import Host as PlainHost

from syntony.model import MS, S
from syntony.traffic import events
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Cause, Reason


def stalled_at(host: PlainHost) -> None:
    host.machine.plain.flows[INODE].subflow.stalled = Reason(Cause.FABRIC, "e", host.now_ns, 0)


def test_ways_that_were_tried_come_last_and_before_them_pairs_on_which_two_were() -> None:
    host = PlainHost()
    plain, known = host.machine.plain, host.machine.plain.flows[INODE]
    same = [way for way in known.wires if way[0::2] == OWN[0::2]]
    taken = []
    for _ in range(4):
        stalled_at(host)
        (moved,) = redirects(plain.settle(known, host.now_ns))
        taken.append(moved.wire)
        known.moved_ns = None
    assert taken[0] == same[0]
    assert taken[1] == OTHER, "two ports of one pair are enough"
    assert len(set(taken)) == 4


def test_where_the_kernels_timer_is_slow_one_port_of_a_pair_is_enough() -> None:
    for backoff, other in ((1, False), (2, True)):
        host = PlainHost()
        known = host.machine.plain.flows[INODE]
        known.backoff = backoff
        stalled_at(host)
        (moved,) = redirects(host.machine.plain.settle(known, host.now_ns))
        assert (moved.wire == OTHER) is other, backoff


def detoured(cause: Cause = Cause.LOCAL_CARRIER) -> PlainHost:
    """On another way since 10 s, all well again."""
    host = PlainHost()
    host.now_ns = 10 * S
    known = host.machine.plain.flows[INODE]
    known.put(OTHER, host.now_ns)
    known.detour_reason, known.moved_ns = Reason(cause, "e", host.now_ns, host.now_ns), None
    return host


@pytest.mark.parametrize(("early_ns", "back"), [(1, False), (0, True)])
def test_it_returns_when_its_own_stall_is_long_ago(early_ns: int, back: bool) -> None:
    host = detoured()
    policy = host.machine.health._policy
    known = host.machine.plain.flows[INODE]
    known.failed[OWN] = HoldDown()
    known.failed[OWN].failed(host.now_ns, policy)
    due_ns = host.now_ns + policy.hold_down_ns + 10 * policy.hold_down_ns
    found = redirects(host.machine.plain.settle(known, due_ns - early_ns))
    assert bool(found) is back
    if back:
        assert found[0].reason.evidence == f"local-carrier, {(due_ns - 10 * S) // MS} ms ago"
        assert known.ignore_peer_until_ns == due_ns + 2 * (2 * S)
        assert known.detour_reason is None
    else:
        assert host.machine.plain.due_ns() == due_ns


@pytest.mark.parametrize(
    ("heard_ns", "alive_ns", "back"),
    [(0, (2 * S) // 2, True), (0, (2 * S) // 2 - 1, False)],
)
def test_whoever_follows_a_peer_returns_when_it_has_left_and_lives(
    heard_ns: int, alive_ns: int, back: bool
) -> None:
    host = detoured()
    known = host.machine.plain.flows[INODE]
    known.follows_peer, known.peer_received_ns = True, host.now_ns + heard_ns
    known.alive_ns = known.peer_received_ns + alive_ns
    for at_ns, may in (
        (known.peer_received_ns + (2 * S) - 1, False),
        (known.peer_received_ns + (2 * S), back),
    ):
        assert bool(redirects(host.machine.plain.settle(known, at_ns))) is may
    if back:
        assert known.ignore_peer_until_ns == 0, "it may be followed again at once"
        assert not known.follows_peer


def test_what_is_under_way_on_a_new_way_is_tried_before_any_return() -> None:
    host = detoured()
    known = host.machine.plain.flows[INODE]
    known.moved_ns, known.waits = host.now_ns, True
    assert redirects(host.machine.plain.settle(known, 60 * S)) == []
    assert host.machine.plain.due_ns() == 60 * S + host.machine.health._policy.hold_down_ns
    known.waits = False
    assert redirects(host.machine.plain.settle(known, 60 * S))


def test_where_we_have_our_own_reasons_the_peer_is_not_followed() -> None:
    host = detoured()
    known = host.machine.plain.flows[INODE]
    across = OWN._replace(local="10.1.0.1")
    known.peer_wire = across
    heard = events.WireReceived(at_ns=host.now_ns + S, wire=across)
    assert redirects(host.tell(heard)) == []
    assert known.wire == OTHER
    known.follows_peer = True
    (moved,) = redirects(host.tell(heard))
    assert moved.wire == across


def test_deaths_of_the_pair_explain_stalls_on_all_of_its_ports() -> None:
    host = PlainHost()
    known = host.machine.plain.flows[INODE]
    policy = host.machine.health._policy
    for way in (OWN, OWN._replace(local_port=61_500), OTHER):
        known.failed[way] = HoldDown()
        known.failed[way].failed(host.now_ns, policy)
    host.machine.plain._clear_failures(known, OWN)
    assert list(known.failed) == [OTHER]

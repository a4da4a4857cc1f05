"""Plain connections: time for a new way, which peers are followed, what is not gone back to."""

from __future__ import annotations

from tests.traffic.test_plain import INODE, OTHER, OWN, Host, redirects, two_peers

from syntony.model import MS, S
from syntony.model.paths import FourTuple
from syntony.traffic import events
from syntony.traffic.instructions import Cause, Redirect
from syntony.traffic.policy import Policy

ACROSS, BACK_ACROSS = OWN._replace(local=OTHER.local), OWN._replace(remote=OTHER.remote)
"""From the NIC of one rail to that of the other."""
LISTENER = OWN._replace(local_port=OWN.remote_port, remote_port=OWN.local_port)


def unanswered_ns(host: Host, retransmits: int) -> int:
    """How long data are under way, from a first sample on, until another way is taken."""
    began_ns = host.now_ns
    while host.now_ns < began_ns + 2 * S:
        waits_ns = S + host.now_ns - began_ns
        sample = host.sample(unacked=5, retransmits=retransmits, last_ack_ns=waits_ns)
        if redirects(host.tell(sample)):
            break
        host.now_ns += MS
    return host.now_ns - began_ns


def test_a_new_way_is_given_as_long_as_the_peer_may_need_to_find_one_back() -> None:
    host = Host()
    host.tell(host.sample())
    first_ns = unanswered_ns(host, retransmits=1)
    assert first_ns == Policy().silence_ns
    host.now_ns += MS
    assert unanswered_ns(host, retransmits=2) == first_ns + 150 * MS
    assert len(host.machine.plain.flows[INODE].failed) == 2


def test_between_other_nics_the_second_retransmission_counts() -> None:
    host = Host()
    host.tell(host.sample())
    assert host.carrier("n0", up=False)
    host.now_ns += MS
    assert unanswered_ns(host, retransmits=1) == 2 * S, "not judged"
    assert unanswered_ns(host, retransmits=2) < 300 * MS


def heard(host: Host, wire: FourTuple) -> list[Redirect]:
    host.now_ns += MS
    return redirects(host.tell(events.WireReceived(at_ns=host.now_ns, wire=wire)))


def detoured(own: FourTuple = OWN) -> Host:
    """On another way for a reason of its own, between living NICs, with nothing under way."""
    host = Host()
    host.own = own
    host.tell(host.sample())
    host.tell(events.SocketOwner(at_ns=0, inode=INODE, job="train"))
    known = host.machine.plain.flows[INODE]
    host.silent(400 * MS, retransmits=1, acked=1)
    host.tell(host.sample(acked=2, retransmits=1))
    assert known.detour_reason is not None
    assert known.detour_reason.cause is Cause.FABRIC
    assert not known.stuck
    return host


def test_the_end_with_the_higher_port_follows_to_the_second_new_way_and_to_no_old_one() -> None:
    host = detoured()
    assert not heard(host, OTHER), "the first"
    assert not heard(host, OTHER), "no new one"
    (moved,) = heard(host, ACROSS)
    assert (moved.wire, moved.reason.cause) == (ACROSS, Cause.PEER)
    assert heard(host, OTHER), "while it follows, every one"


def test_the_end_with_the_lower_port_follows_to_the_first() -> None:
    host = detoured(LISTENER)
    (moved,) = heard(host, other := LISTENER._replace(local=OTHER.local, remote=OTHER.remote))
    assert moved.wire == other


def test_who_has_something_under_way_looks_for_itself() -> None:
    host = detoured()
    host.tell(host.sample(acked=2, unacked=1, retransmits=1, last_ack_ns=MS))
    assert not heard(host, OTHER)
    assert not heard(host, ACROSS)
    host.tell(host.sample(acked=3, retransmits=1))
    assert not heard(host, ACROSS), "no news"
    assert heard(host, OTHER)


def test_where_the_peer_is_heard_nobody_goes_whose_probes_are_silent_there() -> None:
    host = Host()
    host.machine.watch(two_peers(), 0)
    for flow in two_peers():
        host.tell(host.probes(flow.flow_id, alive=flow.flow_id != 21))
    assert not heard(host, OTHER)
    assert not heard(host, BACK_ACROSS), "his NIC is dead, as far as ours can tell"
    assert heard(host, ACROSS)

"""What is known of paths: a crowded one is not a dead one, and a NIC's name is not the NIC."""

from __future__ import annotations

import msgspec
import pytest
from tests.traffic.flow_samples import flow_sample

from syntony.model import MS, S
from syntony.model.paths import FlowSample, FourTuple, LinkEvent, LivenessEvent
from syntony.traffic.connection import Subflow, SubflowState
from syntony.traffic.health import Health
from syntony.traffic.pairs import NO_HURRY_NS, ConnectionProgress, LocalNic, Reply, WatchedFlow
from syntony.traffic.policy import Policy

FLOW = FourTuple("10.0.0.1", 40_000, "10.0.0.2", 5_000)
RTT_NS = 20 * MS
LAST_REPLY_NS = 1_000 * MS
DIED_NS = LAST_REPLY_NS + 40 * MS


def health_of_a_dying_pair() -> Health:
    """Two NICs; the probes of one pair have gone unanswered since `LAST_REPLY_NS`."""
    nics = [LocalNic(name=f"n{k}", rail=k, addresses=(f"10.{k}.0.1",)) for k in (0, 1)]
    health = Health(Policy(), nics)
    health.watch([WatchedFlow(k, f"n{k}", f"10.{k}.0.2", f"b/n{k}", k) for k in (0, 1)])
    for flow_id in (0, 1):
        health.liveness(event(0, flow_id, alive=True))
    health.liveness(event(DIED_NS, 0, alive=False))
    return health


def event(at_ns: int, flow_id: int, *, alive: bool) -> LivenessEvent:
    return LivenessEvent(
        at_ns=at_ns, flow_id=flow_id, alive=alive, since_ns=LAST_REPLY_NS, misses=7
    )


def progress(acked_ms: int, waits_ms: int) -> ConnectionProgress:
    """Of a flow on the dying pair; acknowledged so long after the probes' last answer."""
    return ConnectionProgress(FLOW, LAST_REPLY_NS + acked_ms * MS, RTT_NS, waits_ms * MS)


@pytest.mark.parametrize(
    ("flows", "believed"),
    [
        ((), True),  # no data on that pair: the probes alone
        ((progress(-500, 540),), True),  # none acknowledged recently, and it waits
        ((progress(12, 34),), True),  # hardly after the last reply, and none since
        ((progress(34, 12),), False),  # it may have been under way, but the next one may come
        ((progress(36, 12),), False),  # sent after it: the path carries, the probes are in a queue
        ((progress(45, 1),), False),
        ((progress(-500, 0),), False),  # nothing under way: no hurry
        ((progress(-500, 18),), False),  # it has not waited for a round trip yet
        ((progress(-500, 0), progress(5, 41)), True),  # one of them waits
        ((progress(-500, 540), progress(36, 10)), False),  # one of them proves the path
        # Answered 15 ms after the probes: another 30 ms are given, though others wait.
        ((progress(-500, 540), progress(15, 31)), True),
        ((progress(-500, 540), progress(16, 30)), True),
        ((progress(-500, 540), progress(17, 29)), False),
    ],
)
def test_probes_are_believed_where_a_flow_waits_and_none_gets_through(
    flows: tuple[ConnectionProgress, ...], *, believed: bool
) -> None:
    health = health_of_a_dying_pair()
    now_ns = DIED_NS + Policy().settle_ns
    assert health.pending_deaths(now_ns) == [("n0", "10.0.0.2")]
    if flows:
        health.corroborate("n0", "10.0.0.2", flows, now_ns)
    assert bool(health.decide_deaths(now_ns)) is believed
    assert (health.dead("n0", "10.0.0.2") is not None) is believed


def test_a_nic_that_was_missing_is_added_and_a_known_one_keeps_its_state() -> None:
    """By the name of the configuration, whatever it is called now."""
    health = health_of_a_dying_pair()
    addresses = ("10.0.0.1",)
    gone = LinkEvent(at_ns=0, nic="n0", carrier=False, admin_up=True, addresses=addresses,
                     carrier_down_count=1)  # fmt: skip
    health.link(gone)
    health.add(LocalNic(name="n0", rail=0, addresses=()))
    assert health.dead("n0", "10.0.0.3") is not None
    assert health.nic_of("10.0.0.1") == "n0"
    health.link(msgspec.structs.replace(gone, nic="eth7", carrier=True))
    health.add(LocalNic(name="n0", rail=0, addresses=()))
    assert {nic.name for nic in health.nics()} == {"eth7", "n1"}
    assert health.configured("eth7") == "n0"
    assert health.dead("n2", "10.2.0.3") is not None
    health.add(LocalNic(name="n2", rail=2, addresses=("10.2.0.1",)))
    assert health.dead("n2", "10.2.0.3") is None
    assert health.nic_of("10.2.0.1") == "n2"


def test_what_carries_no_more_is_believed_dead_a_round_trip_later() -> None:
    health = health_of_a_dying_pair()
    now_ns = DIED_NS + Policy().settle_ns
    health.corroborate("n0", "10.0.0.2", [progress(40, 21)], now_ns)
    due_ns = health.due_ns()
    assert due_ns is not None
    assert due_ns <= DIED_NS + RTT_NS + 20 * MS
    assert not health.decide_deaths(due_ns - 1)
    assert health.decide_deaths(due_ns) == [("n0", "10.0.0.2")]


def test_a_path_that_nobody_waits_for_is_left_all_the_same() -> None:
    health = health_of_a_dying_pair()
    now_ns = DIED_NS
    while health.dead("n0", "10.0.0.2") is None:
        now_ns = health.due_ns() or now_ns
        if health.pending_deaths(now_ns):
            health.corroborate("n0", "10.0.0.2", [progress(-500, 0)], now_ns)
        health.decide_deaths(now_ns)
    assert now_ns == LAST_REPLY_NS + NO_HURRY_NS


def test_a_pair_whose_deaths_heal_at_once_is_given_more_time_for_a_while() -> None:
    health = health_of_a_dying_pair()
    waits_ms = []
    for number in range(7):
        died_ns = DIED_NS + number * S
        health.liveness(event(died_ns, 0, alive=False))
        due_ns = health.due_ns()
        assert due_ns is not None
        waits_ms.append((due_ns - died_ns) // MS)
        health.liveness(event(died_ns + 100 * MS, 0, alive=True))
    assert waits_ms == [6, 46, 86, 126, 166, 206, 206]
    health.liveness(event(DIED_NS + 100 * S, 0, alive=False))
    assert health.due_ns() == DIED_NS + 100 * S + Policy().settle_ns, "forgotten"
    health.liveness(event(DIED_NS + 101 * S, 0, alive=True))  # a real one, which was repaired
    health.liveness(event(DIED_NS + 102 * S, 0, alive=False))
    assert health.due_ns() == DIED_NS + 102 * S + Policy().settle_ns


def stalled_after_ms(*, lossy: bool) -> int:
    """How long a flow is silent before it is judged; the kernel's timer runs 200, 400, 800 ms."""
    judge = Subflow(FLOW, "n0", SubflowState.UP, 0)
    lost = 0
    for at_ms in range(0, 1_000, 100):  # it goes on all the time, with losses or without
        lost += 3 if lossy else 0
        judge.take(sample(at_ms, acked=1 + at_ms, retransmits=lost), Policy())
    for silent_ms in range(0, 3_000, 15):
        fired = sum(silent_ms >= each for each in (200, 600, 1_400))
        news = sample(900 + silent_ms, 901, retransmits=lost + fired, backoff=fired,
                      silent_ms=silent_ms)  # fmt: skip
        if judge.take(news, Policy()):
            return silent_ms
    raise AssertionError("never")


def sample(
    at_ms: int, acked: int, retransmits: int, backoff: int = 0, silent_ms: int = 0
) -> FlowSample:
    return flow_sample(
        FLOW, S + at_ms * MS, token=7, bytes_acked=acked, unacked=5, retransmits=retransmits,
        backoff=backoff, last_ack_ns=silent_ms * MS, rtt_ns=5 * MS,
    )  # fmt: skip


def test_a_flow_that_loses_segments_all_the_time_is_given_two_timeouts() -> None:
    assert stalled_after_ms(lossy=False) == 210, "the first sample after the first timeout"
    assert stalled_after_ms(lossy=True) == 600


def test_what_is_known_of_a_nic_survives_its_name() -> None:
    health = health_of_a_dying_pair()
    renamed = LinkEvent(
        at_ns=DIED_NS, nic="eth7", carrier=True, admin_up=True, addresses=("10.0.0.1",),
        carrier_down_count=0,
    )  # fmt: skip
    health.link(renamed)
    health.link(msgspec.structs.replace(renamed, nic="n0", carrier=False, addresses=()))
    assert health.configured("eth7") == "n0"
    assert health.decide_deaths(DIED_NS + Policy().settle_ns) == [("eth7", "10.0.0.2")]
    assert not health.decide_deaths(DIED_NS + S)
    health.liveness(event(DIED_NS + S, 0, alive=True))
    assert health.dead("eth7", "10.0.0.2") is None
    # A new plan calls it by the name in the configuration.
    health.watch([WatchedFlow(k, f"n{k}", f"10.{k}.0.2", f"b/n{k}", k) for k in (0, 1)])
    health.liveness(event(DIED_NS + 2 * S, 0, alive=False))
    assert health.decide_deaths(DIED_NS + 3 * S) == [("eth7", "10.0.0.2")]
    assert health.nic_of("10.0.0.1") == "eth7"


@pytest.mark.parametrize(
    ("later_ms", "believed"),
    [
        (0, False),  # all of the peer's NICs fell silent together: the peer is late
        (9, False),
        (10, True),  # it was awake, and this NIC of it does not answer
        (38, True),
    ],
)
def test_a_peer_whose_nics_fall_silent_together_is_late(later_ms: int, *, believed: bool) -> None:
    health = health_of_a_dying_pair()
    now_ns = DIED_NS + Policy().settle_ns
    replies = {0: Reply(LAST_REPLY_NS), 1: Reply(LAST_REPLY_NS + later_ms * MS)}
    health.excuse_late_peers(replies, now_ns)
    assert bool(health.decide_deaths(now_ns)) is believed


@pytest.mark.parametrize(
    ("later", "believed"),
    [
        (Reply(LAST_REPLY_NS + 38 * MS, rtt_ns=28 * MS), True),
        (Reply(LAST_REPLY_NS + 38 * MS, rtt_ns=29 * MS), False),  # it stood in a queue
        (Reply(LAST_REPLY_NS + 38 * MS, silent=True), False),  # by now silent as well
    ],
)
def test_a_witness_answers_now_what_it_was_asked_later(later: Reply, *, believed: bool) -> None:
    health = health_of_a_dying_pair()
    now_ns = DIED_NS + Policy().settle_ns
    health.excuse_late_peers({0: Reply(LAST_REPLY_NS), 1: later}, now_ns)
    assert bool(health.decide_deaths(now_ns)) is believed


def test_of_a_peer_that_is_silent_on_all_its_nics_nothing_is_concluded() -> None:
    health = health_of_a_dying_pair()
    now_ns = DIED_NS + Policy().settle_ns
    for _ in range(3):  # for as long as its other NIC passes for alive
        health.excuse_late_peers(dict.fromkeys((0, 1), Reply(LAST_REPLY_NS)), now_ns)
        assert not health.decide_deaths(now_ns)
        due_ns = health.due_ns()
        assert due_ns is not None
        assert due_ns > now_ns
        now_ns = due_ns
    health.liveness(event(now_ns, 1, alive=False))
    now_ns += Policy().settle_ns
    assert not health.pending_deaths(now_ns)
    assert not health.decide_deaths(now_ns)
    assert health.undecided == {("n0", "10.0.0.2"), ("n1", "10.1.0.2")}
    assert health.due_ns() is None, "and no reason to look again and again"

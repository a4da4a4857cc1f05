"""Limits of what is remembered of a subflow, a plain flow and attempts to join, both sides."""

from __future__ import annotations

import pytest
from tests.traffic.flow_samples import flow_sample

from syntony.model import MS, S
from syntony.model.paths import FlowSample, FourTuple
from syntony.traffic.connection import (
    AT_ONCE,
    LOSSY_BACKOFF,
    LOSSY_NS,
    LOSSY_SILENT_NS,
    PARTIAL_LATE_NS,
    TAKEN,
    UNREPEATED,
    FailedAttempts,
    MptcpConnection,
    RemoteAddress,
    Subflow,
    SubflowState,
)
from syntony.traffic.instructions import Cause, Reason
from syntony.traffic.meter import WINDOW_NS, Meter
from syntony.traffic.plain_flow import GRACE_NS, PlainFlow
from syntony.traffic.policy import Policy

POLICY = Policy()
FLOW = FourTuple("10.0.0.1", 61_000, "10.0.0.2", 8_621)
AWAY = FourTuple("10.1.0.1", 61_000, "10.1.0.2", 8_621)
OTHER_PORT = FLOW._replace(local_port=61_001)
PATIENCE_NS = POLICY.silence_ns


def sample(at_ns: int, acked: int = 100, **more: int) -> FlowSample:
    values = {"unacked": 5, "last_ack_ns": at_ns} | more
    return flow_sample(FLOW, at_ns, bytes_acked=acked, **values)


def subflow() -> Subflow:
    found = Subflow(FLOW, "nic0", SubflowState.UP, 0)
    found.take(sample(0, unacked=0), POLICY)
    return found


@pytest.mark.parametrize(
    ("more", "silent_ns", "stalled"),
    [
        ({"retransmits": 1}, PATIENCE_NS, True),
        ({"retransmits": 1}, PATIENCE_NS - 1, False),
        ({"backoff": 1}, PATIENCE_NS, True),
        ({}, UNREPEATED * PATIENCE_NS, True),
        ({}, UNREPEATED * PATIENCE_NS - 1, False),
        ({"retransmits": 1, "rtt_ns": 30 * MS}, POLICY.silence_rtts * 30 * MS, True),
        ({"retransmits": 1, "rtt_ns": 30 * MS}, POLICY.silence_rtts * 30 * MS - 1, False),
        ({"retransmits": 1, "last_ack_ns": PATIENCE_NS - 1}, 5 * PATIENCE_NS, False),
    ],
)
def test_a_flow_is_stalled_after_its_patience(
    more: dict[str, int], silent_ns: int, stalled: bool
) -> None:
    assert subflow().take(sample(silent_ns, **more), POLICY) is stalled


def lossy() -> Subflow:
    """One that lost a segment and went on, at 1 s."""
    found = subflow()
    found.take(sample(S, 200, retransmits=1), POLICY)
    return found


@pytest.mark.parametrize(
    ("after_ns", "backoff", "stalled"),
    [
        (LOSSY_SILENT_NS, LOSSY_BACKOFF, True),
        (LOSSY_SILENT_NS - 1, LOSSY_BACKOFF, False),
        (LOSSY_SILENT_NS, LOSSY_BACKOFF - 1, False),
        (LOSSY_NS, 0, True),  # its losses are long ago
        (LOSSY_NS - 1, 1, False),
    ],
)
def test_of_a_flow_that_loses_all_the_time_two_timers_have_to_fire(
    after_ns: int, backoff: int, stalled: bool
) -> None:
    now = sample(S + after_ns, 200, retransmits=2, backoff=backoff)
    assert lossy().take(now, POLICY) is stalled


@pytest.mark.parametrize(("late_ns", "stalled"), [(0, True), (1, False)])
def test_who_went_with_the_probes_is_not_asked_for_more(late_ns: int, stalled: bool) -> None:
    # The flow was last acknowledged at 1 s, a round trip of 1 ms and 50 ms after the probes.
    partial_ns = S - PARTIAL_LATE_NS - MS - late_ns
    now = sample(S + PATIENCE_NS, 200, retransmits=2, last_ack_ns=PATIENCE_NS)
    assert lossy().take(now, POLICY, partial_ns) is stalled


def test_what_is_told_of_a_stall() -> None:
    found = subflow()
    assert found.take(sample(70 * MS, retransmits=2, backoff=1, unacked=9), POLICY)
    assert found.stalled is not None
    assert found.stalled.evidence == (
        "9 segments unacknowledged for 70 ms, 2 retransmitted, backoff 1"
    )
    assert (found.stalled.cause, found.stalled.at_ns, found.stalled.since_ns) == (
        Cause.FABRIC, 70 * MS, 0
    )  # fmt: skip
    found.excuse(80 * MS)
    assert not found.take(sample(130 * MS, retransmits=2), POLICY), "counted from then"
    assert found.take(sample(140 * MS, retransmits=2), POLICY)
    coming = Subflow(FLOW, "nic0", SubflowState.COMING, 0)
    coming.take(sample(0, unacked=0), POLICY)
    assert not coming.take(sample(S, retransmits=3), POLICY), "it has carried nothing yet"


def test_attempts_wait_after_three_at_once_and_longer_each_time() -> None:
    tries, waits, reported = FailedAttempts(), [], []
    for _ in range(12):
        tries.failed(S, POLICY)
        waits.append((tries.next_ns - S) // MS)
        reported.append(tries.reported)
    join = POLICY.join_ns // MS
    assert waits[: AT_ONCE + 4] == [0, 0, 0, join, 2 * join, 4 * join, 8 * join]
    assert waits[-1] == POLICY.join_max_ns // MS
    assert [k + 1 for k, each in enumerate(reported) if each] == [1, 2, 4, 8]
    tries.succeeded()
    assert (tries.count, tries.next_ns > S) == (0, True)
    tries.restart()
    assert (tries.count, tries.next_ns) == (0, 0)
    patient = FailedAttempts()
    patient.failed(S, POLICY, at_once=0)
    assert patient.next_ns == S + POLICY.join_ns


def test_a_port_that_is_taken_is_no_failure_but_eight_of_them_are_one() -> None:
    tries = FailedAttempts()
    counts = []
    for _ in range(2 * TAKEN):
        tries.port_taken(S, POLICY)
        counts.append(tries.count)
    assert counts == [0] * (TAKEN - 1) + [1] * TAKEN + [2]


def test_an_address_joined_before_it_was_announced_gets_its_number() -> None:
    conn = MptcpConnection(7, 0, accepted=False)
    conn.remotes = {-2: RemoteAddress("10.1.0.2", 8_621, 1), 1: RemoteAddress("10.0.0.2", 8_621, 0)}
    conn.joined("10.1.0.2", 1)
    assert set(conn.remotes) == {-2, 1}, "the number is another's"
    conn.joined("10.1.0.2", 2)
    assert set(conn.remotes) == {1, 2}
    conn.joined("10.0.0.2", 9)
    assert set(conn.remotes) == {1, 2}
    assert conn.withdrawn("10.1.0.2") is None
    why = Reason(Cause.PEER, "", 0, 0)
    conn.remotes[2].withdrawn = why
    assert conn.withdrawn("10.1.0.2") == why
    conn.forget_remote("10.1.0.2")
    assert set(conn.remotes) == {1}


def test_a_pair_is_used_by_what_is_coming_and_carries_by_what_gets_on() -> None:
    conn = MptcpConnection(7, 0, accepted=False)
    pair = ("nic0", FLOW.remote)
    assert not conn.uses(pair)
    conn.subflows[FLOW] = Subflow(FLOW, "nic0", SubflowState.COMING, 0)
    assert (conn.uses(pair), conn.carries(pair), conn.up()) == (True, False, [])
    conn.subflows[FLOW].state = SubflowState.UP
    assert conn.carries(pair)
    assert not conn.carries(("nic1", FLOW.remote))
    conn.subflows[FLOW].stalled = Reason(Cause.FABRIC, "", 0, 0)
    assert not conn.carries(pair)


# --- plain flows ---


def plain() -> PlainFlow:
    found = PlainFlow(sample(0, unacked=0), "nic0")
    found.take(sample(0, unacked=0), POLICY)
    return found


def test_a_plain_flow_on_a_new_way_is_judged_once_the_kernel_has_tried_it() -> None:
    for way, tries in ((OTHER_PORT, 1), (AWAY, 2)):
        found = plain()
        assert found.take(sample(70 * MS, retransmits=1), POLICY)
        assert found.stuck
        found.put(way, 80 * MS)
        assert found.detoured
        assert found.subflow.stalled is None
        assert not found.take(sample(80 * MS, retransmits=3), POLICY), "how it was before"
        assert found.repeats == 3
        at_ns = S
        for repeat in range(tries):
            assert not found.take(sample(at_ns, retransmits=3 + repeat), POLICY)
            assert found.moved_ns is not None
            at_ns += 50 * MS
        assert not found.take(sample(at_ns, retransmits=3 + tries), POLICY), "its grace"
        assert found.moved_ns is None
        silent_ns = at_ns + GRACE_NS + PATIENCE_NS
        assert not found.take(sample(silent_ns - 1, retransmits=9), POLICY)
        assert found.take(sample(silent_ns, retransmits=9), POLICY)


def test_whatever_moves_is_a_sign_of_life_and_clears_what_was_tried() -> None:
    found = plain()
    found.tried = {AWAY}
    found.take(sample(S, backoff=2), POLICY)
    assert (found.waits, found.alive_ns, found.backoff, found.tried) == (True, 0, 2, {AWAY})
    found.take(sample(2 * S, bytes_received=7), POLICY)
    assert (found.waits, found.alive_ns, found.tried) == (True, 2 * S, {AWAY})
    found.take(sample(3 * S, 101, bytes_received=7), POLICY)
    assert (found.waits, found.alive_ns, found.tried) == (False, 3 * S, set())
    found.take(sample(4 * S, 101, bytes_received=7, unacked=0), POLICY)
    assert not found.waits


# --- rates ---


def test_a_meter_counts_whole_windows_both_ways() -> None:
    meter = Meter()
    meter.take(sample(0, 0))
    meter.take(sample(WINDOW_NS - 1, 9_999))
    assert (meter.windows, meter.bps) == (0, 0)
    meter.take(sample(WINDOW_NS, 50_000, bytes_received=25_000))
    assert (meter.windows, meter.tx_bps, meter.rx_bps) == (1, 1_000_000, 500_000)
    assert meter.bps == 1_500_000
    meter.take(sample(3 * WINDOW_NS, 50_000, bytes_received=20_000))
    assert (meter.windows, meter.tx_bps, meter.rx_bps) == (2, 0, 0), "back is no rate"

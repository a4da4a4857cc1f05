"""One connection's numbers over time, as a table and as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.model import MS
from syntony.model.paths import FlowSample, FourTuple, StallEvent
from syntony.traffic.evidence import (
    DELAYED_ACK_NS,
    MIN_SILENCE_NS,
    FlowEvidence,
    Progress,
    Punctuality,
)

FLOW = FourTuple("10.0.0.1", 1000, "10.0.0.2", 2000)
STEP = 10


def sample(at: int, acked: int, silent: int, **rest: int) -> FlowSample:
    """At `at` ms, the newest acknowledgement `silent` ms ago."""
    values: dict[str, int] = {
        "token": 0, "inode": 1, "bytes_received": 0, "unacked": 10, "notsent_bytes": 0,
        "retransmits": 0, "backoff": 0, "rtt_ns": 0, "pacing_bps": 0, "delivery_bps": 0,
    } | rest  # fmt: skip
    return FlowSample(
        at_ns=at * MS, flow=FLOW, bytes_acked=acked, last_ack_ns=silent * MS, **values
    )


def died_at(evidence: FlowEvidence, *, until: int = 1000, **rest: int) -> int | None:
    """Bulk until 100 ms, then silence: the instant (ms) of the verdict."""
    for at in range(0, 101, STEP):
        assert evidence.observe(sample(at, at, 0, **rest)) is not Progress.STALLED
    for at in range(100 + STEP, until, STEP):
        if evidence.observe(sample(at, 100, at - 100, **rest)) is Progress.STALLED:
            return at
    return None


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ({}, 120),
        ({"rtt_ns": 30 * MS}, 160),
        ({"unacked": 1}, 320),
        ({"unacked": 3}, 320),
        ({"unacked": 1, "backoff": 1}, 120),
        ({"unacked": 0}, None),
        ({"unacked": 0, "notsent_bytes": 1 << 20}, None),
    ],
)
def test_silence_after_bulk(rest: dict[str, int], expected: int | None) -> None:
    assert died_at(FlowEvidence(), **rest) == expected


def test_a_lone_segment_sent_twice_needs_no_delayed_acknowledgement() -> None:
    evidence = FlowEvidence()
    evidence.observe(sample(0, 1, 0, unacked=1))
    assert evidence.observe(sample(30, 1, 30, unacked=1)) is Progress.PROGRESSING
    again = sample(40, 1, 40, unacked=1, retransmits=1)
    assert evidence.observe(again) is Progress.STALLED


def test_data_after_an_idle_hour_are_not_an_hour_late() -> None:
    evidence = FlowEvidence()
    evidence.observe(sample(0, 1, 0, unacked=0))
    assert evidence.observe(sample(3_600_000, 1, 3_600_000)) is not Progress.STALLED
    assert evidence.observe(sample(3_600_010, 1, 3_600_010)) is not Progress.STALLED
    assert evidence.observe(sample(3_600_030, 1, 3_600_030)) is Progress.STALLED


def test_a_flow_first_seen_silent_is_given_the_benefit() -> None:
    evidence = FlowEvidence()
    assert evidence.observe(sample(0, 1, 500)) is not Progress.STALLED
    assert evidence.observe(sample(20, 1, 520)) is Progress.STALLED


def test_acknowledgements_without_progress_are_life() -> None:
    """Duplicates: something is lost, but both directions carry."""
    evidence = FlowEvidence()
    for at in range(0, 500, STEP):
        assert evidence.observe(sample(at, 1, 3)) is not Progress.STALLED


def test_own_stalls_are_not_counted() -> None:
    evidence = FlowEvidence()
    evidence.observe(sample(0, 1, 0))
    evidence.excuse(StallEvent(at_ns=60 * MS, lasted_ns=55 * MS))
    assert evidence.observe(sample(60, 1, 60)) is not Progress.STALLED
    assert evidence.observe(sample(80, 1, 80)) is Progress.STALLED


def test_a_silence_that_ended_well_makes_patient_for_a_while() -> None:
    evidence = FlowEvidence()
    evidence.observe(sample(0, 1, 0))
    assert evidence.observe(sample(60, 1, 60)) is Progress.STALLED
    assert evidence.observe(sample(70, 2, 5)) is Progress.PROGRESSING
    assert evidence.observe(sample(140, 2, 75)) is not Progress.STALLED
    assert evidence.observe(sample(170, 2, 105)) is Progress.STALLED
    evidence.observe(sample(180, 3, 0))
    evidence.observe(sample(300_000, 4, 0))
    assert evidence.observe(sample(300_020, 4, 20)) is Progress.STALLED


def test_a_repaired_failure_teaches_nothing() -> None:
    evidence = FlowEvidence()
    evidence.observe(sample(0, 1, 0))
    assert evidence.observe(sample(3000, 1, 3000)) is Progress.STALLED
    evidence.observe(sample(3010, 2, 0))
    assert evidence.observe(sample(3030, 2, 20)) is Progress.STALLED


def test_recovery_is_told_at_once() -> None:
    evidence = FlowEvidence()
    died_at(evidence)
    assert evidence.observe(sample(1000, 101, 0)) is Progress.PROGRESSING
    assert evidence.observe(sample(1010, 102, 0, unacked=0)) is Progress.IDLE


@given(
    gaps=st.lists(st.integers(1, MIN_SILENCE_NS // MS - 1), min_size=1, max_size=60),
    step=st.integers(1, 40),
    unacked=st.integers(1, 100),
    rtt=st.integers(0, 100),
)
def test_whoever_is_answered_in_time_is_never_stalled(
    gaps: list[int], step: int, unacked: int, rtt: int
) -> None:
    answers, now = [0], 0
    for gap in gaps:
        now += gap
        answers.append(now)
    evidence = FlowEvidence()
    for at in range(0, now + 1, step):
        past = [answer for answer in answers if answer <= at]
        seen = sample(at, len(past), at - past[-1], unacked=unacked, rtt_ns=rtt * MS)
        assert evidence.observe(seen) is not Progress.STALLED


@given(
    step=st.integers(1, 40),
    rtt=st.integers(0, 100),
    unacked=st.integers(1, 100),
    habit=st.integers(0, 150),
)
def test_whoever_is_never_answered_is_stalled_in_bounded_time(
    step: int, rtt: int, unacked: int, habit: int
) -> None:
    evidence = FlowEvidence()
    evidence.observe(sample(0, 1, 0))
    evidence.observe(sample(habit, 1, habit))
    evidence.observe(sample(habit + 1, 2, 0))
    bound = max(20, 2 * rtt, habit * 3 // 2) + DELAYED_ACK_NS // MS + step
    begin = habit + 1
    told = [
        evidence.observe(sample(at, 2, at - begin, unacked=unacked, rtt_ns=rtt * MS))
        for at in range(begin, begin + bound + 1, step)
    ]
    assert told[-1] is Progress.STALLED


def test_a_watcher_that_was_not_scheduled_says_so() -> None:
    punctuality = Punctuality()
    assert punctuality.woke(100 * MS, 98 * MS) is None
    assert punctuality.woke(100 * MS, 200 * MS) is None
    assert punctuality.woke(100 * MS, 60 * MS) == StallEvent(at_ns=100 * MS, lasted_ns=40 * MS)

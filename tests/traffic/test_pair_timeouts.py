"""Pairs of NICs that fall silent as a whole while a job's data wait."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.model import MS, S
from syntony.model.paths import FourTuple, LivenessEvent
from syntony.traffic.health import Health
from syntony.traffic.instructions import Cause
from syntony.traffic.pair_timeouts import LONGEST_NS, SHORTEST_NS, PairTimeouts
from syntony.traffic.pairs import (
    HANG_NS,
    ConnectionProgress,
    LocalNic,
    Pair,
    PairReplies,
    Reply,
    WatchedFlow,
)
from syntony.traffic.policy import Policy

NOW_NS = 10_000 * MS
INTERVAL_NS = 15 * MS
FLOW = FourTuple("10.0.0.1", 40_000, "10.0.0.2", 5_000)
TO_B = ("n0", "10.0.0.2")
TO_B_ELSEWHERE = ("n1", "10.1.0.2")
TO_C = ("n0", "10.0.0.3")


FIRST_MS = 45
"""The patience with a pair of which nothing is known."""


def answers(
    silent_ms: int, elsewhere_ms: int = 2, c_ms: int = 3, flows: int = 4
) -> dict[Pair, PairReplies]:
    ages = {TO_B: (silent_ms, "b"), TO_B_ELSEWHERE: (elsewhere_ms, "b"), TO_C: (c_ms, "c")}
    return {
        pair: PairReplies(
            NOW_NS - age_ms * MS, flows, host, silent=age_ms > 8, unresponsive=age_ms > 20
        )
        for pair, (age_ms, host) in ages.items()
    }


def no_more(_pair: Pair, _now_ns: int) -> int:
    return 0


def progress(
    acked_ms: int, waits_ms: int, rtt_ms: int = 5, *, streams: bool = True
) -> ConnectionProgress:
    """Acknowledged so long ago."""
    return ConnectionProgress(FLOW, NOW_NS - acked_ms * MS, rtt_ms * MS, waits_ms * MS, streams)


WAITING = {TO_B: [progress(60, 16)]}


@pytest.mark.parametrize(
    ("heard", "dead"),
    [
        (answers(FIRST_MS + 1), {TO_B}),
        (answers(FIRST_MS), set()),
        (answers(60, elsewhere_ms=58), set()),  # the peer itself is late
        (answers(60, elsewhere_ms=8), {TO_B}),
        (answers(60, elsewhere_ms=40), set()),  # … and has fallen silent there a little later
        (answers(60, elsewhere_ms=16, c_ms=16), set()),  # we were not awake ourselves
        (answers(46, c_ms=43), {TO_B, TO_C}),  # died with it, answered a little later
        (answers(46, c_ms=42), {TO_B}),
        (answers(46, c_ms=31, flows=1), {TO_B, TO_C}),  # asked less often
    ],
)
def test_who_is_silent_while_data_wait(heard: dict[Pair, PairReplies], dead: set[Pair]) -> None:
    assert set(PairTimeouts().dead(heard, WAITING, INTERVAL_NS, NOW_NS, no_more)) == dead


@pytest.mark.parametrize(
    ("flows", "dead"),
    [
        ({}, set()),
        (WAITING, {TO_B, TO_C}),
        ({TO_B: [progress(60, 15)]}, set()),
        ({TO_B: [progress(60, 16, 70)]}, {TO_B, TO_C}),  # they were coming
        ({TO_B: [progress(60, 60, 70, streams=False)]}, set()),  # the first may take a round trip
        ({TO_B: [progress(60, 71, 70, streams=False)]}, {TO_B, TO_C}),
        ({TO_B: [progress(44, 30), progress(60, 50)]}, set()),  # something got through
        ({TO_B: [progress(60, 50)], TO_C: [progress(40, 30)]}, {TO_B}),
        ({TO_B: [progress(60, 0)], TO_C: [progress(60, 50)]}, {TO_B, TO_C}),
    ],
)
def test_silent_pairs_are_dead_where_data_wait_and_none_gets_through(
    flows: dict[Pair, list[ConnectionProgress]], dead: set[Pair]
) -> None:
    heard = answers(50, c_ms=50)
    assert set(PairTimeouts().dead(heard, flows, INTERVAL_NS, NOW_NS, no_more)) == dead


def test_the_last_sign_of_life_is_told() -> None:
    flows = {TO_B: [progress(46, 40)]}
    reported = PairTimeouts().dead(answers(70), flows, INTERVAL_NS, NOW_NS, no_more)
    assert reported == {TO_B: NOW_NS - 46 * MS}


@pytest.mark.parametrize(("more_ms", "dead"), [(14, {TO_B}), (15, set())])
def test_whoever_healed_at_once_of_late_is_given_more_time(more_ms: int, dead: set[Pair]) -> None:
    def more(_pair: Pair, _now_ns: int) -> int:
        return more_ms * MS

    assert set(PairTimeouts().dead(answers(60), WAITING, INTERVAL_NS, NOW_NS, more)) == dead


def test_what_is_dying_already_is_not_told_again() -> None:
    heard = answers(50, c_ms=50)
    heard[TO_B] = heard[TO_B]._replace(dying=True)
    found = PairTimeouts().dead(heard, {TO_C: [progress(60, 30)]}, INTERVAL_NS, NOW_NS, no_more)
    assert set(found) == {TO_C}


def look(
    silence: PairTimeouts, now_ns: int, silent_ms: int, waits_ms: int, *, dying: bool = False
) -> set[Pair]:
    """At one pair, from which the newest acknowledgement is as old as its newest answer."""
    at_ns = now_ns - silent_ms * MS
    heard = {
        TO_B: PairReplies(at_ns, 4, "b", silent=True, unresponsive=silent_ms > 20, dying=dying),
        TO_C: PairReplies(now_ns - MS, 4, "c"),
    }
    flows = {TO_B: [ConnectionProgress(FLOW, at_ns, 5 * MS, waits_ms * MS, streams=True)]}
    return set(silence.dead(heard, flows, INTERVAL_NS, now_ns, no_more))


def test_patience_follows_the_longest_silence_of_waiting_data() -> None:
    silence = PairTimeouts()
    look(silence, NOW_NS, 1, 0)
    now_ns = NOW_NS + 60 * S
    assert silence.timeout_ns(TO_B, now_ns) == SHORTEST_NS
    assert not look(silence, now_ns, 20, 18)
    look(silence, now_ns + 5 * MS, 1, 0)
    assert silence.timeout_ns(TO_B, now_ns + 5 * MS) // MS == 31, "25 ms at most, and a quarter"
    assert not look(silence, now_ns + 50 * MS, 31, 30)
    assert look(silence, now_ns + 51 * MS, 32, 31)
    assert silence.timeout_ns(TO_B, now_ns + 32 * S) == SHORTEST_NS, "it is forgotten"


@pytest.mark.parametrize(
    ("silent_ms", "timeout_ms"),
    # Of 200 ms, with the 5 ms of a look, it is an outage and no habit.
    [(60, 81), (190, LONGEST_NS // MS), (194, LONGEST_NS // MS), (195, 44), (900, 44)],
)
def test_where_silence_is_usual_it_takes_longer_to_be_believed(
    silent_ms: int, timeout_ms: int
) -> None:
    silence = PairTimeouts()
    look(silence, NOW_NS, 1, 0)
    # As an outage it was let pass: another NIC of the peer was silent as well, say.
    heard = answers(silent_ms, elsewhere_ms=silent_ms)
    silence.dead(heard, {TO_B: [progress(silent_ms, 18)]}, INTERVAL_NS, NOW_NS, no_more)
    look(silence, NOW_NS + 5 * MS, 1, 0)
    assert silence.timeout_ns(TO_B, NOW_NS + 5 * MS) // MS == timeout_ms


def test_silence_counts_from_our_own_return() -> None:
    silence, flows = PairTimeouts(), [ConnectionProgress(FLOW, 0, 5 * MS, 600 * MS, streams=True)]
    silence.paused(NOW_NS)
    for sign_ns, now_ns in ((NOW_NS - 500 * MS, NOW_NS), (NOW_NS + 30 * MS, NOW_NS + 40 * MS)):
        until_ns = silence.until_ns(TO_B, sign_ns, flows, now_ns)
        assert until_ns == max(NOW_NS, sign_ns) + silence.timeout_ns(TO_B, now_ns)


def test_whose_probes_all_died_is_believed_in_while_the_kernel_acknowledges_now_and_then() -> None:
    silence = PairTimeouts()
    now_ns = NOW_NS

    def until(acked_ns: int, at_ns: int) -> int:
        flows = [ConnectionProgress(FLOW, acked_ns, 5 * MS, 20 * MS, streams=True)]
        return silence.until_ns(TO_B, NOW_NS - 20 * MS, flows, at_ns)

    assert until(now_ns - 20 * MS, now_ns) == now_ns + 25 * MS
    for _ in range(3):  # acknowledged after 70 ms each time
        until(now_ns, now_ns + 65 * MS)
        now_ns += 70 * MS
    until_ns = until(now_ns, now_ns)
    assert (until_ns - now_ns) // MS in range(86, 89), "70 ms, and a quarter"
    look(silence, now_ns, 1, 0)  # of which its answers are not to be forgotten
    assert until(now_ns, now_ns) == until_ns


@pytest.mark.parametrize(
    ("late_ms", "timeout_ms"), [(-50, 25), (8, 33), (30, 55), (40, 105), (300, LONGEST_NS // MS)]
)
def test_who_is_woken_late_is_patient_with_others(late_ms: int, timeout_ms: int) -> None:
    silence = PairTimeouts()
    look(silence, NOW_NS, 1, 0)
    now_ns = NOW_NS + 60 * S
    silence.late(late_ms * MS, now_ns)
    silence.late(3 * MS, now_ns)
    assert silence.timeout_ns(TO_B, now_ns) // MS == max(28, timeout_ms)
    assert silence.timeout_ns(TO_B, now_ns + 30 * S) < SHORTEST_NS + MS, "it is forgotten"


@pytest.mark.parametrize(("waits_ms", "dying"), [(0, False), (20, True)])
def test_what_nothing_waited_for_and_what_was_dead_is_no_habit(
    waits_ms: int, *, dying: bool
) -> None:
    silence = PairTimeouts()
    look(silence, NOW_NS, 1, 0)
    now_ns = NOW_NS + 60 * S
    look(silence, now_ns, 40, waits_ms, dying=dying)
    look(silence, now_ns + MS, 1, 0)
    assert silence.timeout_ns(TO_B, now_ns + MS) == SHORTEST_NS


def health() -> Health:
    nics = [LocalNic(name=f"n{k}", rail=k, addresses=(f"10.{k}.0.1",)) for k in (0, 1)]
    made = Health(Policy(), nics)
    made.watch(
        [
            WatchedFlow(flow_id, f"n{rail}", f"10.{rail}.0.{far}", f"{host}/n{rail}", rail)
            for flow_id, (rail, far, host) in enumerate(
                [(0, 2, "b"), (0, 3, "c"), (1, 2, "b"), (1, 3, "c")]
            )
        ]
    )
    for flow_id in range(4):
        made.liveness(event(0, flow_id, alive=True))
    return made


def event(at_ns: int, flow_id: int, *, alive: bool) -> LivenessEvent:
    return LivenessEvent(at_ns=at_ns, flow_id=flow_id, alive=alive, since_ns=0, misses=7)


def test_what_is_presumed_dead_is_left_at_once_by_the_same_reasoning() -> None:
    one = health()
    one.presume_dead({TO_B: NOW_NS - 50 * MS, TO_C: NOW_NS - 40 * MS}, NOW_NS)
    assert set(one.decide_deaths(NOW_NS)) == {TO_B, TO_C}
    reason = one.dead(*TO_B)
    assert reason is not None
    assert reason.cause is Cause.LOCAL_NIC
    assert "no answer for 50 ms" in reason.evidence


def test_once_nobody_answers_any_more_deaths_are_forgotten_and_nothing_is_in_doubt() -> None:
    """It is this host then, or everybody's agents: no path is reported from another by it."""
    one = health()
    everyone = {(f"n{rail}", f"10.{rail}.0.{far}") for rail in (0, 1) for far in (2, 3)}
    one.presume_dead({TO_B: NOW_NS - 50 * MS}, NOW_NS)
    assert one.decide_deaths(NOW_NS) == [TO_B]
    one.presume_dead(dict.fromkeys(everyone - {TO_B}, NOW_NS - 50 * MS), NOW_NS)
    one.decide_deaths(NOW_NS + 900 * MS)
    assert one.dead(*TO_B) is not None
    one.decide_deaths(NOW_NS + S)
    assert one.dead(*TO_B) is None, "it may have come back"
    assert not one._pairs[TO_B].presumed


def test_an_answer_since_takes_it_back() -> None:
    one = health()
    one.presume_dead({TO_B: NOW_NS - 50 * MS}, NOW_NS)
    one.decide_deaths(NOW_NS)
    assert not one.revive_answered({0: Reply(NOW_NS - 50 * MS)}, NOW_NS + 10 * MS), (
        "it was heard before"
    )
    assert one.dead(*TO_B) is not None
    assert one.revive_answered({0: Reply(NOW_NS + 5 * MS)}, NOW_NS + 10 * MS)
    assert (one.dead(*TO_B), one.needs_replies) == (None, False)
    assert one.timeout_ns(TO_B, NOW_NS + 10 * MS) > 0, "more time the next time"


def test_what_was_taken_back_and_is_presumed_again_is_left_at_once_again() -> None:
    """Time that a pair is given after a death that healed at once it has had by then."""
    one = health()
    for again in range(3):
        at_ns = NOW_NS + again * 100 * MS
        one.presume_dead({TO_B: at_ns - 50 * MS}, at_ns)
        assert one.decide_deaths(at_ns) == [TO_B]
        assert one.revive_answered({0: Reply(at_ns + 5 * MS)}, at_ns + 10 * MS)
    assert one.timeout_ns(TO_B, NOW_NS + 300 * MS) > 0


def test_the_flows_own_word_confirms_it_and_takes_it_back() -> None:
    one = health()
    one.presume_dead({TO_B: NOW_NS - 50 * MS}, NOW_NS)
    one.decide_deaths(NOW_NS)
    one.liveness(event(NOW_NS + 30 * MS, 0, alive=False))
    assert not one.revive_answered({0: Reply(NOW_NS + 40 * MS)}, NOW_NS + 50 * MS), (
        "three answers are asked for"
    )
    assert one.dead(*TO_B) is not None
    one.liveness(event(NOW_NS + 900 * MS, 0, alive=True))
    assert (one.dead(*TO_B), one.needs_replies) == (None, False)


# --- a job's own queue, simulated -----------------------------------------------------------------

PROBE_MS, LOOK_MS, BASE_RTT_MS = 4, 5, 2


def own_queue(seed: int, dies_at_ms: int | None) -> tuple[int | None, int]:
    """A job fills its pair's queue with bursts of up to 100 ms, a probe stands behind whatever has
    been queued before it, and the queue drains at line rate: a packet each ms, acknowledged one by
    one. Looked at as an agent does, every 5 ms while nothing of the pair is answered.

    Returns:
        When it was taken for dead (ms; None: never), and the patience then (ns).
    """
    rng = random.Random(seed)
    silence = PairTimeouts()
    free_ms = burst_ms = 0
    coming: list[tuple[int, bool]] = []
    answered_ms = acked_ms = began_ms = -1
    for now_ms in range(20_000):
        if now_ms >= burst_ms:
            began_ms = began_ms if any(data for _, data in coming) else now_ms
            start_ms, length_ms = max(free_ms, now_ms), rng.randint(1, 100)
            coming += [(start_ms + k + BASE_RTT_MS, True) for k in range(length_ms)]
            free_ms = start_ms + length_ms
            burst_ms = free_ms + rng.randint(0, 60)
        if now_ms % PROBE_MS == 0:
            coming.append((max(free_ms, now_ms) + BASE_RTT_MS, False))
        if dies_at_ms is None or now_ms < dies_at_ms:
            arrived = [data for at_ms, data in coming if at_ms <= now_ms]
            answered_ms = now_ms if False in arrived else answered_ms
            acked_ms = now_ms if True in arrived else acked_ms
            coming = [each for each in coming if each[0] > now_ms]
        silent_ms = now_ms - answered_ms
        if silent_ms <= 8 or now_ms % LOOK_MS:
            continue
        waits = any(data for _, data in coming)
        waits_ms = now_ms - max(acked_ms, began_ms) if waits else 0
        now_ns = NOW_NS + now_ms * MS
        heard = {
            TO_B: PairReplies(
                now_ns - silent_ms * MS, 4, "b", silent=True, unresponsive=silent_ms > 20
            ),
            TO_C: PairReplies(now_ns - MS, 4, "c"),
        }
        flow = ConnectionProgress(
            FLOW, NOW_NS + acked_ms * MS, 50 * MS, waits_ms * MS, streams=True
        )
        if silence.dead(heard, {TO_B: [flow]}, INTERVAL_NS, now_ns, no_more):
            return now_ms, silence.timeout_ns(TO_B, now_ns)
    return None, 0


def test_one_long_delay_of_ours_does_not_put_off_verdicts_for_longer_than_a_short_one() -> None:
    """Seconds later as well: a wake-up 60 ms late counts as much as one that was 10 s late."""
    found = []
    for late_ns in (60 * MS, 70 * MS, 90 * MS, 10 * S):
        silence = PairTimeouts()
        silence.late(late_ns, NOW_NS)
        found.append([silence.timeout_ns(TO_B, NOW_NS + later * S) for later in (1, 2, 4, 6, 8)])
    assert all(each == found[0] for each in found)
    assert SHORTEST_NS < found[0][2] < LONGEST_NS


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=6, deadline=None)
def test_a_jobs_own_queue_is_never_taken_for_a_dead_path(seed: int) -> None:
    assert own_queue(seed, None) == (None, 0)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=6, deadline=None)
def test_what_dies_under_a_jobs_own_queue_is_found_within_the_patience(seed: int) -> None:
    """And two looks; or the silence after which it is unresponsive, where the queue was empty."""
    dies_at_ms = 19_000 + seed % 400
    found_ms, timeout_ns = own_queue(seed, dies_at_ms)
    assert found_ms is not None
    assert dies_at_ms < found_ms <= dies_at_ms + 60 + HANG_NS // MS + timeout_ns // MS + LOOK_MS

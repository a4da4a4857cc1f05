"""Pairs of NICs that fall silent as a whole while a job's data wait."""

from __future__ import annotations

import pytest

from syntony.model import MS
from syntony.model.paths import FourTuple, LivenessEvent
from syntony.traffic.health import Answers, Health, LocalNic, Progress, WatchedFlow
from syntony.traffic.instructions import Cause
from syntony.traffic.policy import Policy
from syntony.traffic.silence import hushed, presumed

NOW_NS = 10_000 * MS
INTERVAL_NS = 15 * MS
FLOW = FourTuple("10.0.0.1", 40_000, "10.0.0.2", 5_000)
TO_B = ("n0", "10.0.0.2")
TO_B_ELSEWHERE = ("n1", "10.1.0.2")
TO_C = ("n0", "10.0.0.3")


def answers(
    silent_ms: int, elsewhere_ms: int = 2, c_ms: int = 3, flows: int = 4
) -> dict[tuple[str, str], Answers]:
    ages = {TO_B: (silent_ms, "b"), TO_B_ELSEWHERE: (elsewhere_ms, "b"), TO_C: (c_ms, "c")}
    return {
        pair: Answers(NOW_NS - age_ms * MS, flows, host) for pair, (age_ms, host) in ages.items()
    }


def no_more(_pair: tuple[str, str], _now_ns: int) -> int:
    return 0


@pytest.mark.parametrize(
    ("heard", "silent"),
    [
        (answers(46), {TO_B}),
        (answers(44), set()),
        (answers(46, flows=1), set()),  # three probes missed prove nothing
        (answers(121, flows=1), {TO_B}),
        (answers(60, elsewhere_ms=58), set()),  # the peer itself is late
        (answers(60, elsewhere_ms=40), {TO_B}),  # it was awake after this NIC's last answer
        (answers(60, elsewhere_ms=16, c_ms=16), set()),  # we were not awake ourselves
        (answers(46, c_ms=32), {TO_B, TO_C}),  # died with it, answered a little later
        (answers(46, c_ms=30), {TO_B}),
    ],
)
def test_who_is_silent(heard: dict[tuple[str, str], Answers], silent: set[object]) -> None:
    assert set(hushed(heard, INTERVAL_NS, NOW_NS, no_more)) == silent


def test_whoever_healed_at_once_of_late_is_given_more_time() -> None:
    assert not hushed(answers(60), INTERVAL_NS, NOW_NS, lambda _pair, _now_ns: 40 * MS)


def progress(acked_ms: int, waits_ms: int, rtt_ms: int = 5) -> Progress:
    """Acknowledged so long after the pair's last answer."""
    return Progress(FLOW, NOW_NS - 50 * MS + acked_ms * MS, rtt_ms * MS, waits_ms * MS)


@pytest.mark.parametrize(
    ("flows", "dead"),
    [
        ({}, set()),
        ({TO_B: [progress(0, 50)]}, {TO_B, TO_C}),
        ({TO_B: [progress(0, 40)]}, set()),
        ({TO_B: [progress(0, 50, rtt_ms=60)]}, set()),
        ({TO_B: [progress(20, 30), progress(0, 50)]}, set()),  # something gets through
        ({TO_B: [progress(0, 50)], TO_C: [progress(20, 30)]}, {TO_B}),
        ({TO_B: [progress(0, 0)], TO_C: [progress(0, 50)]}, {TO_B, TO_C}),
    ],
)
def test_silent_pairs_are_dead_where_data_wait_and_none_gets_through(
    flows: dict[tuple[str, str], list[Progress]], dead: set[object]
) -> None:
    since_ns = NOW_NS - 50 * MS
    assert set(presumed({TO_B: since_ns, TO_C: since_ns}, flows)) == dead


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
    one.presume({TO_B: NOW_NS - 50 * MS, TO_C: NOW_NS - 40 * MS}, NOW_NS)
    assert set(one.conclude(NOW_NS)) == {TO_B, TO_C}
    reason = one.dead(*TO_B)
    assert reason is not None
    assert reason.cause is Cause.MY_NIC
    assert "no answer for 44 ms" in reason.evidence


def test_an_answer_since_takes_it_back() -> None:
    one = health()
    one.presume({TO_B: NOW_NS - 50 * MS}, NOW_NS)
    one.conclude(NOW_NS)
    assert not one.heard({0: NOW_NS - 50 * MS}, NOW_NS + 10 * MS), "it was heard before"
    assert one.dead(*TO_B) is not None
    assert one.heard({0: NOW_NS + 5 * MS}, NOW_NS + 10 * MS)
    assert (one.dead(*TO_B), one.presuming) == (None, False)
    assert one.patience_ns(TO_B, NOW_NS + 10 * MS) > 0, "more time the next time"


def test_the_flows_own_word_confirms_it_and_takes_it_back() -> None:
    one = health()
    one.presume({TO_B: NOW_NS - 50 * MS}, NOW_NS)
    one.conclude(NOW_NS)
    one.liveness(event(NOW_NS + 30 * MS, 0, alive=False))
    assert not one.heard({0: NOW_NS + 40 * MS}, NOW_NS + 50 * MS), "three answers are asked for"
    assert one.dead(*TO_B) is not None
    one.liveness(event(NOW_NS + 900 * MS, 0, alive=True))
    assert (one.dead(*TO_B), one.presuming) == (None, False)

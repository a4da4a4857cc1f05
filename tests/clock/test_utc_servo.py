"""The servo that leads a fleet to UTC, one step at a time: what it does is what it remembers."""

from __future__ import annotations

import math

import msgspec
import pytest

from syntony.clock.anchors import Vote
from syntony.clock.lead import Lead
from syntony.clock.utc import UtcMemory, UtcServo
from syntony.model import MS, ClockState, S, Utc

T0 = 1_700_000_000 * S
# As docs/reference/clock.md has them.
START_SPAN_NS, START_PATIENCE_NS = 4 * S, 10 * S
APPROACH_NS, MAX_LEAD_PPB, MAX_TURN_PPB_PER_S = 100 * S, 100.0, 0.5
RATE_GATE_PPB, RATE_SPAN_NS, MOVED_SOLVES = 1_000.0, 8 * S, 10
SYNCHRONIZED, HOLDOVER, UNKNOWN = (
    ClockState.SYNCHRONIZED, ClockState.HOLDOVER, ClockState.UNKNOWN
)  # fmt: skip


def known(offset_ns: float = 0.0, drift_ppb: float = 0.0, **more: object) -> UtcMemory:
    """A memory that is sure of itself."""
    values = {
        "ref_ns": T0, "offset_ns": offset_ns, "drift_ppb": drift_ppb, "error_ns": 500.0,
        "confirmed_ns": T0, "drift_sigma_ppb": 0.1, "state": SYNCHRONIZED, "anchors": ("h0",),
    } | more  # fmt: skip
    return UtcMemory(utc=Utc(**values), covariance=(1.0, 0.01, 0.0))  # type: ignore[arg-type]


def servo(memory: UtcMemory, *, anchors: int = 3, step_ns: float = 0.0) -> UtcServo:
    found = UtcServo(anchors, step_ns)
    found.inherit(memory)
    return found


def votes(offset_ns: float, *, half_ns: float = 1_000.0, count: int = 3) -> list[Vote]:
    return [Vote(f"h{k}", offset_ns, half_ns) for k in range(count)]


def of(found: UtcServo) -> Utc:
    assert found.utc is not None
    return found.utc


@pytest.mark.parametrize("sign", [-1, 1])
def test_what_fleet_time_is_told_to_do_is_taken_off_what_is_left(sign: int) -> None:
    found = servo(known(drift_ppb=sign * 50.0))
    lead = found.step(votes(sign * 50.0), T0 + S)
    assert lead.rate_ppb == pytest.approx(sign * MAX_TURN_PPB_PER_S)
    assert of(found).drift_ppb == pytest.approx(sign * (50.0 - MAX_TURN_PPB_PER_S), abs=0.01)
    assert of(found).offset_ns == pytest.approx(sign * 50.0, abs=0.01)
    assert (of(found).ref_ns, of(found).confirmed_ns) == (T0 + S, T0 + S)


@pytest.mark.parametrize(("since_s", "most"), [(0.5, 0.25), (4, 2.0), (10, 5.0), (60, 5.0)])
def test_the_rate_turns_slowly_however_long_ago_it_was_told(since_s: float, most: float) -> None:
    found = servo(known(drift_ppb=50.0))
    found.step(votes(0.05), T0 + MS)
    drift = of(found).drift_ppb
    later_ns = T0 + MS + round(since_s * S)
    lead = found.step(votes(of(found).offset_ns + drift * since_s), later_ns)
    assert lead.rate_ppb == pytest.approx(most, rel=0.01)


def test_an_offset_is_taken_away_over_the_approach_and_never_faster_than_the_limit() -> None:
    for offset_ns in (40.0, -40.0):
        lead = servo(known(offset_ns)).step(votes(offset_ns), T0 + S)
        assert lead.rate_ppb == pytest.approx(offset_ns / (APPROACH_NS / S), abs=0.001)
    far_ns, rate_ppb = 1e6, 0.0
    found = servo(known(far_ns))
    for second in range(1, 260):
        lead = found.step(votes(far_ns, half_ns=2e5), T0 + second * S)
        rate_ppb += lead.rate_ppb
        far_ns -= rate_ppb
        assert lead.step_ns == 0
    assert rate_ppb == pytest.approx(MAX_LEAD_PPB, rel=0.05)


def test_told_to_it_steps_and_remembers_the_step() -> None:
    offset_ns = 3_000_000.0
    for step_ns, steps in ((0.0, False), (offset_ns + 1_000, False), (offset_ns - 1_000, True)):
        found = servo(known(offset_ns), step_ns=step_ns)
        lead = found.step(votes(offset_ns), T0 + S)
        assert lead.step_ns == (pytest.approx(offset_ns, abs=2) if steps else 0)
        utc = of(found)
        assert utc.offset_ns == pytest.approx(offset_ns - lead.step_ns, abs=0.6)
        assert utc.ref_ns == utc.confirmed_ns == T0 + S + lead.step_ns
        assert utc.to_utc_ns(utc.ref_ns) == pytest.approx(T0 + S + offset_ns, abs=2)


def test_a_memory_is_handed_on_as_it_is() -> None:
    before = servo(known(5.0, 0.25))
    before.step(votes(5.25), T0 + S)
    memory = before.memory()
    assert memory is not None
    after = servo(memory)
    assert after.memory() == memory
    assert after.step(votes(5.5), T0 + 2 * S).rate_ppb != 0
    assert UtcServo(3).memory() is None
    unknown = UtcServo(3)
    unknown.step([], T0)
    assert unknown.memory() is None


def test_held_it_keeps_its_rate_leads_nowhere_and_its_bound_grows() -> None:
    found = servo(known(0.0, 2.0))
    lead = found.step([], T0 + 10 * S, {"h0": "not heard of", "h1": "reports no UTC"})
    utc = of(found)
    assert lead == Lead(T0 + 10 * S)
    assert not lead
    assert (utc.state, utc.anchors, utc.drift_ppb) == (HOLDOVER, (), 2.0)
    assert utc.offset_ns == pytest.approx(20.0)
    assert utc.confirmed_ns == T0
    assert utc.reason == "no anchor is there: h0 not heard of; h1 reports no UTC"
    assert utc.bound_ns(T0 + 10 * S) > 500 + 4 * 5 * 10**1.5 / math.sqrt(3)
    back = found.step(votes(20.0), T0 + 20 * S)
    assert of(found).state is SYNCHRONIZED
    assert abs(back.rate_ppb) <= 5.0


def test_lost_it_is_held_once_and_what_was_never_known_stays_unknown() -> None:
    found = servo(known())
    found.lose("no fleet")
    assert (of(found).state, of(found).reason, of(found).anchors) == (HOLDOVER, "no fleet", ())
    found.lose("still none")
    assert of(found).reason == "no fleet"
    unknown = UtcServo(1)
    unknown.step([], T0)
    unknown.lose("no fleet")
    assert of(unknown).state is UNKNOWN


def test_a_start_waits_for_all_and_not_for_ever() -> None:
    for said, waits_ns in ((votes(1e9), START_SPAN_NS), (votes(1e9, count=2), START_PATIENCE_NS)):
        found = UtcServo(3)
        for at_ns in range(0, waits_ns, S):
            assert found.step(said, T0 + at_ns) == Lead(T0 + at_ns)
            assert of(found).state is UNKNOWN
            assert of(found).reason.startswith("watching h0, h1")
        lead = found.step(said, T0 + waits_ns)
        assert lead.step_ns == 10**9
        assert of(found).state is SYNCHRONIZED
        assert of(found).ref_ns == of(found).confirmed_ns == T0 + waits_ns + 10**9
        assert of(found).error_ns == 1_000.0
        assert of(found).anchors == tuple(vote.node for vote in said)


def test_a_start_takes_the_rate_of_the_anchors_and_begins_anew_after_a_contradiction() -> None:
    found = UtcServo(2)

    def said(at_s: int, apart_ns: float = 0.0) -> list[Vote]:
        true_ns = 700.0 * at_s
        return [Vote("h0", true_ns, 1_000.0), Vote("h1", true_ns + apart_ns, 1_000.0)]

    found.step(said(0), T0)
    found.step(said(1, 1e6), T0 + S)
    assert of(found).reason == "h0, h1 contradict each other"
    for at_s in range(2, 6):
        found.step(said(at_s), T0 + at_s * S)
        assert of(found).state is UNKNOWN, "four seconds are counted from the contradiction's end"
    lead = found.step(said(6), T0 + 6 * S)
    assert of(found).state is SYNCHRONIZED
    assert lead.rate_ppb == pytest.approx(700.0)
    assert lead.step_ns == 4_200
    assert of(found).drift_ppb == 0.0


def test_one_that_runs_away_is_left_out_by_name() -> None:
    for ppb, out in ((RATE_GATE_PPB * 0.9, False), (RATE_GATE_PPB * 1.2, True)):
        found = servo(known())
        for second in range(1, RATE_SPAN_NS // S + 2):
            said = votes(0.0, half_ns=50_000.0)
            said[1] = Vote("h1", ppb * second, 50_000.0)
            found.step(said, T0 + second * S)
        assert ("h1 runs" in of(found).reason) is out
        assert ("h1" not in of(found).anchors) is out
    slow = servo(known())
    for second in range(1, RATE_SPAN_NS // S + 2):
        said = votes(0.0, half_ns=50_000.0)
        said[1] = Vote("h1", -1_500.0 * second, 50_000.0)
        slow.step(said, T0 + second * S)
    assert "h1 runs -1.5 ppm off" in of(slow).reason


def test_utc_has_moved_when_most_say_so_often_enough_in_a_row() -> None:
    found = servo(known())
    moved = votes(1e9)
    for solve in range(1, MOVED_SOLVES):
        found.step(moved, T0 + solve * S)
        assert of(found).state is HOLDOVER
        assert "say that UTC has moved by +1.000000000 s" in of(found).reason
    found.step(moved, T0 + MOVED_SOLVES * S)
    assert of(found).state is SYNCHRONIZED
    assert of(found).offset_ns == pytest.approx(1e9, abs=1)
    again = servo(known())
    # By others: who was a second off before would be left out for running away.
    agree = [Vote(f"g{k}", 0.0, 1_000.0) for k in range(3)]
    for solve in range(1, 3 * MOVED_SOLVES):
        said = agree if solve % MOVED_SOLVES == 0 else moved
        again.step(said, T0 + solve * S)
        expected = SYNCHRONIZED if said is agree else HOLDOVER
        assert of(again).state is expected, "agreement in between begins the count anew"


def test_anchors_that_contradict_memory_or_each_other_are_not_followed() -> None:
    lone = servo(known(), anchors=1)
    lone.step(votes(1e6, count=1), T0 + S)
    assert (of(lone).state, of(lone).reason) == (HOLDOVER, "h0 contradicts the memory")
    two = servo(known(), anchors=2)
    two.step([Vote("h0", 1e6, 100.0), Vote("h1", -1e6, 100.0)], T0 + S)
    assert of(two).reason == "h0, h1 contradict each other"


def test_a_memory_that_is_unsure_follows_more_of_what_is_said() -> None:
    def after(offset_var: float, half_ns: float) -> float:
        memory = msgspec.structs.replace(known(), covariance=(offset_var, 0.01, 0.0))
        found = servo(memory)
        found.step(votes(400.0, half_ns=half_ns), T0 + S)
        return of(found).offset_ns

    # Half the interval is two sigmas: 1,000 ns is a sigma of 500.
    assert after(500.0**2, 1_000.0) == pytest.approx(200.0, rel=0.3)
    assert after(1.0, 1_000.0) < 1.0
    assert after(1e8, 1_000.0) > 390.0


def test_a_solve_that_goes_back_in_time_changes_no_bound() -> None:
    found = servo(known(0.0, 100.0))
    found.step([], T0 - S)
    assert of(found).offset_ns == 0.0

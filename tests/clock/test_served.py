"""Served time: monotonic for whatever the solver says, its bound true, its way short."""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from syntony.clock.served import ServedTimeline, TimelinePiece
from syntony.clock.steps import Slew
from syntony.model import MS, US, ClockState, S, Timeline

START_NS = 1_700_000_000 * S
# As docs/reference/clock.md has them.
SLEW_PPB, LEAD_NS, SILENCE_NS = 200_000.0, 50 * MS, 5 * S
MAX_BOUND_NS, FOLLOW_NS = 1 * MS, 20.0


def line(ref_ns: int, offset_ns: float, drift_ppb: float = 0.0, sigma_ns: float = 10.0) -> Timeline:
    return Timeline(
        node="h0",
        ref_ns=ref_ns,
        offset_ns=offset_ns,
        drift_ppb=drift_ppb,
        sigma_ns=sigma_ns,
        drift_sigma_ppb=5.0,
        state=ClockState.SYNCHRONIZED,
    )


events = st.tuples(
    st.integers(1, 20 * S),
    st.floats(-50_000, 50_000),
    st.floats(-40_000, 40_000),
    st.sampled_from([ClockState.SYNCHRONIZED, ClockState.HOLDOVER]),
)


@given(st.lists(events, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_served_time_never_runs_backwards(sequence, chance):  # type: ignore[no-untyped-def]
    served = ServedTimeline()
    local_ns, last_ns, last_steps = START_NS, 0, 0
    for gap_ns, offset_ns, drift_ppb, state in sequence:
        for _ in range(4):
            local_ns += chance.randint(1, gap_ns)
            served.tick(local_ns)
            piece = served.at(local_ns)
            if piece is None:
                continue
            fleet_ns = piece.to_fleet_ns(local_ns)
            assert fleet_ns >= last_ns or piece.steps != last_steps
            last_ns, last_steps = fleet_ns, piece.steps
        taken = msgspec.structs.replace(line(local_ns, offset_ns, drift_ppb), state=state)
        served.take(taken, local_ns)


@given(
    st.lists(st.tuples(st.floats(-4.0, 4.0), st.integers(1, 30)), min_size=2, max_size=40),
    st.floats(-40_000, 40_000),
)
def test_the_bound_holds_while_estimates_are_as_good_as_they_claim(errors, drift_ppb):  # type: ignore[no-untyped-def]
    """Truth: a clock of constant drift. Estimates are off by up to four of their sigmas."""
    served = ServedTimeline()
    truth = line(START_NS, 5e6, drift_ppb, 0)
    local_ns = START_NS
    for sigmas, seconds in errors:
        offset_ns = 5e6 + drift_ppb * 1e-9 * (local_ns - START_NS) + 30.0 * sigmas
        served.take(line(local_ns, offset_ns, drift_ppb, 30.0), local_ns)
        for ahead_ns in (0, LEAD_NS, MS, seconds * S // 2, seconds * S):
            piece = served.at(local_ns + ahead_ns)
            if piece is not None:
                error_ns = piece.to_fleet_ns(local_ns + ahead_ns) - truth.to_fleet_ns(
                    local_ns + ahead_ns
                )
                assert abs(error_ns) <= piece.bound_ns(local_ns + ahead_ns) + 1
        local_ns += seconds * S


def test_it_arrives_at_the_solved_time_at_the_slew_rate() -> None:
    served = ServedTimeline()
    served.take(line(START_NS, 0.0), START_NS)
    second = served.take(line(START_NS, 100_000.0), START_NS + S)
    assert second is not None
    assert second.residual_ns == -100_000.0
    assert second.bound_ns(second.from_ns) > 100_000
    needed_ns = round(100_000 / SLEW_PPB * 1e9)
    assert second.to_fleet_ns(second.from_ns + needed_ns) == second.from_ns + needed_ns + 100_000
    assert second.bound_ns(second.from_ns + needed_ns) < 200


def test_it_steps_where_fleet_time_itself_was_stepped() -> None:
    served = ServedTimeline()
    served.take(line(START_NS, 0.0), START_NS)
    later_ns = START_NS + S
    piece = served.take(line(later_ns, 50.0 * MS), later_ns, stepped=True)
    assert piece is not None
    assert piece.to_fleet_ns(later_ns + S) == later_ns + S + 50 * MS
    assert piece.steps == 1


def test_states() -> None:
    served = ServedTimeline()
    assert served.tick(START_NS) is None
    assert (
        served.take(msgspec.structs.replace(line(START_NS, 0.0), state=ClockState.UNKNOWN), 1)
        is None
    )
    served.take(line(START_NS, 0.0), START_NS)
    assert served.tick(START_NS + SILENCE_NS) is None
    held = served.tick(START_NS + SILENCE_NS + 1)
    assert held is not None
    assert held.state is ClockState.HOLDOVER
    assert held.bound_ns(START_NS + 10 * S) < MAX_BOUND_NS
    late_ns = START_NS + 3600 * S
    lost = served.tick(late_ns)
    assert lost is not None
    assert lost.state is ClockState.DISRUPTED
    assert lost.bound_ns(late_ns) == math.inf
    found = served.take(line(late_ns, 50_000.0), late_ns)
    assert found is not None
    assert (found.state, found.residual_ns) == (ClockState.SYNCHRONIZED, 0.0)
    assert found.steps == 1, "nothing was served meanwhile: it may step"
    assert served.at(START_NS + 8 * S) == held, "the past stays what it was"


def test_after_a_step_old_timelines_are_not_believed() -> None:
    served = ServedTimeline()
    served.take(line(START_NS, 0.0), START_NS)
    stepped_ns = START_NS + 10 * S
    lost = served.disrupt(stepped_ns, epoch=5)
    assert lost is not None
    assert lost.state is ClockState.DISRUPTED
    for later_ns in (S, 60 * S):
        now_ns = stepped_ns + later_ns
        assert served.take(line(now_ns, 3.0), now_ns) is None, "it does not know of the step"
    knowing = msgspec.structs.replace(line(now_ns, -3.0 * US), epoch=5)
    found = served.take(knowing, now_ns)
    assert found is not None
    assert (found.state, found.steps) == (ClockState.SYNCHRONIZED, 2)


@given(
    st.floats(-6e5, 6e5),
    st.lists(
        st.tuples(st.integers(50 * MS, 400 * MS), st.floats(-90.0, 90.0)), min_size=1, max_size=30
    ),
    st.floats(-300.0, 300.0),
)
def test_through_a_slew_time_goes_on_within_its_bound(rate_ppb, looks, error_ns):  # type: ignore[no-untyped-def]
    """Truth: fleet time is the clock before its rate changed. Readings of how far it is ahead are
    off by as much as they say at most, and the rate is never reported."""
    served = ServedTimeline()
    served.take(line(START_NS, error_ns, sigma_ns=100.0), START_NS)
    slewed_ns = START_NS + S
    served.leave_pace(9)
    elapsed_ns, last_ns = 0, 0
    for gap_ns, off_ns in looks:
        elapsed_ns += gap_ns
        ahead_ns = rate_ppb * 1e-9 * elapsed_ns
        local_ns = slewed_ns + elapsed_ns + round(ahead_ns)
        slew = Slew(ahead_ns + off_ns, 90.0, (ahead_ns + off_ns) / elapsed_ns * 1e9)
        served.follow(slew, local_ns)
        piece = served.newest
        assert piece is not None
        assert piece.state is ClockState.HOLDOVER
        fleet_ns = piece.to_fleet_ns(local_ns)
        assert abs(fleet_ns - (slewed_ns + elapsed_ns)) <= piece.bound_ns(local_ns) + FOLLOW_NS + 1
        assert fleet_ns >= last_ns
        last_ns = fleet_ns
    stale = line(local_ns, 0.0)
    assert served.take(stale, local_ns) is None
    assert served.take(msgspec.structs.replace(stale, epoch=9), local_ns) is not None
    assert not served.following


@given(
    st.lists(st.tuples(st.integers(1, 300 * MS), st.floats(-50_000, 50_000)), max_size=8),
    st.integers(0, 400 * MS),
    st.floats(1.0, 90_000.0),
)
def test_what_is_widened_says_the_same_less_surely(takes, back_ns, by_ns):  # type: ignore[no-untyped-def]
    """Also where the newest piece is yet to begin, as the last one taken here always is."""
    served = ServedTimeline()
    local_ns = START_NS
    for gap_ns, offset_ns in [*takes, (1, 0.0)]:
        local_ns += gap_ns
        served.take(line(local_ns, offset_ns), local_ns)
    since_ns = local_ns - back_ns
    instants = sorted({local_ns + away * MS for away in range(-450, 100, 7)} | {since_ns})

    def bounds() -> dict[int, tuple[int, float]]:
        found = {at_ns: served.at(at_ns) for at_ns in instants}
        return {
            at_ns: (piece.to_fleet_ns(at_ns), piece.bound_ns(at_ns))
            for at_ns, piece in found.items()
            if piece is not None
        }

    before = bounds()
    assert served.widen(since_ns, by_ns)
    after = bounds()
    assert before.keys() == after.keys()
    for at_ns, (fleet_ns, bound_ns) in after.items():
        assert abs(fleet_ns - before[at_ns][0]) <= 1
        added_ns = by_ns if at_ns > since_ns else 0.0
        assert math.isclose(bound_ns, before[at_ns][1] + added_ns, abs_tol=1.0)


def test_a_slew_noticed_before_the_newest_piece_begins_turns_no_time_back() -> None:
    """Served time is on its way at 200 ppm; the newest piece, yet to begin, has no part in it."""
    served = ServedTimeline()
    served.take(line(START_NS, 0.0), START_NS)
    served.take(line(START_NS + S, 500_000.0), START_NS + S)
    served.take(line(START_NS + 2 * S, -100_000.0), START_NS + 2 * S)
    now_ns = START_NS + 2 * S + LEAD_NS // 5
    before = served.at(now_ns)
    served.leave_pace(9)
    after = served.follow(Slew(0.0, 90.0, 0.0), now_ns)
    assert before is not None
    assert after is not None
    assert abs(after.to_fleet_ns(now_ns) - before.to_fleet_ns(now_ns)) <= 1
    assert after.state is ClockState.HOLDOVER


def test_a_step_of_fleet_time_that_is_yet_to_begin_is_not_slewed_away() -> None:
    served = ServedTimeline()
    served.take(line(START_NS, 0.0), START_NS)
    served.take(line(START_NS + S, 90_000.0), START_NS + S, stepped=True)
    served.leave_pace(9)
    after = served.follow(Slew(0.0, 90.0, 0.0), START_NS + S + 1)
    assert after is not None
    assert after.residual_ns == 0
    assert after.steps == 1


def test_only_what_is_in_force_is_widened() -> None:
    """A piece that another one overtook before it began stays overtaken."""
    served = ServedTimeline()
    for seconds in range(3):
        served.take(line(START_NS + seconds * S, 0.0), START_NS + seconds * S)
    now_ns = START_NS + 2 * S + 1
    served.leave_pace(9)
    followed = served.follow(Slew(7_000.0, 90.0, 0.0), now_ns)
    assert followed is not None
    (widened,) = served.widen(now_ns + MS, 50.0)
    assert widened.line.asymmetry_ns == followed.line.asymmetry_ns + 50.0
    assert served.at(now_ns + S) is widened
    assert [each.from_ns for each in served.widen(START_NS + S + MS, 1.0)] == [
        START_NS + S + MS + 1,
        START_NS + S + LEAD_NS,
        now_ns,
        now_ns + MS + 1,
    ]


def test_nothing_is_synchronized_beyond_a_millisecond() -> None:
    """However a bound came to be so wide: at the start, by the way that is left, by holdover."""
    served = ServedTimeline()
    assert served.take(line(START_NS, 0.0, sigma_ns=0.3 * MS), START_NS) is None
    served.take(line(START_NS, 0.0), START_NS)
    coarse = line(START_NS + S, 0.0, sigma_ns=0.3 * MS)
    assert served.take(coarse, START_NS + S) is None, "what is held is better"
    held = served.tick(START_NS + SILENCE_NS + 1)
    assert held is not None
    assert held.state is ClockState.HOLDOVER
    later_ns = START_NS + 20 * S
    for far_ns in (80.0 * S, -80.0 * S, 2.0 * MS):
        found = served.take(line(later_ns, far_ns), later_ns)
        assert found is not None
        assert found.residual_ns == 0, "not slewed for days"
        assert found.bound_ns(found.from_ns) < MAX_BOUND_NS


def test_a_successor_goes_on_without_a_jump() -> None:
    old = TimelinePiece(START_NS, line(START_NS, 1000.0), 0.0, SLEW_PPB, ClockState.SYNCHRONIZED, 7)
    served = ServedTimeline(old)
    piece = served.take(line(START_NS, 1900.0), START_NS + S)
    assert piece is not None
    assert piece.to_fleet_ns(piece.from_ns) == old.to_fleet_ns(piece.from_ns)
    assert piece.steps == 7
    reported = ServedTimeline(old, step_ns=500.0).take(line(START_NS, 1900.0), START_NS + S)
    assert reported is not None
    assert (reported.residual_ns, reported.steps) == (0.0, 8)


def test_history_is_bounded() -> None:
    served = ServedTimeline()
    for second in range(5000):
        local_ns = START_NS + second * S
        served.take(line(local_ns, 0.0), local_ns)
    assert served.at(START_NS + 100 * S) is None
    assert served.at(START_NS + 1000 * S) is not None


def test_a_clock_that_is_lost_while_its_pace_is_followed_is_not_followed_any_more() -> None:
    served = ServedTimeline()
    served.take(line(START_NS, 0.0), START_NS)
    served.leave_pace(1)
    lost = served.tick(START_NS + 7_200 * S)
    assert lost is not None
    assert lost.state is ClockState.DISRUPTED
    assert not served.following
    assert served.follow(Slew(0.0, 10.0, 5.0), START_NS + 7_201 * S) is None


def test_an_hour_of_pieces_is_remembered_as_in_the_page() -> None:
    header = Path(__file__).parents[2] / "native/clock/syn_clock_page.h"
    found = re.search(r"SYN_CLOCK_PIECES = (\d+)", header.read_text(encoding="utf-8"))
    assert found is not None
    count, served = int(found[1]), ServedTimeline()
    served.take(line(START_NS, 0.0), START_NS - LEAD_NS)
    for later in range(1, count + 2):
        served.adjusted(START_NS + later * S, 1.0)
    oldest = served.at(START_NS + 2 * S)
    assert oldest is not None
    assert oldest.from_ns == START_NS + 2 * S
    assert served.at(START_NS + 2 * S - 1) is None

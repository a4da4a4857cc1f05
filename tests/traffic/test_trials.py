"""What a trial of moves is judged by: the worst-off first, then all together; then queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.model import MS, US, S
from syntony.traffic.demand import CandidatePath, Flow
from syntony.traffic.measurements import MeasuredRate, Measurements, PathDelay
from syntony.traffic.moves import FlowMove, MoveCause, MovePolicy
from syntony.traffic.trials import MoveTrial, TrialResult, group_moves, links_of, rates_since

T0 = 100 * S
WANTED = 100e9
POLICY = MovePolicy(gain=0.1, settle_ns=S, judge_ns=20 * S)
SETTLED = T0 + S


def move(flow: str = "a", cause: MoveCause = MoveCause.CROWDED) -> FlowMove:
    return FlowMove(flow, "job", "old", "new", cause, "", T0)


def trial(
    before: dict[str, float], *moves: FlowMove, queues: dict[str, int] | None = None
) -> MoveTrial:
    return MoveTrial(
        moves={each.flow_id: each for each in moves or (move(),)}, links=frozenset(),
        before=before, queues=queues or {}, requested_ns=T0, done_ns=T0,
    )  # fmt: skip


def judged(each: MoveTrial, after: dict[str, float], now_ns: int = T0 + 5 * S) -> TrialResult:
    rates = {flow: MeasuredRate(SETTLED, share * WANTED) for flow, share in after.items()}
    return each.judge(Measurements(rates=rates), dict.fromkeys("abcd", WANTED), POLICY, now_ns)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        # The worst-off gets a tenth more: it helped, whatever it cost the others.
        ({"a": 0.5, "b": 0.5}, {"a": 0.56, "b": 0.55}, TrialResult.HELPED),
        ({"a": 0.4, "b": 1.0}, {"a": 0.45, "b": 0.5}, TrialResult.HELPED),
        ({"a": 0.5, "b": 0.5}, {"a": 0.54, "b": 0.54}, TrialResult.HELPED),  # all together more
        ({"a": 0.5, "b": 0.5}, {"a": 0.51, "b": 0.51}, TrialResult.NO_GAIN),
        # All together more, and the worst-off no worse, by less than a tenth.
        ({"a": 0.5, "b": 0.5}, {"a": 0.46, "b": 0.9}, TrialResult.HELPED),
        # All together far more, but the worst-off pays for it.
        ({"a": 0.5, "b": 0.5}, {"a": 0.44, "b": 1.0}, TrialResult.NO_GAIN),
        ({"a": 0.5, "b": 0.5, "c": 0.5}, {"a": 0.1, "b": 1.0, "c": 1.0}, TrialResult.NO_GAIN),
        ({"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.5}, TrialResult.NO_GAIN),
        ({"a": 0.5}, {"a": 0.3}, TrialResult.NO_GAIN),
        ({"a": 0.0}, {"a": 0.0}, TrialResult.NO_GAIN),
        ({"a": 0.0}, {"a": 0.01}, TrialResult.HELPED),
    ],
)
def test_the_worst_off_before_the_sum(
    before: dict[str, float], after: dict[str, float], verdict: TrialResult
) -> None:
    assert judged(trial(before), after) is verdict


@given(
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.floats(0, 1), st.floats(0, 1)),
                    min_size=1)
)  # fmt: skip
def test_a_move_that_takes_from_the_poorest_and_gives_nobody_has_not_helped(
    shares: dict[str, tuple[float, float]],
) -> None:
    before = {flow: max(pair) for flow, pair in shares.items()}
    after = {flow: min(pair) for flow, pair in shares.items()}
    mover = min(shares)
    assert judged(trial(before, move(mover)), after) is TrialResult.NO_GAIN


@pytest.mark.parametrize("cause", list(MoveCause))
def test_off_a_dead_path_is_always_a_help(cause: MoveCause) -> None:
    gone = cause in {MoveCause.DEAD, MoveCause.UNPLACED}
    verdict = judged(trial({"a": 1.0}, move(cause=cause)), {"a": 0.1})
    assert (verdict is TrialResult.HELPED) == gone
    chain = trial({"a": 1.0, "b": 1.0}, move(cause=cause), move("b"))
    assert judged(chain, {"a": 0.1, "b": 0.1}) is TrialResult.NO_GAIN, (
        "not all had nothing to stay for"
    )


def test_it_is_judged_when_all_have_answered_and_were_measured_since() -> None:
    each = trial({"a": 0.2, "b": 0.2}, move(), move("b"))
    each.waiting = {"a", "b"}
    each.done_ns = 0
    good = {"a": 0.9, "b": 0.9}
    assert judged(each, good) is TrialResult.WAIT
    each.answered("a", T0 - 3, ok=True)
    each.answered("c", T0 + 99 * S, ok=False)
    assert judged(each, good) is TrialResult.WAIT
    each.answered("b", T0 - 5, ok=True)
    assert each.done_ns == T0 - 3, "when the last of them was there"
    assert judged(each, good) is TrialResult.HELPED
    assert judged(each, {"a": 0.9}) is TrialResult.WAIT
    for at_ns, verdict in ((T0 - 3 + S, TrialResult.HELPED), (T0 - 4 + S, TrialResult.WAIT)):
        rates = {flow: MeasuredRate(at_ns, WANTED) for flow in "ab"}
        wanted = dict.fromkeys("ab", WANTED)
        assert each.judge(Measurements(rates=rates), wanted, POLICY, T0 + 5 * S) is verdict
    limit_ns = T0 - 3 + POLICY.judge_ns
    assert judged(each, {}, limit_ns) is TrialResult.WAIT
    assert judged(each, {}, limit_ns + 1) is TrialResult.UNKNOWN


def test_those_that_it_was_in_the_way_of_are_waited_for() -> None:
    """For one more of the waits after a move; not for hosts that report nothing any more."""
    each = trial({"a": 0.4, "b": 0.7})
    assert judged(each, {"a": 0.4}, SETTLED) is TrialResult.WAIT
    assert judged(each, {"a": 0.4, "b": 1.0}, SETTLED) is TrialResult.HELPED
    assert judged(each, {"a": 0.4}, SETTLED + POLICY.settle_ns) is TrialResult.NO_GAIN


def test_a_move_may_have_helped_those_that_were_not_measured_before() -> None:
    each = trial({"a": 0.4})
    each.all_measured = False
    assert judged(each, {"a": 0.4, "b": 1.0}) is TrialResult.UNKNOWN
    assert judged(each, {"a": 0.3, "b": 1.0}) is TrialResult.NO_GAIN
    assert judged(each, {"a": 0.5, "b": 0.1}) is TrialResult.HELPED


def test_what_failed_or_ended_is_no_part_of_it() -> None:
    each = trial({"a": 0.5, "b": 0.5}, move(), move("b"))
    each.waiting = {"a", "b"}
    each.answered("a", T0, ok=False)
    each.vanished("b")
    assert not each.waiting
    assert not each.moves
    assert set(each.before) == {"a"}
    assert judged(each, {"a": 1.0}) is TrialResult.UNKNOWN
    undone = trial({"a": 0.5})
    undone.undo = True
    assert judged(undone, {"a": 1.0}) is TrialResult.UNKNOWN


@pytest.mark.parametrize(
    ("before_ns", "after_ns", "verdict"),
    [(100 * US, 90 * US, TrialResult.HELPED), (100 * US, 91 * US, TrialResult.NO_GAIN),
     (100 * US, 200 * US, TrialResult.NO_GAIN)],
)  # fmt: skip
def test_where_no_rates_are_known_queues_decide(
    before_ns: int, after_ns: int, verdict: TrialResult
) -> None:
    each = trial({}, queues={"a": before_ns})

    def seen(at_ns: int, path: str = "new") -> Measurements:
        return Measurements(delays={("a", path): PathDelay(at_ns, 5 * MS + after_ns, 5 * MS)})

    assert each.judge(seen(SETTLED), {}, POLICY, T0 + 5 * S) is verdict
    assert each.judge(seen(SETTLED - 1), {}, POLICY, T0 + 5 * S) is TrialResult.WAIT
    assert each.judge(seen(SETTLED, "old"), {}, POLICY, T0 + 5 * S) is TrialResult.WAIT
    two = trial({}, move(), move("b"), queues={"a": before_ns, "b": 10 * S})
    assert two.judge(seen(SETTLED), {}, POLICY, T0 + 5 * S) is TrialResult.WAIT
    rated = trial({"a": 0.5}, queues={"a": before_ns})
    assert rated.judge(seen(SETTLED), {}, POLICY, T0 + 5 * S) is TrialResult.WAIT


def test_rates_are_a_part_of_what_each_could_get() -> None:
    rates = {"a": MeasuredRate(10, 30.0), "b": MeasuredRate(9, 30.0), "c": MeasuredRate(10, 30.0)}
    wanted = {"a": 60.0, "b": 60.0, "c": 0.0}
    assert rates_since(rates, "abcd", wanted, 10) == {"a": 0.5}
    assert rates_since(rates, "ab", wanted, 9) == {"a": 0.5, "b": 0.5}


def test_moves_that_share_a_link_are_one_trial() -> None:
    def flow(name: str, old: str, new: str) -> Flow:
        paths = (
            CandidatePath("old", tuple(old)),
            CandidatePath("new", tuple(new)),
            CandidatePath("other", ("z",)),
        )
        return Flow(name, "job", paths)

    flows = {
        "a": flow("a", "sx", "sy"), "b": flow("b", "yw", "w"), "c": flow("c", "q", "r"),
        "d": flow("d", "s", "t"), "e": flow("e", "r", "u"), "f": flow("f", "v", "m"),
    }  # fmt: skip
    moves = [move(name) for name in flows]
    groups = {frozenset(m.flow_id for m in group) for group in group_moves(moves, flows)}
    # a takes its load from x to y (s stays loaded), where b leaves: a chain; d's s is not a's.
    assert groups == {frozenset("ab"), frozenset("ce"), frozenset("d"), frozenset("f")}
    assert links_of(moves[0], flows["a"]) == {"x", "y"}
    unplaced = FlowMove("a", "job", "", "new", MoveCause.UNPLACED, "", T0)
    assert links_of(unplaced, flows["a"]) == {"s", "y"}
    assert links_of(FlowMove("a", "job", "", "gone", MoveCause.UNDO, "", T0), flows["a"]) == set()

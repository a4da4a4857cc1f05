"""A rank that all others wait for: found by what each waits, reported, replaced if told so."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.resilience.members import RANKS, logged, running
from tests.resilience.simulated import MS, S

from syntony.torch.hangs import RankProgress
from syntony.torch.membership import Membership
from syntony.torch.orders import Log, Settings
from syntony.torch.stragglers import (
    REPEAT_NS,
    REPORT_NS,
    WINDOW_NS,
    LatenessWatch,
    StepProgress,
    StepWaits,
)

STEP_NS = 500 * MS
FAST = dict.fromkeys(range(RANKS), 0.0)


def paces(late: Mapping[int, float], at_ns: int, clock_ns: int = 0) -> dict[int, StepProgress]:
    """Ranks that come this much of a step later than the first; all wait for the last."""
    steps, most = at_ns // STEP_NS, max(late.values())
    return {
        rank: StepProgress(steps, clock_ns * rank + steps * STEP_NS,
                   int(steps * STEP_NS * (0.05 + most - own)))
        for rank, own in late.items()
    }  # fmt: skip


def watched(*windows: Mapping[int, float]) -> LatenessWatch:
    """After so many windows, each with its lateness."""
    watch, at_ns = LatenessWatch(), S
    waited = dict.fromkeys(windows[0], 0)
    now = {rank: StepProgress(1, at_ns, 0) for rank in windows[0]}
    assert not watch.look(now, at_ns)
    for late in windows:
        at_ns += WINDOW_NS
        for rank, own in late.items():
            waited[rank] += int(WINDOW_NS * (0.05 + max(late.values()) - own))
        now = {
            rank: StepProgress(each.steps + 20, at_ns, waited[rank]) for rank, each in now.items()
        }
        assert watch.look(now, at_ns)
    return watch


@pytest.mark.parametrize(
    ("late", "ranks"),
    [
        (FAST, None),
        (FAST | {2: 0.3}, (2,)),
        (FAST | {2: 0.14}, None),  # less than others scatter
        (FAST | {2: 0.3, 1: 0.28}, (1, 2)),  # either alone would gain next to nothing
        (FAST | {2: 0.14, 1: 0.14}, None),
        (FAST | {2: 0.5, 1: 0.2}, (2,)),
        (FAST | {1: 0.3, 2: 0.3, 3: 0.3}, None),  # more than half: rank 0 has less to do
        ({0: 0.0, 1: 0.4}, (1,)),
        ({0: 0.4}, None),
    ],
)
def test_who_is_late(late: dict[int, float], ranks: tuple[int, ...] | None) -> None:
    watch = watched(late)
    assert (watch.late and watch.late.ranks) == ranks


def test_a_rank_stays_late_until_it_is_clearly_not_and_another_begins_anew() -> None:
    two, less, ended = FAST | {2: 0.3}, FAST | {2: 0.1}, FAST | {2: 0.05}
    late = watched(two, less, less).late
    assert late is not None
    assert (late.ranks, late.for_ns) == ((2,), 3 * WINDOW_NS)
    assert watched(two, ended).late is None
    assert watched(two, ended, less).late is None, "it must be late again first"
    late = watched(two, FAST | {1: 0.3}).late
    assert late is not None
    assert (late.ranks, late.for_ns) == ((1,), WINDOW_NS)
    both = watched(FAST | {1: 0.3, 2: 0.3}, FAST | {1: 0.1, 2: 0.12}).late
    assert both is not None
    assert (both.ranks, both.for_ns) == ((1, 2), 2 * WINDOW_NS)


def test_a_window_waits_for_steps_and_for_all_ranks() -> None:
    watch = LatenessWatch()
    assert not watch.look({0: StepProgress(1, S, 0), 1: StepProgress()}, S)
    assert not watch.look(
        {0: StepProgress(20, 20 * S, 0), 1: StepProgress(20, 20 * S, 0)}, 20 * S
    ), "it begins"
    few = {0: StepProgress(40, 40 * S, 0), 1: StepProgress(22, 40 * S, 9 * S)}
    assert not watch.look(few, 40 * S), "two steps of a rank are too few"
    many = few | {1: StepProgress(23, 41 * S, 9 * S)}
    assert not watch.look(many, 20 * S + WINDOW_NS - 1)
    assert watch.look(many, 41 * S)
    watch.reset()
    assert not watch.look(many, 99 * S), "it begins anew"


def test_clocks_of_hosts_need_not_agree() -> None:
    watch, late = LatenessWatch(), FAST | {1: 0.2}
    watch.look(paces(late, 10 * S, 99 * S), S)
    assert watch.look(paces(late, 21 * S, 99 * S), 12 * S)
    assert watch.late is not None
    assert (watch.late.ranks, round(watch.late.lateness, 2)) == ((1,), 0.2)


def test_what_a_step_waited() -> None:
    """Buckets of a backward pass are late one after the other; of split parameters each waits."""
    for split, waited in ((False, 5), (True, 12)):
        waits = StepWaits()
        for number, each in enumerate((3, 4, 5)):
            waits.add(0, each * MS, number, split=split)
        assert waits.pace == StepProgress(), "the step is not over"
        waits.add(1, 7 * MS, 9, split=split)
        assert waits.pace == StepProgress(1, 9, waited * MS)


def run(state: Membership, late: Mapping[int, float], began_ns: int, for_ns: int) -> list[object]:
    """A job in which rank 2's first worker, or all that hold a rank, are late."""
    orders: list[object] = []
    for now_ns in range(began_ns, began_ns + for_ns, 100 * MS):
        progress = paces(late, now_ns)
        for worker in list(state.workers.values()):
            said = RankProgress() if worker.rank is None else RankProgress(
                None, {}, progress[worker.rank])  # fmt: skip
            state.on_heard(worker, now_ns, said)
        orders += state.on_tick(now_ns)
    return orders


def formed(state: Membership, now_ns: int) -> None:
    """All connect anew, as the state orders."""
    state.forming = None
    for worker in state.workers.values():
        worker.joining = False


def swapping(spares: int = 2, slow_ns: int = REPORT_NS) -> Membership:
    state = running(spares)
    state.settings = Settings(spares, slow_ns=slow_ns)
    return state


LATE = FAST | {2: 0.3}
LONG = 3 * REPORT_NS


def test_a_straggler_is_reported_once_and_nobody_is_replaced_unasked() -> None:
    state = swapping(slow_ns=0)
    orders = run(state, LATE, S, LONG)
    assert logged(orders) == ["straggler"]
    (log,) = [each for each in orders if isinstance(each, Log)]
    assert log.event["reason"] == "all others wait for rank 2 30% of the time, for 60 s"
    assert state.replaced == 0
    assert logged(run(state, FAST, LONG + S, LONG)) == ["no-straggler"]
    assert logged(run(state, LATE, 2 * LONG + S, LONG)) == ["straggler"], "again, after a pause"


def test_a_straggler_is_replaced_once_if_told_so() -> None:
    state = swapping()
    orders = run(state, LATE, S, LONG)
    assert logged(orders) == ["straggler", "lost", "assigned"]
    (lost,) = [e.event for e in orders if isinstance(e, Log) and e.event["event"] == "lost"]
    assert (lost["rank"], lost["reason"]) == (2, "slow: all others waited for it 30% of the time")
    formed(state, LONG + S)
    orders = run(state, LATE, LONG + S, LONG)
    assert logged(orders) == [], "it is its work that takes longer"
    assert state.replaced == 1


def test_two_that_are_late_together_are_named_together_and_stay() -> None:
    state = swapping()
    orders = run(state, FAST | {1: 0.3, 2: 0.28}, S, LONG)
    assert logged(orders) == ["straggler"]
    (log,) = [each for each in orders if isinstance(each, Log)]
    assert log.event["ranks"] == (1, 2)
    assert str(log.event["reason"]).startswith("all others wait for ranks 1, 2 28% of the time")
    assert log.event["workers"] == [state.holders[1], state.holders[2]]


def test_a_straggler_is_reported_again_and_its_end_with_the_job() -> None:
    state = swapping(slow_ns=0)
    assert logged(run(state, LATE, S, REPEAT_NS + LONG)) == ["straggler", "straggler"]
    orders: list[object] = []
    for worker in list(state.workers.values()):
        if worker.rank is not None:
            orders += state.on_finished(worker)
    assert logged(orders) == ["no-straggler"]


def test_nobody_is_late_while_ranks_connect_and_all_is_measured_anew_then() -> None:
    state = swapping(slow_ns=0)
    assert logged(run(state, LATE, S, REPORT_NS)) == []
    state.on_failed(0, REPORT_NS + S)
    assert logged(run(state, LATE, REPORT_NS + S, LONG)) == []
    formed(state, LONG)
    assert logged(run(state, LATE, REPORT_NS + LONG, REPORT_NS - WINDOW_NS)) == []
    assert logged(run(state, LATE, 2 * REPORT_NS + LONG, REPORT_NS)) == ["straggler"]


@pytest.mark.parametrize("spares", [0, 1])
def test_a_straggler_stays_while_no_spare_is_ready(spares: int) -> None:
    state = swapping(spares)
    for worker in state.workers.values():
        worker.waiting = False
    assert logged(run(state, LATE, S, LONG)) == ["straggler"]
    assert not state.over


def test_a_message_is_read_with_care() -> None:
    assert RankProgress.parse({"pace": [1, 2, 3]}).pace == StepProgress(1, 2, 3)
    assert RankProgress.parse({}).pace == StepProgress()
    for bad in (3, ["x"], [1, 2, 3, 4]):
        with pytest.raises((TypeError, ValueError)):
            RankProgress.parse({"pace": bad})

"""Figures of the rank-loss drill, from trials made up here."""

from __future__ import annotations

import msgspec
import pytest

from syntony.lab.drill.rank_loss import (
    CALM,
    SYNTONY,
    TODAY,
    RankLossOptions,
    RankLossTrial,
    StepLine,
)
from syntony.lab.drill.rank_loss_report import figures, make_chart, make_report
from syntony.model import S

WISH = RankLossOptions(python="python", ranks=3, steps=20, victim=1)


def trial(name: str, seconds: list[tuple[float, int]], **changes: object) -> RankLossTrial:
    """Steps of every rank, done at these instants."""
    steps = tuple(StepLine(int(at * S), step, f"{1 / (1 + step)!r}") for at, step in seconds)
    made = RankLossTrial(
        name=name, began_ns=0, ended_ns=30 * S, exit_code=0, killed_ns=None,
        steps=(steps,) * 3, sha256=("a", "b", "c"),
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def digests(*equal: bool) -> tuple[dict[str, object], ...]:
    return tuple({"event": "digest", "equal": each} for each in equal)


CALM_RUN = trial(CALM, [(step, step) for step in range(20)])
RESTARTED = trial(
    TODAY,
    [*((step, step) for step in range(10)), *((20.0 + step, 5 + step) for step in range(15))],
    killed_ns=int(9.5 * S),
)
REPLACED = trial(
    SYNTONY,
    [*((step, step) for step in range(10)), *((10.5 + step, 10 + step) for step in range(10))],
    killed_ns=int(9.5 * S),
    events=digests(True, True),
)


def test_a_restart_stands_still_until_it_is_further_than_before() -> None:
    found = figures(WISH, RESTARTED, CALM_RUN)
    assert found.stall_s == pytest.approx(16.0)  # step 9 at 9 s, step 10 at 25 s
    assert found.steps_again == 5
    assert found.killed_at_step == 9
    assert found.same  # these trials' losses depend on the step only


def test_a_pause_long_after_is_not_the_kills() -> None:
    steps = tuple(
        msgspec.structs.replace(each, at_ns=each.at_ns + (7 * S if each.step > 15 else 0))
        for each in REPLACED.steps[0]
    )
    late = msgspec.structs.replace(REPLACED, steps=(steps,) * 3)
    assert figures(WISH, late, CALM_RUN).stall_s == pytest.approx(1.5)


def test_a_replacement_and_what_counts_as_the_same() -> None:
    found = figures(WISH, REPLACED, CALM_RUN)
    assert found.stall_s == pytest.approx(1.5)
    assert (found.steps_again, found.same) == (0, True)
    for changes in (
        {"sha256": ("a", "b", "x")},
        {"sha256": ("a", None, "c")},
        {"exit_code": 1},
        {"steps": (*REPLACED.steps[:2], REPLACED.steps[2][:-1])},
        {"steps": (*REPLACED.steps[:2], (*REPLACED.steps[2], StepLine(9, 3, "0.2500001")))},
    ):
        other = msgspec.structs.replace(REPLACED, **changes)
        assert not figures(WISH, other, CALM_RUN).same, changes


@pytest.mark.parametrize(
    ("equal", "holds"),
    [((True, True), True), ((True,), False), ((), False), ((True, False), False)],
)
def test_it_holds_only_with_a_digest_after_the_replacement(
    equal: tuple[bool, ...], holds: bool
) -> None:
    ours = msgspec.structs.replace(REPLACED, events=digests(*equal))
    assert make_report(WISH, [CALM_RUN, RESTARTED, ours]).held is holds


def test_a_job_that_never_goes_on() -> None:
    dead = msgspec.structs.replace(
        RESTARTED, steps=tuple(steps[:10] for steps in RESTARTED.steps), exit_code=1
    )
    found = figures(WISH, dead, CALM_RUN)
    assert found.stall_s is None
    assert not found.same
    report = make_report(WISH, [CALM_RUN, dead, REPLACED])
    notes = [line.note for line in make_chart(WISH, [CALM_RUN, dead, REPLACED], report).lines]
    assert notes[0] == ""
    assert notes[1] == "ended with exit code 1"
    assert notes[2] == "stands still for 1.50 s, 0 steps again, same result"


def test_the_chart_puts_all_kills_at_zero() -> None:
    trials = [CALM_RUN, RESTARTED, REPLACED]
    lines = make_chart(WISH, trials, make_report(WISH, trials)).lines
    assert lines[0].at_s[9] == 0.0
    assert lines[1].at_s[9] == lines[2].at_s[9] == -0.5

"""The outcome of a rank-loss drill: figures, raw trials, one chart. Pure except for
`save`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import median

import msgspec

from syntony.lab.drill.rank_loss import CALM, SYNTONY, RankLossOptions, RankLossTrial, StepLine
from syntony.lab.drill.report import DrillReport
from syntony.model import MS, S
from syntony.view.drill_charts import RankLossChart, RankLossLine

DRILL = "rank-loss"


class RankLossRunFigures(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    exit_code: int
    total_s: float
    """From the launcher's start to its end."""
    step_ms: float | None
    """Median, of a rank that was not killed."""
    killed_at_step: int | None
    """The last step that the other ranks had completed when the rank was killed."""
    stall_s: float | None
    """The longest gap between new steps (not repeated ones) among the three that follow the kill:
    later gaps are not caused by it; None: no new step."""
    steps_again: int
    """Steps that they repeated."""
    same: bool
    """Every loss of every step and rank, and the hash of weights and optimizer state, are those of
    the undisturbed run."""
    digest_equal: bool | None
    """Syntony only: all ranks had the same parameters two steps later."""


class RankLossReport(DrillReport, frozen=True, kw_only=True):
    """What the drill prints as JSON."""

    drill: str = DRILL
    job: str = "DDP training (PyTorch, gloo)"
    ranks: int
    steps: int
    victim: int
    checkpoint_every: int
    runs: tuple[RankLossRunFigures, ...]

    @property
    def held(self) -> bool:
        """Whether the run under Syntony met its claim."""
        ours = next(each for each in self.runs if each.name == SYNTONY)
        return ours.exit_code == 0 and ours.same and bool(ours.digest_equal)


def make_report(options: RankLossOptions, trials: Sequence[RankLossTrial]) -> RankLossReport:
    """Figures of all trials; the first is the undisturbed one."""
    return RankLossReport(
        ranks=options.ranks,
        steps=options.steps,
        victim=options.victim,
        checkpoint_every=options.every,
        runs=tuple(figures(options, each, trials[0]) for each in trials),
    )


def figures(
    options: RankLossOptions, trial: RankLossTrial, calm: RankLossTrial
) -> RankLossRunFigures:
    watched = trial.steps[_watcher(options)]
    gaps = [b.at_ns - a.at_ns for a, b in itertools.pairwise(watched)]
    before = [each.step for each in watched if each.at_ns <= (trial.killed_ns or 0)]
    last = max(before, default=None)
    digests = [each["equal"] for each in trial.events if each["event"] == "digest"]
    return RankLossRunFigures(
        name=trial.name,
        exit_code=trial.exit_code,
        total_s=(trial.ended_ns - trial.began_ns) / S,
        step_ms=median(gaps) / MS if gaps else None,
        killed_at_step=last if trial.killed_ns else None,
        stall_s=_stall_s(watched, trial.killed_ns, last),
        steps_again=len(watched) - len({each.step for each in watched}),
        same=trial.exit_code == 0 and _results(trial) == _results(calm)
        and None not in trial.sha256 and trial.sha256 == calm.sha256,
        digest_equal=len(digests) > 1 and all(digests) if trial.name == SYNTONY else None,
    )  # fmt: skip


def _stall_s(watched: Sequence[StepLine], killed_ns: int | None, last: int | None) -> float | None:
    if killed_ns is None or last is None:
        return None
    first: dict[int, int] = {}
    for each in watched:
        first.setdefault(each.step, each.at_ns)
    at_ns = [first[last], *(at for step, at in sorted(first.items()) if step > last)]
    return max(((b - a) / S for a, b in itertools.pairwise(at_ns[:4])), default=None)


def _watcher(options: RankLossOptions) -> int:
    return (options.victim + 1) % options.ranks


def _results(trial: RankLossTrial) -> list[set[tuple[int, str]]]:
    """Each rank's losses; a step with two different results is there twice."""
    return [{(each.step, each.loss) for each in steps} for steps in trial.steps]


def make_chart(
    options: RankLossOptions, trials: Sequence[RankLossTrial], report: RankLossReport
) -> RankLossChart:
    """The chart of all trials. Time is relative to the kill; in the undisturbed run, to the same
    step."""
    found = []
    for trial, run in zip(trials, report.runs, strict=True):
        watched = trial.steps[_watcher(options)]
        zero_ns = trial.killed_ns or _instant(watched, report)
        found.append(RankLossLine(
            label=trial.name,
            note=_note(run),
            at_s=tuple((each.at_ns - zero_ns) / S for each in watched),
            loss=tuple(float(each.loss) for each in watched),
        ))  # fmt: skip
    return RankLossChart(
        title=f"{report.job}: a rank is killed",
        subtitle=f"{report.ranks} ranks on one host, rank {report.victim} killed (SIGKILL); "
        f"a checkpoint every {report.checkpoint_every} steps",
        lines=tuple(found),
    )


def _instant(watched: Sequence[StepLine], report: RankLossReport) -> int:
    step = next((e.killed_at_step for e in report.runs if e.killed_at_step is not None), 0)
    return next((each.at_ns for each in watched if each.step >= step), 0)


def _note(run: RankLossRunFigures) -> str:
    if run.name == CALM:
        return ""
    if run.exit_code or run.stall_s is None:
        return f"ended with exit code {run.exit_code}"
    result = "same result" if run.same else "another result"
    return f"stands still for {run.stall_s:.2f} s, {_steps(run.steps_again)} again, {result}"


def _steps(count: int) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"

"""The outcome of a slow-job drill: claims, figures, the raw trial, one chart."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from syntony.lab.drill.report import DrillReport
from syntony.lab.drill.slow_job import FlowSeries, JudgedAnswer, SlowTrial, is_named
from syntony.lab.jobs.records import StepRecord, lost_connections, wrong_results
from syntony.model import MS, S
from syntony.view.drill_charts import SlowJobChart, SlowJobCurve


class SlowJobReport(DrillReport, frozen=True, kw_only=True):
    """What the drill prints as JSON. Seconds since the flow was made slow."""

    drill: str = "slow-job"
    job: str
    ranks: int
    flows: int
    slow_flow: str
    quiet_s: float
    quiet_looks: int
    quiet_verdicts: tuple[str, ...]
    """Verdicts before the fault: each is false."""
    detected_s: float | None
    """When its delay stands out in `job flows`; None: never."""
    named_s: float | None
    """When `why` names it and no other flow; None: never."""
    verdict: str
    """The verdict then."""
    others: tuple[str, ...]
    """Other flows named while it was slow."""
    slow_ms: float | None
    """Its in-band delay in the slower direction, median while it was slow…"""
    siblings_ms: float | None
    """… and that of all others at the same time."""
    step_before_ms: float | None
    """Of the slowest rank, median."""
    step_slow_ms: float | None
    wrong: int
    lost: int
    ended: bool
    """The job ended when it was asked to."""

    @property
    def held(self) -> bool:
        """Whether the drill met its claim."""
        return (
            not self.quiet_verdicts and self.named_s is not None and not self.others
            and self.ended and not self.wrong and not self.lost
        )  # fmt: skip


def make_report(trial: SlowTrial) -> SlowJobReport:
    began_ns = trial.outage.began_ns
    quiet = [look for look in trial.looks if look.at_ns <= trial.outage.requested_ns]
    slow = [look for look in trial.looks if look.at_ns > began_ns]
    named = next((look for look in slow if is_named(look, trial.names)), None)
    detected = next((look for look in slow if look.worst in trial.names), None)
    during = (began_ns + S, trial.ended_ns)
    mine = [each for each in trial.flows if each.flow in trial.names]
    siblings = [each for each in trial.flows if each.flow not in trial.names]
    return SlowJobReport(
        job=trial.job,
        ranks=trial.ranks,
        flows=len(trial.flows),
        slow_flow=trial.names[0],
        quiet_s=(trial.outage.requested_ns - trial.began_ns) / S,
        quiet_looks=len(quiet),
        quiet_verdicts=_said(quiet, ()),
        detected_s=_after(detected, began_ns),
        named_s=_after(named, began_ns),
        verdict=_verdict(named, trial.names),
        others=_said(slow, trial.names),
        slow_ms=max(filter(None, (_delay_ms([each], during) for each in mine)), default=None),
        siblings_ms=_delay_ms(siblings, during),
        step_before_ms=_step_ms(trial, (trial.began_ns, trial.outage.requested_ns)),
        step_slow_ms=_step_ms(trial, (began_ns, trial.ended_ns)),
        wrong=wrong_results(trial.records),
        lost=lost_connections(trial.records),
        ended=trial.finished,
    )


def make_chart(trial: SlowTrial, report: SlowJobReport) -> SlowJobChart:
    zero_ns = trial.outage.began_ns
    marks = ((0.0, "made slow"),)
    found = ((report.detected_s, "stands out"), (report.named_s, "named"))
    return SlowJobChart(
        title=f"{trial.job}: one flow among {report.flows} made slow",
        subtitle=report.verdict or "not named",
        curves=tuple(
            SlowJobCurve(
                label=each.flow,
                slow=each.flow in trial.names,
                at_s=tuple((at_ns - zero_ns) / S for at_ns in each.at_ns),
                delay_ms=tuple(
                    float("nan") if delay is None else delay / MS for delay in each.delay_ns
                ),
            )
            for each in trial.flows
        ),
        marks=(*marks, *((at_s, text) for at_s, text in found if at_s is not None)),
    )


def _after(look: JudgedAnswer | None, began_ns: int) -> float | None:
    return None if look is None else (look.at_ns - began_ns) / S


def _verdict(look: JudgedAnswer | None, names: Iterable[str]) -> str:
    of = () if look is None else look.verdicts
    return next(
        (
            f"{each.fault} {' or '.join(each.subjects)}: {each.text}"
            for each in of
            if set(each.subjects) & set(names)
        ),
        "",
    )


def _said(looks: Iterable[JudgedAnswer], names: tuple[str, ...]) -> tuple[str, ...]:
    """What was named other than these flows, without duplicates."""
    found = {
        f"{each.fault} {', '.join(each.subjects)}"
        for look in looks
        for each in look.verdicts
        if not set(each.subjects) <= set(names)
    }
    return tuple(sorted(found))


def _delay_ms(flows: Iterable[FlowSeries], during: tuple[int, int]) -> float | None:
    known = [
        delay
        for each in flows
        for at_ns, delay in zip(each.at_ns, each.delay_ns, strict=True)
        if delay is not None and during[0] <= at_ns < during[1]
    ]
    return median(known) / MS if known else None


def _step_ms(trial: SlowTrial, during: tuple[int, int]) -> float | None:
    longest: dict[int, int] = {}
    for each in trial.records:
        if isinstance(each, StepRecord) and during[0] <= each.start_ns < during[1]:
            longest[each.step] = max(longest.get(each.step, 0), each.end_ns - each.start_ns)
    return median(longest.values()) / MS if longest else None

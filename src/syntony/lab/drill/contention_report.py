"""The outcome of a contention drill: figures, the raw trial, one chart."""

from __future__ import annotations

from syntony.lab.drill.contention import ContentionTrial
from syntony.lab.drill.contention_figures import Figures, bins_mbps, delays_ms, figures
from syntony.lab.drill.report import DrillReport
from syntony.lab.rates import format_rate
from syntony.view import drill_charts
from syntony.wire.traffic import MoveView

DELAY = "one-way delay p99, ms"
"""What is drawn below the jobs."""
_NUMBERS = {2: "Two", 3: "Three"}


class ContentionReport(DrillReport, frozen=True, kw_only=True):
    """What the drill prints as JSON."""

    job: str
    jobs: int
    ranks: int
    """Of each job."""
    fabric: str
    figures: Figures
    moves: tuple[MoveView, ...]


def make_report(trial: ContentionTrial, drill: str = "contention") -> ContentionReport:
    spec, job = trial.spec, trial.jobs[0]
    return ContentionReport(
        drill=drill,
        job=job.title,
        jobs=len(trial.jobs),
        ranks=job.ranks,
        fabric=f"{spec.hosts} hosts × {spec.rails} rails, {spec.leaves} leaves a rail, "
        f"{spec.spines} spines, {format_rate(spec.rate_bps)}, seed {spec.seed}",
        figures=figures(trial),
        moves=trial.moves,
    )


def make_chart(trial: ContentionTrial, found: Figures, fabric: str) -> drill_charts.ContentionChart:
    at_s, rates = bins_mbps(trial)
    when_s, delays = delays_ms(trial)
    first = trial.jobs[0]
    return drill_charts.ContentionChart(
        title=f"{_NUMBERS.get(len(trial.jobs), 'Jobs')} jobs, one fabric: {first.title}",
        subtitle=f"{fabric}; every result checked; "
        f"{found.before.total_mbps:.0f} → {found.after.total_mbps:.0f} Mb/s, "
        f"{found.after.of_optimum:.0%} of the optimum, {found.moves} moves",
        jobs=tuple(
            drill_charts.ContentionCurve.of(f"job {name}", at_s, values)
            for name, values in rates.items()
        ),
        optimum=found.optimum_mbps,
        delay=drill_charts.ContentionCurve.of(DELAY, when_s, delays),
    )

"""`syntony lab drill slow-job`: slows down one flow of a job, which must be named while it runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syntony.cli._drill import (
    chosen_job,
    conclude,
    lab_option,
    milliseconds,
    positive,
    report_options,
    say,
)
from syntony.cli.output import console
from syntony.view import lazy_rich

if TYPE_CHECKING:
    from syntony.lab.client import Lab
    from syntony.lab.drill.slow_job_report import SlowJobReport as SlowReport


@click.command(name="slow-job")
@lab_option
@click.option(
    "--job",
    type=click.Choice(["all-to-all", "builtin-all-to-all"]),
    help="Job to run. [default: all-to-all with PyTorch, else builtin-all-to-all]",
)
@click.option("--to", default="2mbit", help="Rate to which the slow flow is limited.")
@click.option("--quiet", default="20s", help="Length of the phase without a fault.")
@click.option("--limit", default="60s", help="Time within which the flow must be named.")
@report_options
@click.pass_context
def command(  # noqa: PLR0917 - click calls it by name
    context: click.Context,
    lab: Lab | None,
    job: str | None,
    to: str,
    quiet: str,
    limit: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Slow down one of a job's twelve flows, and find it while the job runs.

    Four ranks send to each other in every step; every result is checked. In the first phase there
    is no fault, and any verdict is wrong. Then one connection is limited to --to. Twice a second
    the recording is judged as by `syntony why`.

    Exit status: 0 no verdict in the first phase, then the slow flow and nothing else; 1 otherwise.

    Example: syntony lab drill slow-job --out /tmp/drill
    """
    from syntony.lab.drill import slow_job as drill
    from syntony.lab.drill.slow_job_report import make_chart, make_report

    drill.check_rate(to)
    times = drill.SlowJobTimes(
        quiet_ns=positive("--quiet", quiet), limit_ns=positive("--limit", limit)
    )
    framework, kind, python = chosen_job(job, "all-to-all", "builtin-all-to-all")
    options = drill.SlowJobOptions(
        framework=framework, kind=kind, python=python, to=to, times=times
    )
    trial = drill.drill(options, say, lab=lab)
    report = make_report(trial)
    chart = partial(make_chart, trial, report)
    conclude(report, trial, out, as_json=as_json, chart=chart, show=_show_slow)
    context.exit(0 if report.held else 1)


def _show_slow(report: SlowReport) -> None:
    console.print(
        f"[bold]{report.job}[/], {report.ranks} ranks, {report.flows} flows; "
        f"{report.slow_flow} made slow"
    )
    table = lazy_rich.Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    quiet = ", ".join(report.quiet_verdicts) or "nothing"
    slow, others = milliseconds(report.slow_ms), milliseconds(report.siblings_ms)
    before, during = milliseconds(report.step_before_ms), milliseconds(report.step_slow_ms)
    rows = (
        ("named while quiet", f"{quiet}, in {report.quiet_looks} looks, {report.quiet_s:.0f} s"),
        ("stands out after", _after(report.detected_s)),
        ("named after", _after(report.named_s)),
        ("named as", report.verdict or "–"),
        ("named besides", ", ".join(report.others) or "nothing"),
        ("in-band delay", f"{slow}; of all others {others}"),
        ("step", f"{before} before, {during} while slow"),
        ("results", f"{report.wrong} wrong; {report.lost} connections lost"),
    )
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _after(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"

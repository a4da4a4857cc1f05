"""`syntony lab drill rank-loss`: kills a rank of a training job."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syntony.cli._drill import conclude, milliseconds, positive, python_of, report_options, say
from syntony.cli.output import console
from syntony.errors import UsageError
from syntony.view.tables import plain_table

if TYPE_CHECKING:
    from syntony.lab.drill.rank_loss_report import RankLossReport


@click.command(name="rank-loss")
@click.option("--ranks", type=click.IntRange(2, 16), default=4, help="Ranks of the job.")
@click.option("--steps", type=click.IntRange(20, 100_000), default=300, help="Steps of the job.")
@click.option("--at", "kill_at", type=click.IntRange(2), default=150,
              help="Step in which the rank is killed, not before a spare is ready.")  # fmt: skip
@click.option("--checkpoint-every", type=click.IntRange(1), default=20,
              help="Steps between checkpoints.")  # fmt: skip
@click.option(
    "--pause", default="100ms", metavar="TIME", help="Simulated computation in each step."
)
@click.option(
    "--limit", default="300s", metavar="TIME", help="Time limit of each of the three runs."
)
@report_options
@click.pass_context
def command(  # noqa: PLR0917 - click calls it by name
    context: click.Context,
    ranks: int,
    steps: int,
    kill_at: int,
    checkpoint_every: int,
    pause: str,
    limit: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Kill a rank of a PyTorch job: restart from a checkpoint, then replace it by a warm spare.

    The same training program runs three times on this host: undisturbed; under torchrun, which
    starts all ranks again from the last checkpoint; and under `syntony run --spares 1`. Every loss
    of every rank and the hash of its weights are compared with the undisturbed run.

    Exit status: 0 no difference with Syntony; 1 otherwise.

    Example: syntony lab drill rank-loss --out /tmp/drill
    """
    from syntony.lab.drill.rank_loss import RankLossOptions, drill
    from syntony.lab.drill.rank_loss_report import make_chart, make_report

    if kill_at >= steps:
        raise UsageError(f"--at {kill_at}: the job has {steps} steps")
    options = RankLossOptions(
        python=python_of("gloo"), ranks=ranks, steps=steps, kill_at=kill_at,
        victim=min(2, ranks - 1), every=checkpoint_every, pause_ns=positive("--pause", pause),
        limit_ns=positive("--limit", limit),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="syntony-rank-loss-") as place:
        trials = drill(options, Path(place), say)
    report = make_report(options, trials)
    chart = partial(make_chart, options, trials, report)
    conclude(report, trials, out, as_json=as_json, chart=chart, show=_show)
    context.exit(0 if report.held else 1)


def _show(report: RankLossReport) -> None:
    console.print(
        f"[bold]{report.job}[/], {report.ranks} ranks, {report.steps} steps; "
        f"rank {report.victim} killed"
    )
    table = plain_table("run", ">ended", ">step", ">standstill", ">steps again", "result", ">total")
    for run in report.runs:
        table.add_row(
            run.name,
            "well" if run.exit_code == 0 else f"exit code {run.exit_code}",
            milliseconds(run.step_ms),
            "–" if run.stall_s is None else f"{run.stall_s:.2f} s",
            str(run.steps_again),
            "the same" if run.same else "another",
            f"{run.total_s:.1f} s",
        )
    console.print(table)

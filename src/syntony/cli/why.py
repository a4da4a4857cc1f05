"""`syntony why`: why a job is slow, in three sentences, then the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec
from rich.markup import escape

from syntony.cli._recording import fetch, window_option
from syntony.cli.diagnose import clean, exit_status, print_gaps, show_verdict
from syntony.cli.fleet import FleetTarget, fleet_options
from syntony.cli.output import console, print_json
from syntony.model import format_ns

if TYPE_CHECKING:
    from syntony.workload.diagnose import Diagnosis
    from syntony.workload.verdict import Verdict


@click.command()
@click.argument("job")
@window_option()
@fleet_options
@click.pass_context
def command(
    context: click.Context, target: FleetTarget, job: str, window_ns: int, as_json: bool
) -> None:
    """Say what makes JOB slow, from what the fleet has recorded of it lately.

    The answer in three sentences, then the evidence, as `syntony diagnose` prints it. With --json:
    the verdicts, as `syntony diagnose --json`.

    Exit status: 0 nothing is wrong as far as was recorded; 1 a verdict; 2 a wrong command; 3 no
    verdict, and something that could have shown one was not recorded, or the fleet does not answer.

    \b
    Example:
      syntony why train-7
      syntony why train-7 --window 10m --json
    """
    from syntony.workload import diagnose

    found = fetch(target, job, window_ns)
    result = diagnose(found.bundle())
    if as_json:
        print_gaps(result.gaps)
        print_json(msgspec.to_builtins(result.verdicts))
        context.exit(exit_status(result))
    length_ns = found.manifest["end_ns"] - found.manifest["begin_ns"]
    for sentence in sentences(job, result, length_ns):
        console.print(escape(clean(sentence)), soft_wrap=True)
    if result.verdicts:
        console.print()
    for verdict in result.verdicts:
        show_verdict(verdict)
    print_gaps(result.gaps)
    context.exit(exit_status(result))


def sentences(job: str, result: Diagnosis, length_ns: int) -> tuple[str, str, str]:
    """The answer: what, by which evidence and at what cost, what to do.

    Args:
        job: that was asked for.
        result: of its recording.
        length_ns: of the recording.
    """
    span = format_ns(length_ns)
    if not result.verdicts:
        blind = sorted({gap.table for gap in result.gaps if gap.limits})
        if not blind:
            return (
                f"Nothing is wrong with {job}, as far as the last {span} show.",
                "Every table that a verdict could come from was recorded.",
                "If it is slow nevertheless, compare it with an earlier run of the same job.",
            )
        return (
            f"It is undetermined whether anything slows {job} down: the last {span} show nothing.",
            f"Not recorded: {', '.join(blind)}.",
            "The notes say what cannot be concluded without them.",
        )
    first = result.verdicts[0]
    return (
        f"{job} is slow because of {_name(first)}{_besides(len(result.verdicts) - 1)}.",
        f"{_capital(first.evidence[0].text)}{_cost(first)}.",
        f"To do: {first.action}.",
    )


def _name(verdict: Verdict) -> str:
    subjects = " or ".join(verdict.subjects)
    if verdict.fault == "undetermined":
        rivals = ", ".join(each.fault for each in verdict.alternatives[:2])
        return f"something undetermined ({rivals}) at {subjects}"
    return f"{verdict.fault}: {subjects}"


def _besides(others: int) -> str:
    return f", and of {others} more cause{'s' if others > 1 else ''}" if others else ""


def _cost(verdict: Verdict) -> str:
    radius = verdict.blast_radius
    parts = [f"{radius.ranks} ranks wait for it"] if radius.ranks else []
    if radius.slowdown is not None:
        parts.append(f"steps take {radius.slowdown:.2f} times as long")
    return "".join(f"; {part}" for part in parts)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

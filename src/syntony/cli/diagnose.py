"""`syntony diagnose`: why a job is slow, from a bundle of what was recorded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.markup import escape

from syntony.cli.output import console, messages, print_json
from syntony.model import format_ns

if TYPE_CHECKING:
    from syntony.workload.bundle import Gap
    from syntony.workload.diagnose import Diagnosis
    from syntony.workload.verdict import Verdict

NOTHING, FOUND, UNKNOWN = 0, 1, 3
"""Exit status. `UNKNOWN`: no verdict, and a table that could have shown one cannot be used."""


@click.command()
@click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON: a list of verdicts.")
@click.pass_context
def command(context: click.Context, bundle: Path, as_json: bool) -> None:
    """Name what makes a job slow, from BUNDLE: a directory of Parquet tables of what was recorded.

    Tables: collectives, flows, probes, links, hosts, steps, all optional; docs/reference/bundle.md
    has their columns. What cannot be concluded, and why, is printed on stderr.

    Exit status: 0 nothing is wrong as far as the bundle shows; 1 a verdict; 2 no bundle, or a
    broken one; 3 no verdict, and tables that could have shown one are missing or cannot be used.

    \b
    Example:
      syntony diagnose ./bundle --json
    """
    from syntony.io.bundle_files import read_bundle
    from syntony.workload import diagnose

    result = diagnose(read_bundle(bundle))
    for gap in result.gaps:
        messages.print(f"[yellow]note:[/] {escape(gap_line(gap))}")
    if as_json:
        print_json(msgspec.to_builtins(result.verdicts))
    else:
        for verdict in result.verdicts:
            show_verdict(verdict)
        if not result.verdicts:
            console.print("nothing is wrong, as far as this bundle shows")
    context.exit(exit_status(result))


def exit_status(result: Diagnosis) -> int:
    """`NOTHING`, `FOUND` or `UNKNOWN`."""
    blind = any(gap.limits for gap in result.gaps)
    return FOUND if result.verdicts else UNKNOWN if blind else NOTHING


def gap_line(gap: Gap) -> str:
    """What is missing, and what that costs."""
    text = clean(f"{gap.table}: {gap.reason}" if gap.table else gap.reason)
    return f"{text}; cannot be concluded: {clean(gap.limits)}" if gap.limits else text


def show_verdict(verdict: Verdict) -> None:
    """Print what, since when, who suffers, how sure, what to do, what was ruled out."""
    names = " or ".join(clean(each) for each in verdict.subjects)
    console.print(f"[bold]{escape(f'{verdict.fault}: {names}')}[/]")
    _line("since", _times(verdict))
    _line("suffers", _suffers(verdict))
    _line("sure", f"{verdict.confidence:.0%}")
    for each in verdict.evidence:
        _line("because", each.text)
    _line("do", verdict.action)
    for alternative in verdict.alternatives:
        head = "not" if alternative.excluded else "open"
        _line(head, f"{alternative.fault}: {alternative.reason}")
    if verdict.follows:
        _line("explains", "; ".join(verdict.follows[:6]))
    console.print()


def _line(head: str, text: str) -> None:
    console.print(f"  [dim]{head:<9}[/] {escape(clean(text))}", soft_wrap=True)


def clean(text: Any) -> str:
    """Names come from files: nothing of them may steer a terminal."""
    from syntony.audit.text import printable

    return printable(" ".join(str(text).split()))


def _times(verdict: Verdict) -> str:
    begin = _utc(verdict.onset_ns)
    if verdict.end_ns is None:
        return f"{begin}, until the recording ends"
    return f"{begin}, for {format_ns(verdict.end_ns - verdict.onset_ns)}"


def _utc(instant_ns: int) -> str:
    """Fleet time as a date where it can be one; a timeline may count from anywhere."""
    try:
        return f"{datetime.fromtimestamp(instant_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return f"{instant_ns} ns"


def _suffers(verdict: Verdict) -> str:
    radius = verdict.blast_radius
    parts = [f"job {', '.join(radius.jobs)}"] if radius.jobs else []
    parts.append(f"{radius.ranks} ranks" if radius.ranks else "ranks not known")
    if radius.hosts:
        more = f" and {len(radius.hosts) - 4} more" if len(radius.hosts) > 4 else ""
        parts.append(f"on or at {', '.join(radius.hosts[:4])}{more}")
    if radius.slowdown is not None:
        parts.append(f"steps take {radius.slowdown:.2f} times as long")
    if radius.gpu_hours is not None:
        parts.append(f"{radius.gpu_hours:.2g} GPU-hours lost")
    return "; ".join(parts)

"""`syntony diagnose`: names why a job is slow, from a recorded bundle."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syntony.cli.output import console, messages, print_json
from syntony.model import format_ns
from syntony.view import lazy_rich

if TYPE_CHECKING:
    from syntony.workload.bundle import Bundle, Gap
    from syntony.workload.diagnose import Diagnosis
    from syntony.workload.verdict import Verdict

NOTHING, FOUND, UNKNOWN = 0, 1, 3
"""Exit status. `UNKNOWN`: no verdict, and a table that could have shown one cannot be used, or it
is undetermined whether the job hangs."""


@click.command()
@click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON: a list of verdicts.")
@click.pass_context
def command(context: click.Context, bundle: Path, as_json: bool) -> None:
    """Name what makes a job slow, from BUNDLE: a directory of Parquet tables of what was recorded,
    or of flight-recorder dumps of PyTorch, one per rank.

    Tables: collectives, flows, probes, links, hosts, steps, all optional; docs/reference/bundle.md
    has their columns. What cannot be concluded, and why, is printed on stderr.

    Exit status: 0 nothing wrong in what the bundle shows; 1 a verdict; 2 no bundle, or a broken
    one; 3 no verdict, but tables that could show one are missing or unusable, or the job waits and
    it is undetermined whether it hangs: then there is a record of it.

    \b
    Example:
      syntony diagnose ./bundle --json
    """
    from syntony.workload import diagnose

    result = diagnose(open_bundle(bundle))
    print_gaps(result.gaps)
    if as_json:
        print_json((*result.verdicts, *result.waits))
    else:
        for verdict in (*result.verdicts, *result.waits):
            show_verdict(verdict)
        if not result.verdicts and not result.waits:
            console.print("nothing is wrong, as far as this bundle shows")
    context.exit(exit_status(result))


def exit_status(result: Diagnosis) -> int:
    """`NOTHING`, `FOUND` or `UNKNOWN`."""
    blind = result.waits or any(gap.limits for gap in result.gaps)
    return FOUND if result.verdicts else UNKNOWN if blind else NOTHING


def open_bundle(folder: Path) -> Bundle:
    """Read a directory of tables, or of flight-recorder dumps if it has no manifest. Raises:
    InputError: it is neither.
    """
    from syntony.io.bundle_files import read_bundle
    from syntony.io.flight_recorder_files import is_dumps, read_dumps

    return read_dumps(folder) if is_dumps(folder) else read_bundle(folder)


def gap_line(gap: Gap) -> str:
    """One line on what is missing and what cannot be concluded without it."""
    text = clean(f"{gap.table}: {gap.reason}" if gap.table else gap.reason)
    return f"{text}; cannot be concluded: {clean(gap.limits)}" if gap.limits else text


def print_gaps(gaps: Iterable[Gap], of: str = "") -> None:
    """Print on stderr what could not be judged; `of` names the bundle if there are two."""
    for gap in gaps:
        messages.print(
            f"[yellow]note:[/] {lazy_rich.escape(clean(of + gap_line(gap)))}", soft_wrap=True
        )


def show_verdict(verdict: Verdict) -> None:
    """Print the fault, its start, what is affected, the confidence, the remedy and what was ruled
    out."""
    names = " or ".join(clean(each) for each in verdict.subjects)
    console.print(f"[bold]{lazy_rich.escape(f'{verdict.fault}: {names}')}[/]")
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
    console.print(f"  [dim]{head:<9}[/] {lazy_rich.escape(clean(text))}", soft_wrap=True)


def clean(text: Any) -> str:
    """Remove control characters: names come from files and must not control the terminal."""
    from syntony.audit.text import printable

    return printable(" ".join(str(text).split()))


def _times(verdict: Verdict) -> str:
    from syntony.workload.exits import date_and_time

    begin = date_and_time(verdict.onset_ns)
    if verdict.end_ns is None:
        return f"{begin}, until the recording ends"
    return f"{begin}, for {format_ns(verdict.end_ns - verdict.onset_ns)}"


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

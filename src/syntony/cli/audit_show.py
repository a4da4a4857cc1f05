"""`syntony audit show` and `diff`: judge earlier runs again from their stored reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from syntony.audit.changes import VerdictChange, compare
from syntony.audit.report.summary import exit_code, subject_host
from syntony.audit.result import Result, Status
from syntony.audit.spec import parse_spec
from syntony.cli.audit_run import (
    Collected,
    collect_statuses,
    form_options,
    print_results,
    verdicts,
)
from syntony.cli.output import console, json_option, print_json
from syntony.errors import UsageError
from syntony.io.audit.runs import StoredRun, state_dir, stored_runs
from syntony.view import lazy_rich

_WHOLE = frozenset({"change", "subject", "check"})
"""Columns that are not wrapped, so that names can be searched."""
_RUN = click.Path(path_type=Path)


@click.command(name="show")
@click.argument("run", required=False, type=_RUN)
@click.option("--host", "hosts", multiple=True, help="Only this host; repeatable.")
@form_options
@click.pass_context
def show_run(
    context: click.Context, *, run: Path | None, hosts: tuple[str, ...], form: str | None,
    everything: bool,
) -> None:  # fmt: skip
    """Show an earlier run, by default the last: the same tree, tables and documents.

    Exit status: as `syntony audit run`.

    \b
    Example:
      syntony audit run --lab; syntony audit show --host h3 --all
    """
    kept = StoredRun(run or _newest_runs(1)[0])
    missing = set(hosts) - set(kept.hosts)
    if missing:
        raise UsageError(f"the run has no host {', '.join(sorted(missing))}")
    seen: set[Status] = set()
    results = (each for each in _verdicts(kept) if not hosts or subject_host(each) in hosts)
    print_results(collect_statuses(results, seen), form, everything=everything)
    context.exit(exit_code(seen))


@click.command()
@click.argument("before", required=False, type=_RUN)
@click.argument("after", required=False, type=_RUN)
@json_option
@click.pass_context
def diff(context: click.Context, *, before: Path | None, after: Path | None, as_json: bool) -> None:
    """Compare two runs: the last two, BEFORE and the last, or BEFORE and AFTER.

    Exit status: 0 nothing, 1 something.

    \b
    Example:
      syntony audit run --lab; syntony lab fault mtu h3/rail0; syntony audit run --lab;
      syntony audit diff
    """
    if before is None:
        before, after = _newest_runs(2)
    elif after is None:
        (after,) = _newest_runs(1)
    changes = compare(*(_verdicts(StoredRun(path)) for path in (before, after)))
    if as_json:
        print_json(changes)
    else:
        console.print(_table(changes) if changes else "no difference")
    context.exit(1 if changes else 0)


def _verdicts(run: StoredRun) -> Iterator[Result]:
    """A run's verdicts with its own spec and golden host."""
    spec = parse_spec(run.head.spec, "the run's spec")
    return verdicts(Collected(run, run.hosts, run.head.golden), spec)


def _newest_runs(count: int) -> list[Path]:
    runs = stored_runs(state_dir())
    if len(runs) < count:
        raise UsageError(
            f"runs kept below {state_dir()}: {len(runs)}, needed: {count}; "
            "run `syntony audit run`, or name the files"
        )
    return runs[-count:]


def _table(changes: list[VerdictChange]) -> lazy_rich.Table:
    table = lazy_rich.Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("change", "subject", "check", "before", "after", "do"):
        table.add_column(heading, overflow="fold", no_wrap=heading in _WHOLE)
    for each in changes:
        table.add_row(each.change, each.subject, each.check, each.before, each.after,
                      each.result.remedy)  # fmt: skip
    return table

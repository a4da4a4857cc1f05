"""`syntony audit run`: all checks on this host, on recorded trees, over SSH or through agents."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from syntony.audit.facts import FactError
from syntony.audit.judge import judge_all
from syntony.audit.registry import host_checks
from syntony.audit.report.summary import ExitStyle, exit_code, worst_first
from syntony.audit.spec import EMPTY, Spec, limits
from syntony.cli.output import console, print_json
from syntony.errors import InputError

if TYPE_CHECKING:
    from syntony.audit.result import HostReport, Result


@click.command()
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="TREE",
    type=click.Path(path_type=Path),
    help="A recorded tree with sys/, proc/, commands/…; may be given several times.",
)
@click.option("--local", is_flag=True, help="This host (the default).")
@click.option("--check", "wanted", multiple=True, metavar="ID", help="Only these: sw.os, be.act…")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--exit-style",
    type=click.Choice([*ExitStyle]),
    default=ExitStyle.NAGIOS,
    show_default=True,
    help="Who reads the exit code.",
)
@click.pass_context
def run(
    context: click.Context, *, roots: tuple[Path, ...], local: bool, wanted: tuple[str, ...],
    as_json: bool, exit_style: ExitStyle,
) -> None:  # fmt: skip
    """Run the checks and say what is wrong, what it means and what to do.

    Exit status: 0 all pass, 1 a warning, 2 a failure, 3 something is unknown.

    \b
    Example:
      syntony audit run --local
    """
    spec = EMPTY
    reports = [_tree(root, spec, wanted) for root in roots]
    if local or not roots:
        reports.append(_here(spec, wanted))
    results = judge_all(reports, spec)
    if as_json:
        print_json([msgspec.to_builtins(result) for result in results])
    else:
        _show(results)
    context.exit(exit_code((result.status for result in results), exit_style))


def _tree(root: Path, spec: Spec, wanted: tuple[str, ...]) -> HostReport:
    from syntony.io.audit.examine import examine_host
    from syntony.io.audit.host import recorded_host

    try:
        host = recorded_host(root)
    except FactError as error:
        raise InputError("no-such-tree", str(error)) from error
    return examine_host(host, _checks(spec, wanted), _now_ns())


def _here(spec: Spec, wanted: tuple[str, ...]) -> HostReport:
    from syntony.io.audit.examine import examine_host
    from syntony.io.audit.host import this_host

    return examine_host(this_host(), _checks(spec, wanted), _now_ns())


def _checks(spec: Spec, wanted: tuple[str, ...]) -> list:  # type: ignore[type-arg]
    chosen = host_checks(wanted)
    given = limits(spec, chosen)
    return [check(given[check.id]) for check in chosen]


def _now_ns() -> int:
    return round(datetime.now(UTC).timestamp() * 1e9)


def _show(results: list[Result]) -> None:
    for result in worst_first(results):
        console.print(
            f"{result.status:8} {result.check:20} {result.subject:24} {result.got} | "
            f"{result.expected} | {result.evidence}", soft_wrap=True, markup=False,
        )  # fmt: skip

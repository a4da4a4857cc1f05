"""Shared code of the commands of `syntony lab drill`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from syntony.cli.output import json_option, messages
from syntony.errors import MissingError, UsageError
from syntony.lab.client import Lab, open_lab
from syntony.lab.jobs import programs
from syntony.model import HOUR_NS, parse_duration_ns

if TYPE_CHECKING:
    from syntony.lab.drill.report import DrillReport
    from syntony.view.drill_charts import Chart

R = TypeVar("R", bound="DrillReport")


def _running(_context: click.Context, _option: click.Parameter, name: str | None) -> Lab | None:
    return None if name is None else open_lab(name)


def _writable(
    _context: click.Context, _option: click.Parameter, directory: Path | None
) -> Path | None:
    from syntony.lab.drill.report import check_out

    check_out(directory)
    return directory


# Both are checked before PyTorch is looked for, which takes seconds and says what it finds.
lab_option = click.option(
    "--lab",
    "--name",
    "lab",
    metavar="NAME",
    callback=_running,
    help="A running lab; else each run has one of its own, gone afterwards.",
)


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a drill's command ``--out`` and ``--json``."""
    return click.option(
        "--out",
        type=click.Path(path_type=Path),
        callback=_writable,
        metavar="DIR",
        help="Chart (PNG, SVG), figures and every step as files.",
    )(json_option(command))


def positive(option: str, text: str) -> int:
    """Parse an option's duration to ns. Raises `UsageError`: not a duration, 0, or over an hour."""
    value_ns = parse_duration_ns(text)
    if not 0 < value_ns <= HOUR_NS:
        raise UsageError(f"{option} {text}: give a time up to an hour")
    return value_ns


def chosen_job(
    name: str | None, with_torch: str = "ddp", without: str = "builtin"
) -> tuple[str, str, str]:
    """(framework, kind, interpreter) of the job by its name; by default PyTorch's if it is
    installed."""
    from syntony.lab.jobs.torch_build import torch_or_plain_sockets

    if name is None:
        return torch_or_plain_sockets(lambda text: click.echo(text, err=True), with_torch, without)
    framework, kind = programs.by_name(name)
    try:
        return framework, kind, python_of(framework)
    except MissingError as error:
        raise MissingError(f"{error}; or use --job {without}") from error


def python_of(framework: str) -> str:
    """The interpreter to run a job with. Raises `MissingError`: none has PyTorch."""
    if framework == "builtin":
        return sys.executable
    from syntony.lab.jobs.torch_build import find_torch

    return find_torch()


def say(text: str) -> None:
    """Print a drill's progress on stderr."""
    messages.print(f"[dim]▸[/] {text}")


def conclude(
    report: R,
    trials: msgspec.Struct | Sequence[msgspec.Struct],
    out: Path | None,
    *,
    as_json: bool,
    chart: Callable[[], Chart],
    show: Callable[[R], None],
) -> None:
    """Save a drill's report if `out` is given, and print it, as JSON or as a table."""
    if out is not None:
        from syntony.lab.drill.report import save

        report = save(report, chart(), trials, out)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        show(report)
        for file in report.files:
            messages.print(file)


def milliseconds(value: float | None) -> str:
    """A duration in ms as a table shows it."""
    return "–" if value is None else f"{value:.2f} ms"

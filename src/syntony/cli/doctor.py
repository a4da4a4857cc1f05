"""`syntony doctor`: what this machine lacks for a lab."""

from __future__ import annotations

import click
import msgspec
from rich.table import Table

from syntony.cli.output import console
from syntony.lab.doctor import Check, Level, examine, exit_code

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.MISSING: "red"}


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """What this machine lacks for a lab, each with its remedy.

    Exit code 0: nothing; 1: a feature; 2: no lab can be brought up.

    Example: syntony doctor --json
    """
    checks = examine()
    if as_json:
        click.echo(msgspec.json.encode(checks))
    else:
        _show(checks)
    ctx.exit(exit_code(checks))


def _show(checks: list[Check]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("check", "state", "detail", "remedy"):
        table.add_column(title, overflow="fold")
    for check in checks:
        style = _STYLES[check.level]
        table.add_row(check.name, f"[{style}]{check.level}[/]", check.detail, check.remedy)
    console.print(table)

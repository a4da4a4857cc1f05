"""`syntony doctor`: shows what this machine lacks for a lab or as a host of a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from syntony.cli.output import console, json_option
from syntony.errors import UsageError
from syntony.view.tables import plain_table

if TYPE_CHECKING:
    from syntony.lab.doctor import LabRequirement

_STYLES = {"ok": "green", "warning": "yellow", "missing": "red"}


@click.command(name="doctor")
@click.option(
    "--for",
    "role",
    type=click.Choice(["lab", "agent", "controller"]),
    default="lab",
    help="What this machine is to be used as.",
)
@click.option(
    "--config",
    type=click.Path(),
    help="Configuration file of the agent or controller. [default: in /etc/syntony]",
)
@json_option
@click.pass_context
def command(ctx: click.Context, role: str, config: str | None, as_json: bool) -> None:
    """Show what this machine lacks for a lab, and the remedy.

    With --for agent or controller: checks the steps of the deployment guide on this host, up to the
    first that is not done, and prints the command to run next. Run it as root.

    Exit status: 0 nothing is missing, 1 a feature is, 2 no lab can start, or a step is not done.

    \b
    Examples:
      syntony doctor --json
      syntony doctor --for agent
    """
    from syntony.cli import doctor_host
    from syntony.lab.doctor import conclusion, examine, exit_code

    if config is not None and role == "lab":
        raise UsageError("--config goes with --for agent or --for controller")
    checks = examine() if role == "lab" else list(doctor_host.examine(role, config))
    if as_json:
        click.echo(msgspec.json.encode(checks))
    else:
        _show(checks)
    if role == "lab":
        click.echo(conclusion(checks), err=True)
    else:
        doctor_host.hint(checks)
    ctx.exit(exit_code(checks))


def _show(checks: list[LabRequirement]) -> None:
    table = plain_table("check", "state", "detail", "remedy", overflow="fold")
    for check in checks:
        style = _STYLES[check.level]
        table.add_row(check.name, f"[{style}]{check.level}[/]", check.detail, check.remedy)
    console.print(table)

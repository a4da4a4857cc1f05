"""`syntony clock`: what the fleet's clocks are worth."""

from __future__ import annotations

import click
import msgspec
from rich.table import Table

from syntony.cli.clock_solve import solve
from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.output import console, print_json
from syntony.model import ClockState, format_ns
from syntony.wire.messages import ClockQuery, Clocks

_STYLES = {
    ClockState.SYNCHRONIZED: "green",
    ClockState.HOLDOVER: "yellow",
    ClockState.DISRUPTED: "red",
    ClockState.UNKNOWN: "dim",
}


@click.group()
def command() -> None:
    """The fleet timeline and every clock's place on it.

    \b
    Example:
      syntony clock status
    """


command.add_command(solve)


@command.command()
@fleet_options
@click.pass_context
def status(context: click.Context, target: FleetTarget, as_json: bool) -> None:
    """Every clock's offset and drift against fleet time, with its 1-sigma.

    Exit status: 0 all synchronized, 1 some in holdover or disrupted, 3 some unknown or none.

    \b
    Example:
      syntony clock status --json
    """
    answer = ask(target, ClockQuery(), Clocks, until=lambda answer: bool(answer.timelines))
    timelines = answer.timelines
    if as_json:
        print_json(msgspec.to_builtins(timelines))
    else:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("clock", "state", "offset", "drift ppb", "1-sigma", "island"):
            table.add_column(heading, justify="left" if heading in {"clock", "state"} else "right")
        for line in timelines:
            table.add_row(
                line.node,
                f"[{_STYLES[line.state]}]{line.state}[/]",
                format_ns(line.offset_ns),
                f"{line.drift_ppb:.1f}",
                format_ns(line.sigma_ns),
                line.component,
            )
        console.print(table)
    context.exit(_exit_code({line.state for line in timelines}))


def _exit_code(states: set[ClockState]) -> int:
    if not states or ClockState.UNKNOWN in states:
        return 3
    return 0 if states == {ClockState.SYNCHRONIZED} else 1

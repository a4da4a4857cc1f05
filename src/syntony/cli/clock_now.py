"""`syntony clock now`: fleet time on this host, from shared memory."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from syntony.cli.output import console, json_option, messages, print_json
from syntony.model import ClockState, S, format_ns

_EXIT = {ClockState.SYNCHRONIZED: 0, ClockState.HOLDOVER: 1, ClockState.DISRUPTED: 2}


@click.command()
@json_option
@click.pass_context
def now(context: click.Context, as_json: bool) -> None:
    """Print fleet time on this host, the bound on its error, and its state.

    Reads the agent's shared-memory page (in SYNTONY_CLOCK_DIR, else /run/syntony).
    Exit status: 0 synchronized, 1 holdover, 2 disrupted or no agent, 3 unknown.

    \b
    Example:
      syntony lab exec h0 -- syntony clock now
    """
    from syntony import clock

    reading = clock.now()
    known = reading.status is not ClockState.UNKNOWN
    if as_json:
        print_json(reading._asdict() | {"bound_ns": reading.bound_ns})
    else:
        when = _when(reading.fleet_ns) if known else "no fleet time"
        bound = "no bound" if reading.bound_ns is None else f"± {format_ns(reading.bound_ns)}"
        console.print(f"{when}  {bound}  {reading.status}")
    if not known:
        messages.print("no fleet time here: does syntony-agent run? (syntony doctor --for agent)")
    elif reading.status is not ClockState.SYNCHRONIZED:
        messages.print(f"fleet time is {reading.status}; see: syntony clock status")
    context.exit(_EXIT.get(reading.status, 3))


def _when(fleet_ns: int) -> str:
    whole = datetime.fromtimestamp(fleet_ns // S, tz=UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{fleet_ns % S:09d}"

"""`syntony changes`: the log of operators' changes."""

from __future__ import annotations

import click

from syntony.cli.fleet import FleetTarget, ask, fleet_options, window_option
from syntony.cli.output import civil_time, console, messages, print_json
from syntony.model import parse_duration_ns
from syntony.view.tables import plain_table
from syntony.wire.control import CHANGES_LIMIT, ChangesQuery


@click.command()
@fleet_options
@window_option("24h", name="since")
@click.option(
    "--limit", default=100, type=click.IntRange(1, CHANGES_LIMIT), help="Show the newest N."
)
def command(target: FleetTarget, since: str, limit: int, as_json: bool) -> None:
    """List operators' changes: who, what, from where, when and why; newest last.

    \b
    Example:
      syntony failover stop --comment "switch maintenance" && syntony changes --since 1h
    """
    query = ChangesQuery(window_ns=parse_duration_ns(since), limit=limit)
    changes = ask(target, query).changes
    if as_json:
        print_json(changes)
        return
    if not changes:
        messages.print(f"no changes in the last {since}")
        return
    table = plain_table("number", "when (UTC)", "who", "from", "what", "before", "after", "comment")
    for each in changes:
        row = (each.who, each.origin, each.what, each.before, each.after, each.comment)
        table.add_row(str(each.number), civil_time(each.at_ns), *row)
    console.print(table)

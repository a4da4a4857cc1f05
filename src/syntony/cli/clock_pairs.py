"""`syntony clock pairs`: the measured offset of each pair of clocks."""

from __future__ import annotations

import click

from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.output import console, print_json
from syntony.model import format_ns
from syntony.view.tables import plain_table
from syntony.wire.clocks import PairsQuery


@click.command()
@fleet_options
def pairs(target: FleetTarget, as_json: bool) -> None:
    """Show the measured offset of each pair of clocks, before the fleet-wide solve.

    `spread` is how far the most deviating path is from the others, `corrected` what this changed in
    the pair's offset; both are empty if the paths agree.

    \b
    Example:
      syntony clock pairs
    """
    answer = ask(target, PairsQuery(), until=lambda answer: bool(answer.edges))
    if as_json:
        print_json(answer.edges)
        return
    table = plain_table(
        "from", "to", "1-sigma", "least round trip", "probes", "paths", "spread", "corrected",
        "window",
    )  # fmt: skip
    for edge in sorted(answer.edges, key=lambda edge: (-edge.path_spread_ns, edge.a, edge.b)):
        apart = edge.path_spread_ns > 0
        table.add_row(
            edge.a,
            edge.b,
            format_ns(edge.sigma_ns),
            format_ns(edge.rtt_floor_ns),
            str(edge.probes),
            str(edge.paths or "–"),
            format_ns(edge.path_spread_ns) if apart else "",
            format_ns(edge.path_correction_ns) if apart else "",
            edge.mode,
        )
    console.print(table)

"""`syntony traffic place`: chooses paths for the flows of a file, with the controller's code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from syntony.cli.output import console, json_option, messages, print_json
from syntony.cli.parquet import read_parquet
from syntony.cli.sim_options import FILE, read_topology
from syntony.sim.fluid.offline import OPTIONAL, REQUIRED, Placed, place_table
from syntony.sim.fluid.scenario import damage
from syntony.view.tables import plain_table

SHOWN = 40


@click.command()
@click.option(
    "--topology",
    type=FILE,
    required=True,
    help="Topology file, as `syntony fabric import` reads it.",
)
@click.option("--flows", type=FILE, required=True, help="Parquet: src, dst, …")
@click.option(
    "--gbps", type=float, default=100.0, help="Rate of cables without a rate of their own."
)
@click.option(
    "--dead",
    multiple=True,
    metavar="CABLE|N",
    help="Dead cable, dead link, or a number of dead cables.",
)
@click.option("--speed", multiple=True, metavar="CABLE=GBPS", help="A cable with another rate.")
@click.option("--seed", type=click.IntRange(0), default=1, help="Draws dead cables.")
@json_option
def place(  # noqa: PLR0917 - click passes its parameters by name
    topology: Path,
    flows: Path,
    gbps: float,
    dead: tuple[str, ...],
    speed: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Choose a path for each flow of FLOWS, so that the slowest flow gets as much as possible.

    FLOWS (Parquet): src, dst (names of NICs); optional flow_id, job, priority (guaranteed,
    standard, scavenger), weight, demand_gbps, size (bytes), path (the current one, kept unless a
    move helps), after (flow_id that must end first).

    \b
    Example:
      syntony fabric import fabric.dot --json > topology.json
      syntony traffic place --topology topology.json --flows flows.parquet --json
    """
    net = read_topology(topology, gbps)
    broken = damage(net, dead, speed, seed)
    table = read_parquet(flows, (*REQUIRED, *OPTIONAL))
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    with messages.status(f"{table.num_rows} flows on {net.nics} NICs"):
        placed = place_table(columns, net)
    if as_json:
        print_json(_document(placed, broken))
    else:
        _show(placed)


def _document(placed: Sequence[Placed], broken: Sequence[str]) -> dict[str, Any]:
    rates = [each.rate_gbps for each in placed]
    return {
        "flows": [
            {
                "flow_id": each.flow.flow_id,
                "job": each.flow.job,
                "path": each.path.path_id,
                "links": list(each.path.links),
                "wave": each.wave,
                "rate_gbps": round(each.rate_gbps, 6),
                "moved": each.moved,
            }
            for each in placed
        ],
        "dead": list(broken),
        "rate_min_gbps": round(min(rates), 6),
        "rate_mean_gbps": round(sum(rates) / len(rates), 6),
    }


def _show(placed: Sequence[Placed]) -> None:
    table = plain_table("flow", "job", "path", ">Gb/s")
    for each in placed[:SHOWN]:
        table.add_row(each.flow.flow_id, each.flow.job, each.path.path_id, f"{each.rate_gbps:.4g}")
    console.print(table)
    rates = [each.rate_gbps for each in placed]
    more = f", {len(placed) - SHOWN} more with --json" if len(placed) > SHOWN else ""
    mean = sum(rates) / len(rates)
    console.print(f"{len(placed)} flows: least {min(rates):.4g} Gb/s, mean {mean:.4g}{more}")

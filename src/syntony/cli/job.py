"""`syntony job`: one job's flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec
from rich.table import Table

from syntony.cli._recording import fetch, window_option
from syntony.cli.fleet import FleetTarget, fleet_options
from syntony.cli.output import console, messages, print_json
from syntony.model import format_ns

if TYPE_CHECKING:
    from syntony.workload.flow_lines import FlowLine


@click.group()
def command() -> None:
    """One job: its flows."""


@command.command()
@click.argument("job")
@click.option("--limit", default=40, show_default=True, help="So many at most; 0: all.")
@window_option()
@fleet_options
def flows(target: FleetTarget, job: str, limit: int, window_ns: int, as_json: bool) -> None:
    """Flows of JOB, worst first: what its own packets saw beside what probes saw.

    In band is half of the kernel's smoothed round trip of the connection, out of band half of the
    probes' way there and back between the same NICs.

    \b
    Example:
      syntony job flows train-7
    """
    from syntony.workload.flow_lines import flow_lines

    found = flow_lines(fetch(target, job, window_ns).bundle())
    shown = found[:limit] if limit > 0 else found
    if as_json:
        print_json(msgspec.to_builtins(shown))
        return
    if not found:
        messages.print(f"no flow of {job} was recorded: is traffic control off?", markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("flow", "in band", "worst", "out of band", "rate", "sent again", "path"):
        table.add_column(heading, justify="left" if heading in {"flow", "path"} else "right")
    for each in shown:
        table.add_row(*_cells(each))
    console.print(table)
    if len(found) > len(shown):
        messages.print(f"{len(found) - len(shown)} more flows are not shown; --limit 0")


def _cells(line: FlowLine) -> list[str]:
    return [
        line.flow,
        *(
            "" if value is None else format_ns(value)
            for value in (line.in_band_ns, line.worst_in_band_ns, line.out_of_band_ns)
        ),
        "" if line.rate_bps is None else f"{line.rate_bps / 1e6:.1f} Mb/s",
        "" if line.retransmits is None else f"{line.retransmits:.0f}",
        " ".join(line.hops),
    ]

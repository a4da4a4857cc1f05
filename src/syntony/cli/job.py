"""`syntony job`: one job's flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from syntony.cli._recording import fetch, window_ns_option
from syntony.cli.diagnose import clean
from syntony.cli.fleet import FleetTarget, fleet_options
from syntony.cli.lazy import HelpGroup
from syntony.cli.output import console, messages, print_json, shown_ns
from syntony.view.tables import plain_table

if TYPE_CHECKING:
    from syntony.workload.flow_lines import FlowLine


@click.group(cls=HelpGroup)
def command() -> None:
    """One job: its flows."""


@command.command()
@click.argument("job")
@click.option("--limit", default=40, help="Show at most this many; 0: all.")
@window_ns_option()
@fleet_options
def flows(target: FleetTarget, job: str, limit: int, window_ns: int, as_json: bool) -> None:
    """List flows of JOB, worst first: delay and loss of its own packets, and of probes.

    "One way" is the delay of the flow's own segments from NIC to NIC, in its direction, and the
    probes' delay. "Half trip" is half of the kernel's smoothed round-trip time of the connection,
    which includes queues in both hosts, and half of the probes' round-trip time.

    \b
    Example:
      syntony job flows train-7
    """
    from syntony.workload.flow_lines import flow_lines

    found = flow_lines(fetch(target, job, window_ns).bundle())
    shown = found[:limit] if limit > 0 else found
    if as_json:
        print_json(shown)
        return
    if not found:
        messages.print(f"no flow of {job} was recorded: is traffic control off?", markup=False)
        return
    table = plain_table(
        "flow", ">one way", ">worst", ">probes", ">half trip", ">probes", ">rate", ">sent again",
        "path",
    )  # fmt: skip
    for each in shown:
        table.add_row(*_cells(each))
    console.print(table)
    for why in sorted({each.one_way_why for each in shown if each.one_way_why}):
        count = sum(each.one_way_why == why for each in shown)
        messages.print(f"one way not measured for {count} flows: {clean(why)}", markup=False)
    if len(found) > len(shown):
        messages.print(f"{len(found) - len(shown)} more flows are not shown; --limit 0")


def _cells(line: FlowLine) -> list[str]:
    return [
        line.flow,
        *(
            shown_ns(value)
            for value in (
                line.one_way_ns,
                line.worst_one_way_ns,
                line.probed_one_way_ns,
                line.in_band_ns,
                line.out_of_band_ns,
            )
        ),
        "" if line.rate_bps is None else f"{line.rate_bps / 1e6:.1f} Mb/s",
        "" if line.retransmits is None else f"{line.retransmits:.0f}",
        " ".join(line.hops),
    ]

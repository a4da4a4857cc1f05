"""`syntony paths`: connections of managed jobs and the ways they go."""

from __future__ import annotations

import click
import msgspec
from rich.table import Table
from rich.text import Text

from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.output import console, messages, print_json
from syntony.model import S
from syntony.wire.failover import ConnectionsQuery, FleetConnections, HostPaths

_STALE_NS = 10 * S
_STATE_STYLE = {"up": "green", "coming": "yellow", "stalled": "bold red"}


@click.command()
@fleet_options
@click.option("--job", default="", help="Of this job only (its SYNTONY_JOB).")
@click.option("--host", default="", help="As seen from this host only.")
def command(target: FleetTarget, job: str, host: str, as_json: bool) -> None:
    """Connections of managed jobs: subflows, NICs, source ports, state, rate.

    \b
    Example:
      syntony paths --job train-7
    """
    answer = ask(target, ConnectionsQuery(job=job, host=host), until=_reported)
    if as_json:
        print_json(msgspec.to_builtins(answer))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("host", "job", "connection", "path", "state", "Mbit/s"):
        table.add_column(heading, justify="right" if heading == "Mbit/s" else "left")
    for each in answer.hosts:
        _add(table, each)
    if table.row_count:
        console.print(table)
    for each in answer.hosts:
        _remark(each)
    if not table.row_count:
        messages.print("no connection of a managed job; start jobs with SYNTONY_JOB set")


def _reported(answer: FleetConnections) -> bool:
    return bool(answer.hosts)


def _add(table: Table, host: HostPaths) -> None:
    for conn in host.report.connections:
        for subflow in conn.subflows:
            table.add_row(
                host.host,
                conn.job,
                conn.connection,
                subflow.path,
                Text(subflow.state, style=_STATE_STYLE.get(subflow.state, "")),
                f"{subflow.rate_bps / 1e6:.1f}",
            )


def _remark(host: HostPaths) -> None:
    """What a reader of the table must know."""
    if host.report.left_out:
        messages.print(f"{host.host}: {host.report.left_out} more connections are not shown")
    if host.age_ns > _STALE_NS:
        messages.print(f"{host.host}: as of {host.age_ns // S} s ago; is its agent running?")
    for conn in host.report.connections:
        if conn.degraded:
            messages.print(f"{host.host}: {conn.job} {conn.connection} degraded: {conn.degraded}")
    if host.report.mode.startswith("unavailable"):
        messages.print(f"{host.host}: {host.report.mode}")

"""`syntony paths`: connections of managed jobs and their paths."""

from __future__ import annotations

from collections.abc import Sequence

import click

from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.name_checks import check_hosts, warn_if_job_unknown
from syntony.cli.output import console, messages, print_json
from syntony.model import S, format_ns
from syntony.view import lazy_rich
from syntony.view.tables import plain_table
from syntony.wire.failover import (
    ConnectionsQuery,
    HostPaths,
    ProcessFlowView,
    ProcessView,
)

_STALE_NS = 10 * S
_MAX_FLOWS = 8
"""Flows of one process shown in the table; ``--json`` has more."""
_STATE_STYLE = {"up": "green", "coming": "yellow", "stalled": "bold red"}


@click.command()
@fleet_options
@click.option("--job", default="", show_default=False, help="Only this job (its SYNTONY_JOB).")
@click.option("--host", default="", show_default=False, help="Only rows from this host.")
def command(target: FleetTarget, job: str, host: str, as_json: bool) -> None:
    """List connections of managed jobs: subflows, NICs, source ports, state, rate.

    Then the processes connected to their agent, with the state that they report of their flows.

    \b
    Example:
      syntony paths --job train-7
    """
    answer = ask(target, ConnectionsQuery(job=job, host=host), until=lambda it: bool(it.hosts))
    if not any(each.report.connections or each.report.processes for each in answer.hosts):
        check_hosts(target, host)
        warn_if_job_unknown(target, job)
    if as_json:
        print_json(answer)
        return
    table = plain_table("host", "job", "connection", "path", "state", ">Mbit/s")
    for each in answer.hosts:
        _add(table, each)
    if table.row_count:
        console.print(table)
    _print_processes(answer.hosts)
    for each in answer.hosts:
        _remark(each)
    if not table.row_count and not any(each.report.processes for each in answer.hosts):
        messages.print("no connection of a managed job; start one with `syntony run -- COMMAND`")


def _add(table: lazy_rich.Table, host: HostPaths) -> None:
    for conn in host.report.connections:
        for subflow in conn.subflows:
            table.add_row(
                host.host,
                conn.job,
                conn.connection,
                subflow.path,
                lazy_rich.Text(subflow.state, style=_STATE_STYLE.get(subflow.state, "")),
                f"{subflow.rate_bps / 1e6:.1f}",
            )


def _print_processes(hosts: Sequence[HostPaths]) -> None:
    """Print processes that are connected to their agent, and their longest-waiting flows."""
    table = plain_table("host", "job", "process", "flow", "path", ">done", ">outstanding", ">idle")
    for host in hosts:
        for process in host.report.processes:
            for flow in process.flows[:_MAX_FLOWS]:
                table.add_row(
                    host.host,
                    process.job,
                    _name(process),
                    f"{flow.mechanism} {flow.number}",
                    lazy_rich.Text(f"{flow.nic} {flow.local} > {flow.remote}"),
                    f"{flow.bytes_done / 1e6:.1f} MB",
                    str(flow.outstanding),
                    _idle(flow),
                )
            if not process.flows:
                table.add_row(host.host, process.job, _name(process), "none", "", "", "", "")
    if table.row_count:
        console.print(table)


def _name(process: ProcessView) -> lazy_rich.Text:
    """A process and its address, escaped: a name may contain markup, and IPv6 addresses have
    brackets."""
    return lazy_rich.Text(f"{process.program}[{process.pid}]")


def _idle(flow: ProcessFlowView) -> lazy_rich.Text:
    if flow.failed:
        return lazy_rich.Text(f"failed ({flow.last_error})", style="bold red")
    return lazy_rich.Text("" if flow.idle_ns < 0 else format_ns(flow.idle_ns))


def _remark(host: HostPaths) -> None:
    if host.report.left_out:
        messages.print(f"{host.host}: {host.report.left_out} more connections are not shown")
    if host.age_ns > _STALE_NS:
        messages.print(f"{host.host}: as of {host.age_ns // S} s ago; is its agent running?")
    for conn in host.report.connections:
        if conn.degraded:
            messages.print(f"{host.host}: {conn.job} {conn.connection} degraded: {conn.degraded}")
    for process in host.report.processes:
        left_out = process.left_out + max(0, len(process.flows) - _MAX_FLOWS)
        if left_out:
            what = f"{left_out} more flows are not shown"
            messages.print(f"{host.host}:", _name(process), what)
        if process.malformed:
            what = f"{process.malformed} malformed flows"
            messages.print(f"{host.host}:", _name(process), what)
    for reason, count in host.report.refused.items():
        messages.print(f"{host.host}: {count} processes may not connect: {reason}")
    if host.report.mode.startswith("unavailable"):
        messages.print(f"{host.host}: {host.report.mode}")

"""`syntony sla`: compares latency with objectives, its past and similar pairs."""

from __future__ import annotations

from pathlib import Path

import click

from syntony.cli.fleet import FleetTarget, ask, fleet_options, window_option
from syntony.cli.lazy import HelpGroup
from syntony.cli.output import console, json_option, messages, print_json
from syntony.model import format_ns, parse_duration_ns
from syntony.model.sla import SlaRow, SlaStatus
from syntony.view import lazy_rich
from syntony.view.tables import duration, plain_table
from syntony.wire.sla import (
    QueuesQuery,
    SlaCheckQuery,
    SlaReport,
    SlaReportQuery,
)

_STYLES = {
    SlaStatus.OK: "green",
    SlaStatus.WARNING: "yellow",
    SlaStatus.BREACH: "bold red",
    SlaStatus.UNKNOWN: "dim",
}
_CODES = {SlaStatus.OK: 0, SlaStatus.WARNING: 1, SlaStatus.BREACH: 2, SlaStatus.UNKNOWN: 3}
"""Nagios' exit codes."""
SHOWN = 40
_DASH = "–"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_BY = click.Choice(["pair", "host", "rail"])


@click.group(cls=HelpGroup)
def command() -> None:
    """Latency compared with objectives, with its past and with similar pairs.

    \b
    Example:
      syntony sla check h3; syntony sla report --by rail
    """


@command.command()
@fleet_options
@click.argument("host")
@window_option("60s")
@click.pass_context
def check(
    context: click.Context, target: FleetTarget, host: str, window: str, as_json: bool
) -> None:
    """Check that a new or moved host is where the topology says, and as fast as its peers.

    Exit status, as Nagios expects: 0 pass, 1 worse than its peers or its past, 2 misplaced, beyond
    an objective or with an incident, 3 something could not be measured.

    \b
    Example:
      syntony sla check h3 --json
    """
    query = SlaCheckQuery(host=host, window_ns=parse_duration_ns(window))
    found = ask(target, query, until=lambda it: it.status is not SlaStatus.UNKNOWN)
    if as_json:
        print_json(found)
    else:
        console.print(
            lazy_rich.Text.assemble(f"{host} is ", (found.status.value, _STYLES[found.status]))
        )
        table = plain_table("check", "of", "status", "")
        for item in found.items:
            status = lazy_rich.Text(item.status.value, style=_STYLES[item.status])
            table.add_row(item.check, item.subject, status, item.detail)
        console.print(table)
    context.exit(_CODES[found.status])


@command.command()
@fleet_options
@click.option(
    "--by",
    type=click.Choice(["pair", "host", "rail", "job"]),
    default="pair",
    help="NIC pairs, pairs of hosts, rails, or the pairs that a job's connections use.",
)
@window_option("60s")
@click.option("--all", "everything", is_flag=True, help=f"Show all, not only the worst {SHOWN}.")
@click.pass_context
def report(
    context: click.Context,
    target: FleetTarget,
    *,
    by: str,
    window: str,
    everything: bool,
    as_json: bool,
) -> None:
    """Report percentiles of one-way delay and loss, worst first.

    Exit status: 0 all pass, 1 some are worse than usual or than similar pairs, 2 some are beyond an
    objective, 3 nothing could be measured.

    \b
    Example:
      syntony sla report --by rail --window 5min --json
    """
    query = SlaReportQuery(by=by, window_ns=parse_duration_ns(window))
    found = ask(target, query, until=lambda answer: bool(answer.rows) or by == "job")
    _print_and_exit(context, found, everything=everything, as_json=as_json)


@command.command()
@click.argument("rows", type=_FILE)
@click.option(
    "--by", type=_BY, default="pair", help="Rows of the report: NIC pairs, hosts or rails."
)
@window_option("60s", text="Length of the window before the newest row.")
@click.option("--sla", "terms", default="", show_default=False, metavar="FILE", help="Objectives.")
@click.option(
    "--paths", type=_FILE, help="PATHS from `fabric paths --parquet`, for classes of pairs."
)
@click.option("--all", "everything", is_flag=True, help=f"Show all, not only the worst {SHOWN}.")
@json_option
@click.pass_context
def recorded(
    context: click.Context,
    rows: Path,
    *,
    by: str,
    window: str,
    terms: str,
    paths: Path | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Report as `report` does, from recorded rows of probe_1s (Parquet), without a fleet.

    Exit status: as `report`.

    \b
    Example:
      syntony sla recorded rows.parquet --sla deploy/config/sla.toml --window 10min
    """
    from syntony.cli.sla_recorded import recorded_report

    window_ns = parse_duration_ns(window)
    found = recorded_report(rows, by=by, window_ns=window_ns, terms=terms, paths=paths)
    _print_and_exit(context, found, everything=everything, as_json=as_json)


def _print_and_exit(
    context: click.Context, found: SlaReport, *, everything: bool, as_json: bool
) -> None:
    if as_json:
        print_json(found)
    else:
        _print_report(found, everything=everything)
    known = [row.status for row in found.rows if row.status is not SlaStatus.UNKNOWN]
    context.exit(max((_CODES[status] for status in known), default=3 if found.by != "job" else 0))


def _print_report(found: SlaReport, *, everything: bool) -> None:
    if not found.rows:
        text = "no job has connections under Syntony" if found.by == "job" else "nothing measured"
        console.print(text)
        return
    table = plain_table(
        found.by, "class", "p50", "p99", "usual p99", "like p50", "lost", "status", ""
    )
    rows = found.rows if everything else found.rows[:SHOWN]
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)
    if len(rows) < len(found.rows):
        messages.print(f"{len(found.rows) - len(rows)} more; see them with --all")


def _cells(row: SlaRow) -> tuple[str | lazy_rich.Text, ...]:
    now = row.now
    return (
        row.subject,
        row.path_class or _DASH,
        duration(now.p50_ns),
        duration(now.p99_ns),
        duration(row.usual.p99_ns if row.usual else None),
        duration(row.peers.p50_ns if row.peers else None),
        f"{now.lost / now.sent:.2%}" if now.sent else _DASH,
        lazy_rich.Text(row.status.value, style=_STYLES[row.status]),
        "; ".join(row.reasons),
    )


@command.command()
@fleet_options
@click.pass_context
def congestion(context: click.Context, target: FleetTarget, as_json: bool) -> None:
    """List links with queueing, sustained or in bursts, and the jobs that share them.

    Exit status: 0 none, 1 some, 3 not enough measurements.

    \b
    Example:
      syntony sla congestion --json
    """
    found = ask(target, QueuesQuery(), until=lambda answer: answer.looked)
    if as_json:
        print_json(found)
    elif not found.queues:
        console.print("no packets wait anywhere" if found.looked else "not known yet")
    for queue in () if as_json else found.queues:
        bursts = " in bursts, which lose some" if queue.bursts else ""
        waited = f"{queue.component}: packets wait {format_ns(queue.delay_ns)}{bursts}"
        console.print(waited, style="yellow")
        if queue.alternatives:
            console.print(f"  or {', '.join(queue.alternatives)}", style="dim")
        console.print(f"  crossed by the probes of {len(queue.pairs)} pairs of NICs")
        for flow in queue.flows:
            console.print(f"  job {flow.job}: {flow.pair} {flow.rate_bps / 1e6:.1f} Mb/s")
    context.exit(1 if found.queues else 0 if found.looked else 3)

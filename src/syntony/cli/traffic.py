"""`syntony traffic`: jobs' flows, busy links, and moves between working paths."""

from __future__ import annotations

import click

from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.lazy import LazyGroup
from syntony.cli.name_checks import warn_if_job_unknown
from syntony.cli.output import civil_time_ms, console, messages, print_json, why_option
from syntony.io.user_name import user_name
from syntony.model import format_bps, format_ns
from syntony.view import lazy_rich
from syntony.view.tables import duration, plain_table
from syntony.wire.traffic import MovesQuery, PlacementCommand, Traffic, TrafficQuery

_LINKS = 12
"""Number of busiest links in the table; --json has all."""
_FULL = 0.9


_ELSEWHERE = {
    "place": (
        "traffic_place:place",
        "Choose a path for each flow of FLOWS, so that the slowest flow gets as much as possible.",
    ),
    "queue-pairs": (
        "queue_pairs:queue_pairs",
        ("List jobs' RDMA queue pairs: messages, bytes, credits, one-way delays, round trips."),
    ),
}


@click.group(cls=LazyGroup, lazy=_ELSEWHERE)
def command() -> None:
    """Contention: flows that share links, and flows that are moved.

    \b
    Example:
      syntony traffic status --job train-7
    """


@command.command()
@fleet_options
@click.option("--job", default="", show_default=False, help="Only this job.")
def status(target: FleetTarget, job: str, as_json: bool) -> None:
    """List flows of managed jobs with paths, rates and one-way delays, and the busiest links.

    \b
    Example:
      syntony traffic status
    """
    answer = ask(target, TrafficQuery(job=job), until=lambda it: it.now_ns > 0)
    if not answer.flows:
        warn_if_job_unknown(target, job)
    if as_json:
        print_json(answer)
        return
    _show(answer)


def _show(answer: Traffic) -> None:
    deciding = (
        lazy_rich.Text("deciding")
        if answer.deciding
        else lazy_rich.Text(answer.why, style="yellow")
    )
    console.print(lazy_rich.Text(f"placement: {answer.mode}; pacing: {answer.pacing}; ") + deciding)
    if not answer.flows:
        messages.print("no flow of a managed job; start jobs with `syntony run`")
        return
    table = plain_table(
        "job", "class", "from", "to", ">port", "path", ">of", ">sends", ">gets", ">delay",
        ">p99", "",
    )  # fmt: skip
    for flow in answer.flows:
        table.add_row(
            flow.job,
            flow.priority,
            flow.src,
            flow.dst,
            str(flow.sport),
            flow.path or "not known",
            str(flow.paths or "–"),
            _rate(flow.tx_bps, flow.tx_pace_bps),
            _rate(flow.rx_bps, flow.rx_pace_bps),
            duration(flow.owd_p50_ns),
            duration(flow.owd_p99_ns),
            "moving" if flow.moving else "" if flow.movable else "stays",
        )
    console.print(table)
    console.print(
        "[dim]of: number of known paths; sends, gets: Mb/s, after a slash the rate to which it is "
        "paced; delay: of probes on the same links[/]"
    )
    links = plain_table("link", ">load", ">capacity", ">flows", ">queue", ">paced to")
    for link in answer.links[:_LINKS]:
        full = link.capacity_bps and link.bps >= _FULL * link.capacity_bps
        load = lazy_rich.Text(
            format_bps(link.bps), style="bold red" if full and link.flows > 1 else ""
        )
        capacity = format_bps(link.capacity_bps) if link.capacity_bps else "?"
        shared = format_bps(link.paced_bps) if link.paced_bps else ""
        links.add_row(link.link, load, capacity, str(link.flows), duration(link.queue_ns), shared)
    console.print(links)


@command.command()
@fleet_options
@click.option("--job", default="", show_default=False, help="Only this job.")
@click.option("--limit", default=50, metavar="N", help="Show the newest N.")
def moves(target: FleetTarget, job: str, limit: int, as_json: bool) -> None:
    """List moves, done or only proposed: reason, target, effect; newest last.

    \b
    Example:
      syntony traffic moves --limit 10
    """
    answer = ask(target, MovesQuery(job=job, limit=limit))
    if not answer.moves:
        warn_if_job_unknown(target, job)
    if as_json:
        print_json(answer.moves)
        return
    if not answer.moves:
        messages.print("nothing was moved since the controller started; older: failover log")
        return
    table = plain_table(
        "when (UTC)", "job", "from", "to", "old path", "new path", "why", "took", "result"
    )
    for move in answer.moves:
        table.add_row(
            civil_time_ms(move.ts_ns),
            move.job,
            move.src,
            move.dst,
            move.old,
            move.new,
            f"{move.cause}: {move.evidence}",
            format_ns(move.took_ns) if move.took_ns else "–",
            lazy_rich.Text(move.result, style="green" if move.result == "helped" else ""),
        )
    console.print(table)


@command.command()
@fleet_options
@click.argument("mode", type=click.Choice(["off", "observe", "act"]))
@why_option
def mode(target: FleetTarget, mode: str, why: str, as_json: bool) -> None:
    """Set placement to observe or act from now on, also after a restart of the controller.

    This outweighs the mode in the controller's configuration.

    \b
    Example:
      syntony traffic mode act --comment "two jobs share pod 3"
    """
    order = PlacementCommand(mode=mode, by=user_name(), why=why)
    answer = ask(target, order)
    if as_json:
        print_json(answer)
        return
    messages.print(f"placement: {answer.mode}")


@command.command()
@fleet_options
@click.argument("mode", type=click.Choice(["off", "observe", "act"]))
@why_option
def pacing(target: FleetTarget, mode: str, why: str, as_json: bool) -> None:
    """Set pacing of flows that share a congested link to observe or act.

    Flows that share a link with a standing queue get rates that add up to slightly less than its
    capacity. Agents drop the rates after three seconds without an update. The mode stays after a
    restart of the controller, and outweighs the one in its configuration.

    \b
    Example:
      syntony traffic pacing act --comment "incast at h0"
    """
    order = PlacementCommand(what="pacing", mode=mode, by=user_name(), why=why)
    answer = ask(target, order)
    if as_json:
        print_json(answer)
        return
    messages.print(f"pacing: {answer.pacing}")


def _rate(bps: int, pace_bps: int) -> str:
    return f"{bps / 1e6:.1f}" + (f"/{pace_bps / 1e6:.1f}" if pace_bps else "")

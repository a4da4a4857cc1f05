"""`syntony probe`: measurements and plan of the probe mesh."""

from __future__ import annotations

from collections.abc import Sequence

import click

from syntony.cli.fleet import (
    FleetTarget,
    ask,
    fleet_options,
    lab_hosts,
    window_option,
)
from syntony.cli.lazy import HelpGroup
from syntony.cli.name_checks import check_nics
from syntony.cli.output import console, messages, print_json
from syntony.errors import UsageError
from syntony.io.user_name import user_name
from syntony.model import NicRef, S, format_ns, parse_duration_ns
from syntony.view import lazy_rich
from syntony.view.heatmap import heatmap, is_dark, listing
from syntony.view.tables import duration, plain_table
from syntony.wire.probes import (
    KeysQuery,
    Matrix,
    MatrixCell,
    MatrixQuery,
    Plane,
    PlaneDisagreement,
    Planes,
    PlanesQuery,
    PlanQuery,
    RotateKeys,
    SeriesQuery,
)

_MOST = 20
"""Lines; the rest is counted."""
_USUAL_LAG_NS = 5 * S
"""Agents report a second after its end, and inserts are collected: rows are usually stored within
this time."""


def disagreement_list(planes: Planes) -> lazy_rich.RenderableType:
    """One line for each, worst first."""
    found = planes.disagreements
    if not found:
        return lazy_rich.Text(
            f"{planes.compared} directions probed over both: they agree"
            if planes.compared
            else "no direction was probed over both",
            style="dim",
        )
    lines = [lazy_rich.Text(_line(each), style="yellow") for each in found[:_MOST]]
    if len(found) > _MOST:
        lines.append(lazy_rich.Text(f"and {len(found) - _MOST} more", style="dim"))
    return lazy_rich.Group(*lines)


def _line(each: PlaneDisagreement) -> str:
    where = f"{each.src} → {each.dst}, " if each.src else ""
    where += f"class {each.dscp}"
    if each.what == "loss":
        return f"{where}: {each.udp:.1%} lost over UDP, {each.verbs:.1%} over verbs"
    udp, verbs = format_ns(round(each.udp)), format_ns(round(each.verbs))
    usual = format_ns(round(each.usual_ns))
    rest = "in the class" if each.src else "in the least delayed class"
    return f"{where}: {udp} over UDP, {verbs} over verbs; {usual} more is usual {rest}"


@click.group(cls=HelpGroup)
def command() -> None:
    """One-way delay, loss and liveness between all NICs.

    \b
    Example:
      syntony lab up --detach && syntony probe matrix
    """


@command.command()
@fleet_options
@window_option("10s")
@click.option("--list", "as_list", is_flag=True, help="One line per direction, with percentiles.")
@click.option(
    "--over",
    type=click.Choice([*(plane.value for plane in Plane), "both"]),
    default=Plane.UDP.value,
    help="Kind of probes; both: side by side, with disagreements.",
)
def matrix(target: FleetTarget, window: str, as_list: bool, over: str, as_json: bool) -> None:
    """Show one-way delay between all probed NICs, in each direction.

    The window ends at the newest stored second, with --over both at the newest one that is stored
    of both; if that is old, a line says so.

    \b
    Example:
      syntony probe matrix --window 30s
      syntony probe matrix --over both --window 60s
    """
    window_ns = parse_duration_ns(window)
    wanted = tuple(Plane) if over == "both" else (Plane(over),)
    found = {plane: _matrix(target, plane, window_ns) for plane in wanted}
    differ: Planes | None = None
    ends_together = False
    if len(wanted) > 1:
        differ = ask(target, PlanesQuery(window_ns=window_ns, newest=True))
        found = {plane: _until(target, plane, window_ns, differ.end_ns) for plane in wanted}
        ends_together = bool(differ.end_ns)
    ages = {over if ends_together else plane.value: found[plane].lag_ns for plane in wanted}
    for what, lag_ns in ages.items():
        if lag_ns > _USUAL_LAG_NS:
            messages.print(
                f"the newest stored probe over {what} is {format_ns(lag_ns)} old: "
                "the window ends there",
                style="yellow",
            )
    if as_json:
        cells = [cell for plane in wanted for cell in found[plane].cells]
        print_json(cells if differ is None else {"cells": cells, "planes": differ})
        return
    for plane in wanted:
        if len(wanted) > 1:
            console.print(lazy_rich.Text(f"over {plane}", style="bold"))
        _show(found[plane].cells, plane, as_list=as_list)
    if differ is not None:
        console.print(disagreement_list(differ))


def _until(target: FleetTarget, plane: Plane, window_ns: int, end_ns: int) -> Matrix:
    """`end_ns`: 0: a controller of the previous version does not say where both end."""
    query = MatrixQuery(window_ns=window_ns, over=plane, end_ns=end_ns, newest=True)
    return ask(target, query)


def _matrix(target: FleetTarget, plane: Plane, window_ns: int) -> Matrix:
    query = MatrixQuery(window_ns=window_ns, over=plane, newest=True)
    if plane is Plane.VERBS:  # there may be no NIC with verbs
        return ask(target, query, until=lambda _: True)
    # A young lab's agents report one after the other: a matrix of half a fleet would mislead.
    hosts = lab_hosts(target) if target.startup_timeout_ns else frozenset()
    return ask(target, query, until=lambda answer: _covers(answer.cells, hosts))


def _covers(cells: Sequence[MatrixCell], hosts: frozenset[str]) -> bool:
    return bool(cells) and hosts <= {NicRef.parse(cell.src).host for cell in cells}


def _show(cells: tuple[MatrixCell, ...], plane: Plane, *, as_list: bool) -> None:
    if not cells and plane is Plane.VERBS:
        console.print("no NIC is probed over verbs; `syntony agent parts` says what is missing")
        return
    if not cells:
        console.print("no probe is stored; `syntony agent parts` says what is missing")
        return
    console.print(listing(cells) if as_list else heatmap(cells, width=console.width))
    dark = sum(map(is_dark, cells))
    if dark:
        console.print(
            lazy_rich.Text(
                f"{dark} of {len(cells)} directions lose more than half of their probes",
                style="bold red",
            )
        )


@command.command()
@fleet_options
@click.argument("src")
@click.argument("dst")
@window_option("60s")
def history(target: FleetTarget, src: str, dst: str, window: str, as_json: bool) -> None:
    """Show probes from one NIC to another, second by second.

    \b
    Example:
      syntony probe history h0/rail0 h3/rail0
    """
    NicRef.parse(src), NicRef.parse(dst)
    query = SeriesQuery(src=src, dst=dst, window_ns=parse_duration_ns(window))
    points = ask(target, query).points
    if not points:
        check_nics(target, src, dst)
        raise UsageError(f"{src} → {dst} is not probed; `syntony probe plan` lists what is")
    if as_json:
        print_json(points)
        return
    table = plain_table(">second", ">sent", ">lost", ">min", ">p50", ">p99")
    newest = max((point.ts_ns for point in points), default=0)
    for point in points:
        delays = (point.owd_min_ns, point.owd_p50_ns, point.owd_p99_ns)
        table.add_row(
            f"{(point.ts_ns - newest) // S} s",
            str(point.sent),
            lazy_rich.Text(str(point.lost), style="bold red" if point.lost else ""),
            *map(duration, delays),
        )
    console.print(table)


@command.command()
@fleet_options
def plan(target: FleetTarget, as_json: bool) -> None:
    """Show which NICs probe which, on which source ports and how often.

    \b
    Example:
      syntony probe plan
    """
    answer = ask(target, PlanQuery(), until=lambda answer: bool(answer.flows))
    if as_json:
        print_json(answer)
        return
    table = plain_table("from", "to", "over", "source ports", "pairs/s")
    pairs: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    planes = {Plane.UDP: answer.flows, Plane.VERBS: answer.verbs}
    for plane, planned in planes.items():
        for src, flow in planned:
            over = f"{plane}, DSCP {flow.dscp}" if flow.dscp else str(plane)
            pairs.setdefault((src, flow.dst, over), []).append((flow.src_port, flow.interval_ns))
    for (src, dst, over), flows in sorted(pairs.items()):
        ports = sorted(port for port, _ in flows)
        rate = sum(S / interval_ns for _, interval_ns in flows)
        table.add_row(src, dst, over, f"{ports[0]}–{ports[-1]} ({len(ports)})", f"{rate:.1f}")
    console.print(table)


@command.command()
@fleet_options
@click.option("--rotate", is_flag=True, help="Start to rotate the keys now.")
@click.option(
    "--comment", default="", show_default=False, help="Reason, shown by `syntony changes`."
)
def keys(target: FleetTarget, rotate: bool, comment: str, as_json: bool) -> None:
    """Show the rotation of probe keys, and the agents that have not switched yet.

    \b
    Example:
      syntony probe keys --rotate --comment "h3 was reinstalled"
    """
    query = RotateKeys(by=user_name(), why=comment) if rotate else KeysQuery()
    status = ask(target, query)
    if as_json:
        print_json(status)
        return
    epochs = ", ".join(map(str, status.epochs))
    age = format_ns(status.age_ns)
    console.print(f"{status.phase} for {age}; accepted {epochs}; sent with {status.sending}")
    for what, hosts in (("waiting for", status.waiting), ("left behind", status.left_behind)):
        if hosts:
            console.print(f"{what} {', '.join(hosts)}")

"""`syntony clock`: state, offset and error bound of the fleet's clocks."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import msgspec

from syntony.cli.fleet import (
    FleetTarget,
    ask,
    fleet_options,
    fleet_options_if_needed,
    window_option,
)
from syntony.cli.lazy import LazyGroup
from syntony.cli.output import console, messages, print_json
from syntony.errors import RemoteError, SyntonyError, UsageError
from syntony.model import MS, S, Timeline, format_ns, parse_duration_ns
from syntony.model.names import did_you_mean
from syntony.view.clocks import (
    ClockReading,
    ClockVerdict,
    newest_ns,
    plain_line,
    readings,
    status_table,
    verdict,
)
from syntony.wire.clocks import ClockHistory, ClockHistoryQuery, ClockQuery
from syntony.wire.messages import FleetQuery

if TYPE_CHECKING:
    from rich.console import RenderableType


HISTORY_LINES = 30
"""Lines for one clock on a terminal; JSON has the stored resolution."""
SUMMARY_SAMPLES = 240
"""Samples per clock for one line of `history --all`."""


_ELSEWHERE = {
    "solve": (
        "clock_solve:solve",
        "Compute offset, drift and bound of every clock in FILE, a Parquet file of probes.",
    ),
    "report": (
        "clock_report:report",
        "Write a report on the clocks of the last minutes: HTML page, SVG and PNG pictures, JSON.",
    ),
    "pairs": (
        "clock_pairs:pairs",
        "Show the measured offset of each pair of clocks, before the fleet-wide solve.",
    ),
    "now": (
        "clock_now:now",
        "Print fleet time on this host, the bound on its error, and its state.",
    ),
    "utc": (
        "clock_utc:utc",
        ("Compare fleet time with UTC: offset, bound, anchors that count, anchors outvoted."),
    ),
}


@click.group(cls=LazyGroup, lazy=_ELSEWHERE)
def command() -> None:
    """Fleet time, and every clock's offset from it.

    \b
    Example:
      syntony clock status
    """


@command.command()
@fleet_options_if_needed
@click.option("--warn", metavar="TIME", help="Exit 1 when a clock's bound is above this.")
@click.option("--critical", metavar="TIME", help="Exit 2 when a clock's bound is above this.")
@click.option("--check", is_flag=True, help="One line, as a Nagios plugin prints it.")
@click.pass_context
def status(
    context: click.Context,
    *,
    target: Callable[[], FleetTarget],
    warn: str | None,
    critical: str | None,
    check: bool,
    as_json: bool,
) -> None:
    """List clocks, worst first: state, bound on the error, offset, drift, reason.

    Offset and bound are of the newest measured instant; fleet time = local time + offset.

    Exit status: 0 all synchronized; 1 some in holdover, bounded above --warn, or on several
    islands; 2 some disrupted or above --critical; 3 some unknown or none. With --check also 3 if no
    controller is named, or none answers.

    \b
    Example:
      syntony clock status --check --warn 1us --critical 10us
    """
    try:
        lines, found, result = _judged(target(), warn, critical)
    except SyntonyError as error:
        if not check or as_json:
            raise
        click.echo(f"CLOCK UNKNOWN - {error}")
        context.exit(3)
    if as_json:
        print_json(_status_json(lines, found))
    elif check:
        click.echo(result.text)
    else:
        console.print(status_table(found))
        messages.print(result.text.partition(" | ")[0], style="dim")
    context.exit(result.code)


def _judged(
    target: FleetTarget, warn: str | None, critical: str | None
) -> tuple[tuple[Timeline, ...], list[ClockReading], ClockVerdict]:
    warn_ns, critical_ns = _limit_ns(warn), _limit_ns(critical)
    if warn_ns > critical_ns:
        raise UsageError(f"--warn {warn} is above --critical {critical}")
    lines, expected = _clocks(target)
    found = readings(lines, expected)
    return lines, found, verdict(found, warn_ns, critical_ns)


@command.command()
@fleet_options
@click.argument("nodes", nargs=-1, metavar="[CLOCK…]")
def matrix(target: FleetTarget, nodes: tuple[str, ...], as_json: bool) -> None:
    """Show the offset between every two clocks, with a bound on its error.

    A fleet too wide for the terminal is summarised; name clocks to see them pair by pair.

    \b
    Example:
      syntony clock matrix h0 h1 h2
    """
    from syntony.view.clock_matrix import clock_matrix, clock_pairs

    lines, _ = _clocks(target)
    for node in nodes:
        if node not in {line.node for line in lines}:
            raise unknown_clock(node, (line.node for line in lines))
    pairs = clock_pairs([line for line in lines if not nodes or line.node in nodes])
    if as_json:
        print_json({"fleet_ns": newest_ns(lines), "pairs": pairs})
        return
    console.print(clock_matrix(pairs, width=console.width))


@command.command()
@fleet_options
@click.argument("node", required=False, metavar="CLOCK")
@click.option("--all", "every", is_flag=True, help="Every clock, one line each.")
@window_option("10m", name="since")
@click.option("--step", metavar="TIME", help="Print one line for each interval of this length.")
def history(
    *,
    target: FleetTarget,
    node: str | None,
    every: bool,
    since: str,
    step: str | None,
    as_json: bool,
) -> None:
    """Show offset, drift, sigma, bound and state over time, from the store.

    Each line shows the newest solution of an interval, and its worst sigma, bound and state. If
    less is stored than asked for, a line says for how long.

    \b
    Example:
      syntony clock history h3 --since 5m
      syntony clock history --all --json
    """
    from syntony.view.clock_history import by_clock, history_table, summary_table

    if (node is None) != every:
        raise UsageError("name a clock, or give --all: syntony clock history h3")
    window_ns = parse_duration_ns(since)
    rows = SUMMARY_SAMPLES if every else HISTORY_LINES
    step_ns = parse_duration_ns(step) if step else 0 if as_json else window_ns // rows
    query = ClockHistoryQuery(node=node or "", window_ns=window_ns, step_ns=step_ns)
    lines, expected = _clocks(target)
    known = expected | {line.node for line in lines}
    # A clock that is gone may have a history; for one that never existed, do not wait.
    waiting = every or node in known
    answer = ask(target, query, until=lambda got: bool(got.samples) or not waiting)
    if node is not None and not answer.samples:
        if node in known:
            raise UsageError(f"nothing is stored of clock {node} in the last {since}")
        raise unknown_clock(node, known)
    age_ns = _age_ns(answer)
    if age_ns and age_ns < window_ns - window_ns // rows:
        messages.print(
            f"stored for {format_ns(age_ns)} only, not for {since}", style="yellow", markup=False
        )
        if not (step or as_json):  # the steps of the whole window would be a line or two
            shorter = msgspec.structs.replace(query, step_ns=max(age_ns // rows, S))
            answer = ask(target, shorter)
    if as_json:
        print_json(answer)
        return
    clocks = by_clock(answer.samples)
    console.print(summary_table(clocks) if every else history_table(clocks[node or ""]))


@command.command()
@fleet_options
@click.option(
    "--interval",
    "--every",
    "interval",
    default="1s",
    metavar="TIME",
    help="Time between two updates.",
)
@click.option("--count", type=click.IntRange(1), help="Stop after this many updates.")
def watch(target: FleetTarget, interval: str, count: int | None, as_json: bool) -> None:
    """Show all clocks live, until Ctrl-C; plain lines if there is no terminal.

    \b
    Example:
      syntony clock watch --count 5
    """
    interval_ns = parse_duration_ns(interval)
    if interval_ns < 100 * MS:
        raise UsageError(
            f"--interval {interval}: give 100ms or more; clocks are solved once a second"
        )
    looks = range(count) if count else itertools.count()
    live = console.is_terminal and not as_json
    said = ""
    with _screen(live) as show:
        for number in looks:
            if number:
                time.sleep(interval_ns / S)
            try:
                lines, expected = _clocks(target)
            except RemoteError as error:
                if not number:
                    raise
                if said != str(error):
                    said = str(error)
                    messages.print(f"{said}; still watching", style="yellow")
                continue
            said = ""
            found = readings(lines, expected)
            if as_json:
                click.echo(msgspec.json.encode(_status_json(lines, found)))
            elif live:
                show(_live_view(found))
            else:
                at = f"{newest_ns(lines) / S:.3f}"
                click.echo("\n".join(plain_line(each, at) for each in found) or "no clock is known")


def unknown_clock(node: str, known: Iterable[str]) -> UsageError:
    names = sorted(known)
    if not names:
        return UsageError(f"no clock {node!r}: no clock is known yet")
    hint = did_you_mean(node, names) or f"; known: {names[0]} … {names[-1]}"
    return UsageError(f"no clock {node!r} in this fleet{hint}")


def _clocks(target: FleetTarget) -> tuple[tuple[Timeline, ...], frozenset[str]]:
    """Timelines, and every clock that connected agents have."""
    lines = ask(target, ClockQuery(), until=lambda answer: bool(answer.timelines)).timelines
    fleet = ask(target, FleetQuery())
    nics = [nic for agent in fleet.agents if agent.connected for nic in agent.nics]
    clocks = frozenset({nic.clock for nic in nics} | {nic.verbs_clock for nic in nics}) - {""}
    return lines, clocks


def _age_ns(answer: ClockHistory) -> int:
    """How long before the newest sample the stored data begin; 0: not known."""
    newest_ns = max((sample.ts_ns for sample in answer.samples), default=0)
    return newest_ns - answer.first_ns if answer.first_ns else 0


def _limit_ns(text: str | None) -> float:
    return math.inf if text is None else float(parse_duration_ns(text))


def _status_json(
    lines: Sequence[Timeline], found: Sequence[ClockReading]
) -> list[dict[str, object]]:
    """Each timeline as it is, with its bound and `offset_newest_ns` at the newest instant."""
    by_node = {line.node: msgspec.to_builtins(line) for line in lines}
    return [
        {
            "node": each.node,
            "state": each.state.value,
            "reason": each.reason,
            **by_node.get(each.node, {}),
            "offset_newest_ns": each.offset_ns,
            "bound_ns": each.bound_ns,
        }
        for each in found
    ]


@contextmanager
def _screen(live: bool) -> Iterator[Callable[[RenderableType], None]]:
    """A live display that is redrawn in place; none if not `live`."""
    if not live:
        yield lambda _: None
        return
    from rich.live import Live

    with Live(console=console.rich, auto_refresh=False) as screen:
        yield lambda view: screen.update(view, refresh=True)


def _live_view(found: Sequence[ClockReading]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    summary = verdict(found).text.partition(" | ")[0]
    return Group(status_table(found), Text(summary, style="dim"))

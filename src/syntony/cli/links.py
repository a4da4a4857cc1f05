"""`syntony links`: every port of a host or of the fleet, its flaps and its counters."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from syntony.cli.fleet import FleetTarget, ask, fleet_options, window_option
from syntony.cli.lazy import HelpGroup
from syntony.cli.output import console, json_option, messages, print_json
from syntony.errors import InputError, UsageError
from syntony.links.counters import EVERY, TABLE, LinkCounter, Side
from syntony.links.deltas import CounterOutcome
from syntony.links.ports import REMEDIES, PortState
from syntony.links.roles import LinkRole
from syntony.model import DAY_NS, HOUR_NS, NicRef, S, parse_duration_ns
from syntony.model.names import did_you_mean
from syntony.model.units import format_bps
from syntony.view import lazy_rich
from syntony.view.tables import plain_table
from syntony.wire.links import (
    LinkCounterRow,
    LinkEventRow,
    LinkHistoryQuery,
    LinksQuery,
    LinkStatus,
)

if TYPE_CHECKING:
    from syntony.links.snapshot import PortSnapshot

STALE_NS = 180 * S
"""Three reports missed: the state shown is old."""
_WATCH_S = 1.0
_CARRIER_LOSSES = ("net:carrier_down_count", "ib/counters:link_downed")
"""Counters of flaps; the first that a port has is used."""
_GOOD, _WARNING, _CRITICAL, _UNKNOWN = 0, 1, 2, 3
_STYLES = {PortState.ACTIVE: "green", PortState.UNKNOWN: "yellow", PortState.DISABLED: "dim"}


@click.group(cls=HelpGroup)
def command() -> None:
    """Ports, cables and their counters.

    \b
    Example:
      syntony lab up --detach && syntony links list
    """


@command.command("list")
@fleet_options
@window_option("1h", text="Time in which flaps are counted.")
@click.option("--all", "everything", is_flag=True, help="Also show virtual ports.")
@click.pass_context
def list_(
    context: click.Context, target: FleetTarget, window: str, everything: bool, as_json: bool
) -> None:
    """List every port of the fleet: state, speed, flaps.

    Exit status: 0 all compute ports are active, 1 one has flapped, 2 one is down, 3 one is unknown.
    For a single host without a fleet: `syntony links show`.

    \b
    Example:
      syntony links list --window 24h
    """
    answer = ask(
        target, LinksQuery(window_ns=parse_duration_ns(window)),
        until=lambda answer: bool(answer.ports),
    )  # fmt: skip
    if as_json:
        print_json([_plain(port, answer.now_ns) for port in answer.ports])
    else:
        shown = [port for port in answer.ports if everything or port.role != LinkRole.VIRTUAL]
        console.print(_fleet_table(shown, answer.now_ns, window))
    context.exit(_verdict(answer.ports, answer.now_ns))


@command.command()
@fleet_options
@click.argument("nic", required=False, default="")
@window_option("24h")
def history(target: FleetTarget, nic: str, window: str, as_json: bool) -> None:
    """Show events of a port (HOST/NAME) or of all: flaps, states, drivers' messages, counters.

    \b
    Example:
      syntony links history h0/rail0 --window 7d
    """
    if nic:
        NicRef.parse(nic)
    query = LinkHistoryQuery(nic=nic, window_ns=parse_duration_ns(window))
    answer = ask(target, query)
    if nic and not (answer.events or answer.counters):
        _check_port(target, nic, query.window_ns)
    if as_json:
        print_json(answer)
        return
    if not answer.events and not answer.counters:
        console.print(f"nothing happened to {nic or 'any port'} in {window}")
        return
    if answer.events:
        console.print(_event_table(answer.events, answer.now_ns))
    if answer.counters:
        console.print(_counter_table(answer.counters, answer.now_ns))


def _check_port(target: FleetTarget, nic: str, window_ns: int) -> None:
    """Raises `UsageError` for a port that no agent has reported in the window."""
    query = LinksQuery(window_ns=window_ns)
    ports = ask(target, query, until=lambda answer: bool(answer.ports)).ports
    known = {port.nic for port in ports}
    if nic not in known:
        hint = did_you_mean(nic, known)
        raise UsageError(
            f"no port {nic!r} is known{hint}; `syntony links list` shows those that are"
        )


@command.command()
@fleet_options
def watch(target: FleetTarget, as_json: bool) -> None:
    """Print events of ports live, until interrupted: one line or JSON object per event.

    \b
    Example:
      syntony links watch & syntony lab fault flap h0/rail0
    """
    seen: set[LinkEventRow] = set()
    first = True
    while True:
        query = LinkHistoryQuery(window_ns=60 * S)
        answer = ask(target, query)
        for event in answer.events:
            if event in seen or first:
                continue
            line = msgspec.json.encode(event).decode() if as_json else _event_line(event)
            click.echo(line)
        if first:
            messages.print("waiting for events of ports; Ctrl-C ends it")
        seen, first = set(answer.events), False
        time.sleep(_WATCH_S)


@command.command()
@click.option("--root", default="/", help="Directory with sys and proc.",
              type=click.Path(file_okay=False, path_type=Path))  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Also show virtual ports.")
@json_option
@click.pass_context
def show(context: click.Context, root: Path, everything: bool, as_json: bool) -> None:
    """Show this host's ports and non-zero counters; read-only, needs no agent and no privilege.

    Exit status: 0 all compute ports are active, 2 one is down, 3 one is unknown or none is there.

    \b
    Example:
      syntony lab exec h0 -- syntony links show --all
    """
    from syntony.io.link_files import LinkFiles

    if not root.is_dir():
        raise InputError("no-such-tree", f"{root} is not a directory")
    with LinkFiles(root) as files:
        ports = files.read()
    if not ports:
        raise UsageError(f"no ports below {root / 'sys/class'}; give the root of a tree with /sys")
    shown = [port for port in ports if everything or port.role is not LinkRole.VIRTUAL]
    if as_json:
        print_json([port._asdict() | {"rate": port.rate and port.rate._asdict()} for port in shown])
    else:
        console.print(_local_table(shown))
        for line in _notable(shown):
            console.print(line, soft_wrap=True)
        if hidden := len(ports) - len(shown):
            messages.print(f"virtual ports that are not shown: {hidden} (--all)")
    context.exit(_local_verdict(ports))


@command.command()
@json_option
@click.option("--markdown", is_flag=True, help="Print the table of docs/reference.")
def counters(as_json: bool, markdown: bool) -> None:
    """List every counter: where it is read, what it means, where to look.

    \b
    Example:
      syntony links counters
    """
    if as_json:
        print_json([row._asdict() for row in TABLE])
        return
    if markdown:
        click.echo(counter_markdown(), nl=False)
        return
    table = plain_table("counter", "source", "kind", "look at", "meaning")
    for row in TABLE:
        table.add_row(row.name, row.source, row.kind, row.suspect, row.meaning)
    console.print(table)


def counter_markdown() -> str:
    """The table of docs/reference/links.md."""
    lines = [
        "| counter | source | sign of | look at | stops at | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for row in TABLE:
        alone = "" if not row.quiet else "; no alert by itself"
        cells = (
            f"`{row.name}`", row.source, row.kind, row.suspect, row.ceiling or "",
            f"{row.meaning} ({row.unit}){alone}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _plain(port: LinkStatus, now_ns: int) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(port)
    return fields | {"stale": now_ns - port.seen_ns > STALE_NS}


def _verdict(ports: Sequence[LinkStatus], now_ns: int) -> int:
    compute = [port for port in ports if port.role == LinkRole.COMPUTE]
    fresh = [port for port in compute if now_ns - port.seen_ns <= STALE_NS]
    down = [port for port in fresh if port.state not in (PortState.ACTIVE, PortState.UNKNOWN)]
    if down:
        return _CRITICAL
    if len(fresh) < len(compute) or not compute:
        return _UNKNOWN
    if any(port.state == PortState.UNKNOWN for port in fresh):
        return _UNKNOWN
    return _WARNING if any(port.flaps for port in fresh) else _GOOD


def _local_verdict(ports: Sequence[PortSnapshot]) -> int:
    states = {port.state for port in ports if port.role is LinkRole.COMPUTE}
    if states - {PortState.ACTIVE, PortState.UNKNOWN}:
        return _CRITICAL
    return _GOOD if states == {PortState.ACTIVE} else _UNKNOWN


def _fleet_table(ports: Iterable[LinkStatus], now_ns: int, window: str) -> lazy_rich.Table:
    table = plain_table(
        "port", "role", "state", "speed", "sends", "receives", f"flaps/{window}", "last flap",
        "module",
    )  # fmt: skip
    for port in ports:
        age_ns = now_ns - port.seen_ns
        stale = age_ns > STALE_NS
        state = lazy_rich.Text(port.state, style="dim" if stale else _style(port.state))
        if stale:
            state.append(f" ({_ago(age_ns)} ago)")
        table.add_row(
            port.nic,
            port.role,
            state,
            _speed(port.gbps),
            *("–" if bps is None else format_bps(bps) for bps in (port.tx_bps, port.rx_bps)),
            lazy_rich.Text(str(port.flaps), style="bold red" if port.flaps else ""),
            "–" if port.last_flap_ns is None else f"{_ago(now_ns - port.last_flap_ns)} ago",
            _module(port),
        )
    return table


def _local_table(ports: Iterable[PortSnapshot]) -> lazy_rich.Table:
    table = plain_table(
        "port", "rdma", "layer", "role", "driver", "state", "speed", "carrier losses"
    )
    for port in ports:
        losses = [_read(key, port.counters[key]) for key in _CARRIER_LOSSES if key in port.counters]
        table.add_row(
            port.name,
            port.rdma or "–",
            port.link_layer,
            port.role,
            port.driver or "–",
            lazy_rich.Text(port.state, style=_style(port.state)),
            _speed(port.rate.gbps if port.rate else None),
            losses[0] if losses else "unknown",
        )
    return table


def _notable(ports: Sequence[PortSnapshot]) -> Iterable[lazy_rich.Text]:
    """Problems: no compute port, bad states with their remedy, and counters that are not zero."""
    if not any(port.role is LinkRole.COMPUTE for port in ports):
        yield lazy_rich.Text("no compute port: no NIC here has an RDMA device", style="yellow")
    for port in ports:
        state = PortState(port.state)
        if REMEDIES[state] and port.role is LinkRole.COMPUTE:
            yield lazy_rich.Text(f"{port.name} is {state}: {REMEDIES[state]}", style="red")
    found: dict[tuple[str, int | None], list[str]] = {}
    for port in ports:
        for key, value in port.counters.items():
            if value != 0 and not EVERY[key].quiet and key not in _CARRIER_LOSSES:
                found.setdefault((key, value), []).append(port.name)
    for (key, value), names in sorted(found.items(), key=lambda item: item[0][0]):
        yield _counter_line(EVERY[key], value, names)


def _read(key: str, value: int | None) -> str:
    """A count for display: one at its maximum is only a lower bound."""
    if value is None:
        return "unknown"
    ceiling = EVERY[key].ceiling
    return f"at least {value}" if ceiling is not None and value >= ceiling else str(value)


def _counter_line(counter: LinkCounter, value: int | None, names: Sequence[str]) -> lazy_rich.Text:
    who = names[0] if len(names) == 1 else f"{len(names)} ports ({', '.join(names)})"
    if value is None:
        return lazy_rich.Text(f"{counter.name} cannot be read on {who}", style="yellow")
    least = "at least " if counter.ceiling is not None and value >= counter.ceiling else ""
    where = "" if counter.suspect is Side.NONE else f"; look at the {counter.suspect}"
    return lazy_rich.Text(f"{counter.name} {least}{value} on {who}: {counter.meaning}{where}")


def _event_table(events: Iterable[LinkEventRow], now_ns: int) -> lazy_rich.Table:
    table = plain_table("when", "port", "what", "change", "detail", "do")
    for event in events:
        table.add_row(
            f"{_ago(now_ns - event.ts_ns)} ago",
            event.nic,
            event.kind,
            _change(event),
            event.detail,
            event.remedy,
        )
    return table


def _counter_table(rows: Iterable[LinkCounterRow], now_ns: int) -> lazy_rich.Table:
    table = plain_table("port", "counter", "increase", "last", "meaning", "look at")
    for row in rows:
        counter = EVERY.get(row.counter)
        unsure = {CounterOutcome.SATURATED: "≥ ", CounterOutcome.UNKNOWN: "? "}.get(
            CounterOutcome(row.reading), ""
        )
        table.add_row(
            row.nic,
            row.counter.partition(":")[2],
            f"{unsure}{row.increase}",
            f"{_ago(now_ns - row.last_ns)} ago",
            counter.meaning if counter else "",
            counter.suspect if counter else "",
        )
    return table


def _event_line(event: LinkEventRow) -> str:
    parts = (event.nic, event.kind, _change(event), event.detail, event.remedy)
    return " | ".join(part for part in parts if part)


def _change(event: LinkEventRow) -> str:
    return f"{event.before} → {event.after}" if event.before or event.after else ""


def _style(state: str) -> str:
    return _STYLES.get(PortState(state), "bold red")


def _speed(gbps: float | None) -> str:
    return f"{gbps:g} Gb/s" if gbps else "–"


def _module(port: LinkStatus) -> str:
    parts = []
    if port.temperature_c is not None:
        parts.append(f"{port.temperature_c:.0f} °C")
    if port.rx_dbm is not None:
        parts.append(f"{port.rx_dbm:.1f} dBm")
    return " ".join(parts) or "–"


def _ago(age_ns: int) -> str:
    """An age in seconds, minutes, hours or days."""
    for name, unit_ns in (("d", DAY_NS), ("h", HOUR_NS), ("min", 60 * S)):
        if age_ns >= 2 * unit_ns:
            return f"{age_ns // unit_ns} {name}"
    return f"{max(0, age_ns) // S} s"

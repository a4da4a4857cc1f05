"""Prints a lab's state for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from syntony.cli.output import console
from syntony.lab.plan import LinkKind
from syntony.lab.rates import format_rate
from syntony.model import format_ns
from syntony.view import lazy_rich
from syntony.view.tables import duration

if TYPE_CHECKING:
    from syntony.lab.messages import DaemonStatus, FaultStatus, LabLink, LabStatus
    from syntony.wire.clocks import ClockTruth


def size(status: LabStatus) -> str:
    """``8 hosts × 2 rails, 4 leaves, 2 spines, 200mbit``."""
    spec = status.spec
    return (
        f"{spec.hosts} hosts × {spec.rails} rails, {len(status.leaves)} leaves, "
        f"{spec.spines} spines, {format_rate(spec.rate_bps)}"
    )


def fault_line(fault: FaultStatus) -> str:
    options = "".join(f" --{name} {value}" for name, value in fault.options.items())
    left = "until cleared" if fault.left_ns is None else f"{format_ns(fault.left_ns)} left"
    return f"fault {fault.id}: {fault.kind} {fault.target}{options} ({left})"


def show_status(status: LabStatus) -> None:
    """Topology, links, faults and daemons."""
    console.print(f"[bold]{status.name}[/]  {size(status)}  up {format_ns(status.age_ns)}")
    links = {link.name: link for link in status.links}
    console.print(_matrix("leaf", status.leaves, status.spines, links))
    rails = [f"rail{r}" for r in range(status.spec.rails)]
    console.print(_matrix("host", status.hosts, [*rails, LinkKind.MGMT + "0"], links))
    if status.avoided:
        console.print(f"routes avoid: {', '.join(status.avoided)}")
    for fault in status.faults:
        console.print(f"[yellow]{fault_line(fault)}[/]")
    if status.daemons:
        console.print(_daemons(status.daemons))


def _matrix(
    corner: str, rows: Iterable[str], columns: Iterable[str], links: dict[str, LabLink]
) -> lazy_rich.Table:
    table = lazy_rich.Table(box=None, pad_edge=False)
    table.add_column(corner)
    names = list(columns)
    for name in names:
        table.add_column(name)
    for row in rows:
        table.add_row(row, *(_state(links[f"{row}/{name}"]) for name in names))
    return table


def _state(link: LabLink) -> str:
    return "[green]up[/]" if link.up else "[red]down[/]"


def _daemons(daemons: Iterable[DaemonStatus]) -> lazy_rich.Table:
    table = lazy_rich.Table(box=None, pad_edge=False)
    for title in ("daemon", "state", "pid", "restarts", "cpu"):
        table.add_column(title)
    for daemon in daemons:
        pid = "–" if daemon.pid is None else str(daemon.pid)
        cpu = format_ns(daemon.cpu_ns)
        table.add_row(daemon.name, daemon.state, pid, str(daemon.restarts), cpu)
    return table


def show_truth(truths: Iterable[ClockTruth]) -> None:
    """One row per host; an estimate that does not exist is a dash."""
    table = lazy_rich.Table(box=None, pad_edge=False)
    for title in ("host", "offset", "drift ppb", "error", "1 σ claimed", "bound ±", "state"):
        table.add_column(title, justify="left" if title in {"host", "state"} else "right")
    for t in truths:
        table.add_row(
            t.host,
            format_ns(t.offset_ns),
            f"{t.drift_ppb:.1f}",
            duration(t.error_ns),
            duration(t.clk_err_ns),
            duration(t.bound_ns),
            "–" if t.state is None else str(t.state),
        )
    console.print(table)

"""The clock status for operators: worst first, one line each, one verdict for all. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from syntony.model import ClockState, Timeline, format_ns
from syntony.model.names import natural
from syntony.view import lazy_rich
from syntony.view.tables import duration, plain_table

BADNESS = (
    ClockState.SYNCHRONIZED,
    ClockState.HOLDOVER,
    ClockState.DISRUPTED,
    ClockState.UNKNOWN,
)
"""From best to worst."""
STYLES = {
    ClockState.SYNCHRONIZED: "green",
    ClockState.HOLDOVER: "yellow",
    ClockState.DISRUPTED: "red",
    ClockState.UNKNOWN: "magenta",
}
NEVER_SEEN = "no peer has measured it yet"


class ClockReading(msgspec.Struct, frozen=True, kw_only=True):
    """One clock at the newest instant the fleet has measured."""

    node: str
    state: ClockState
    offset_ns: float | None = None
    """fleet = local + offset."""
    drift_ppb: float | None = None
    sigma_ns: float | None = None
    bound_ns: float | None = None
    """None: unbounded."""
    island: str = ""
    reason: str


class ClockVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of a check, with a Nagios plugin's exit code: 0 to 3."""

    code: int
    text: str


def newest_ns(lines: Sequence[Timeline]) -> int:
    """The newest instant any clock has been solved for, fleet time; 0 without clocks."""
    known = [line for line in lines if line.state is not ClockState.UNKNOWN]
    return max((line.to_fleet_ns(line.ref_ns) for line in known), default=0)


def readings(lines: Sequence[Timeline], expected: Collection[str] = ()) -> list[ClockReading]:
    """Every clock, worst first; `expected` ones without a timeline are UNKNOWN."""
    fleet_ns = newest_ns(lines)
    found = [_reading(line, fleet_ns) for line in lines]
    missing = set(expected) - {line.node for line in lines}
    found += [
        ClockReading(node=node, state=ClockState.UNKNOWN, reason=NEVER_SEEN) for node in missing
    ]
    return sorted(found, key=_worst_first)


def _reading(line: Timeline, fleet_ns: int) -> ClockReading:
    named = ClockReading(
        node=line.node, state=line.state, island=line.component, reason=line.reason
    )
    if line.state is ClockState.UNKNOWN:
        return named
    local_ns = line.to_local_ns(fleet_ns)
    return msgspec.structs.replace(
        named,
        offset_ns=line.shift_ns(local_ns),
        drift_ppb=line.drift_ppb,
        sigma_ns=line.sigma_ns,
        bound_ns=line.bound_ns(local_ns),
    )


def _worst_first(reading: ClockReading) -> tuple[object, ...]:
    bound_ns = math.inf if reading.bound_ns is None else reading.bound_ns
    return -BADNESS.index(reading.state), -bound_ns, natural(reading.node)


def status_table(found: Sequence[ClockReading]) -> lazy_rich.Table:
    """One line per clock; islands are shown when there are several."""
    islands = _islands(found) > 1
    table = plain_table("clock", "state", ">bound ±", ">1-sigma", ">offset", ">drift ppb")
    if islands:
        table.add_column("island")
    table.add_column("why", style="dim")
    for reading in found:
        table.add_row(
            reading.node,
            lazy_rich.Text(reading.state, style=STYLES[reading.state]),
            duration(reading.bound_ns),
            duration(reading.sigma_ns),
            duration(reading.offset_ns),
            "–" if reading.drift_ppb is None else f"{reading.drift_ppb:+,.1f}",
            *([reading.island] if islands else []),
            reading.reason,
        )
    return table


def verdict(
    found: Sequence[ClockReading], warn_ns: float = math.inf, critical_ns: float = math.inf
) -> ClockVerdict:
    """One line for people and monitoring, with performance data behind the bar.

    OK: all synchronized and bounded below `warn_ns`. WARNING: some in holdover, or bounded above
    `warn_ns`, or several islands. CRITICAL: some disrupted, or above `critical_ns`. UNKNOWN: some
    clock, or all, cannot be reported. CRITICAL takes precedence over UNKNOWN.
    """
    counts = Counter(reading.state for reading in found)
    bounds = {reading.node: reading.bound_ns for reading in found if reading.bound_ns is not None}
    worst = max(bounds, key=lambda node: bounds[node], default="")
    worst_ns = bounds.get(worst, math.inf)
    islands = _islands(found)
    code = _code(counts, worst_ns if bounds else 0.0, islands, warn_ns, critical_ns)
    word = ("OK", "WARNING", "CRITICAL", "UNKNOWN")[code]
    states = ", ".join(f"{counts[state]} {state}" for state in BADNESS if counts[state])
    text = f"CLOCK {word} - {states or 'no clock is known'}"
    if islands > 1:
        text += f" on {islands} islands"
    if bounds:
        given = ("" if math.isinf(limit) else f"{limit:.0f}" for limit in (warn_ns, critical_ns))
        limits = ";".join(given)
        text += f"; worst bound {format_ns(worst_ns)} ({worst}) | bound={worst_ns:.0f}ns;{limits}"
    return ClockVerdict(code=code, text=text)


def _islands(found: Sequence[ClockReading]) -> int:
    """Groups of clocks that no measurement connects; a clock in holdover stays in its last one."""
    reported = {reading.island for reading in found if reading.state is ClockState.SYNCHRONIZED}
    return len(reported - {""})


def _code(
    counts: Counter[ClockState], worst_ns: float, islands: int, warn_ns: float, critical_ns: float
) -> int:
    if counts[ClockState.DISRUPTED] or worst_ns > critical_ns:
        return 2
    if counts[ClockState.UNKNOWN] or not counts:
        return 3
    return int(bool(counts[ClockState.HOLDOVER]) or worst_ns > warn_ns or islands > 1)


def plain_line(reading: ClockReading, at: str) -> str:
    drift = "–" if reading.drift_ppb is None else f"{reading.drift_ppb:+.1f}"
    why = f"  {reading.reason}" if reading.reason else ""
    return (
        f"{at} {reading.node} {reading.state} bound ±{duration(reading.bound_ns)} "
        f"offset {duration(reading.offset_ns)} drift {drift} ppb{why}"
    )

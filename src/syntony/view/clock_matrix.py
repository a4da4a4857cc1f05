"""The offset between every two clocks of a fleet, with its bound. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from syntony.model import ClockState, Timeline, format_ns
from syntony.model.names import natural
from syntony.view import lazy_rich
from syntony.view.clocks import newest_ns
from syntony.view.tables import duration, plain_table

_CELL = 9
MOST_PAIRS = 12
"""How many of the least certain pairs are listed if a fleet is too large for a table."""


class ClockPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two clocks at one instant of fleet time."""

    a: str
    b: str
    offset_ns: int | None
    """b's reading minus a's; None where the two cannot be compared."""
    bound_ns: float | None
    """Bound on its error: the sum of both clocks' bounds, ignoring common errors."""


def clock_pairs(lines: Sequence[Timeline]) -> list[ClockPair]:
    """Every pair once, at the newest measured instant; None: unknown, or on another island."""
    fleet_ns = newest_ns(lines)
    ordered = sorted(lines, key=lambda line: natural(line.node))
    known = {
        line.node: line.to_local_ns(fleet_ns)
        for line in ordered
        if line.state is not ClockState.UNKNOWN
    }
    bounds = {line.node: line.bound_ns(known[line.node]) for line in ordered if line.node in known}
    pairs = []
    for place, a in enumerate(ordered):
        for b in ordered[place + 1 :]:
            comparable = a.node in known and b.node in known and a.component == b.component
            pairs.append(
                ClockPair(
                    a=a.node,
                    b=b.node,
                    offset_ns=known[b.node] - known[a.node] if comparable else None,
                    bound_ns=bounds[a.node] + bounds[b.node] if comparable else None,
                )
            )
    return pairs


def clock_matrix(pairs: Sequence[ClockPair], *, width: int) -> lazy_rich.RenderableType:
    """Above the diagonal the offset, column minus row; below it the bound. Too wide: a summary."""
    names = sorted({end for pair in pairs for end in (pair.a, pair.b)}, key=natural)
    if not names:
        return lazy_rich.Text("fewer than two clocks are known")
    label = max(map(len, names)) + 1
    if label + (_CELL + 1) * len(names) > width:
        return pair_summary(pairs)
    table = lazy_rich.Table(box=None, pad_edge=False, header_style="dim", padding=(0, 0, 0, 1))
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right", min_width=_CELL)
    at = {(pair.a, pair.b): pair for pair in pairs}
    for row in names:
        cells = [_cell(at, row, column) for column in names]
        table.add_row(lazy_rich.Text(row, style="dim"), *cells)
    legend = lazy_rich.Text(
        "above the diagonal: column's clock minus row's; below: ± bound of that; – not comparable",
        style="dim",
    )
    return lazy_rich.Group(table, legend)


def _cell(at: dict[tuple[str, str], ClockPair], row: str, column: str) -> lazy_rich.Text:
    if (row, column) in at:
        offset_ns = at[row, column].offset_ns
        return lazy_rich.Text("–" if offset_ns is None else format_ns(offset_ns))
    if (column, row) in at:
        return lazy_rich.Text(f"±{duration(at[column, row].bound_ns)}", style="cyan")
    return lazy_rich.Text("·", style="dim")


def pair_summary(pairs: Sequence[ClockPair]) -> lazy_rich.RenderableType:
    """The spread of a large fleet and its least certain pairs."""
    compared = [pair for pair in pairs if pair.bound_ns is not None]
    bounds = sorted(pair.bound_ns or 0.0 for pair in compared)
    clocks = len({end for pair in pairs for end in (pair.a, pair.b)})
    lines = [
        lazy_rich.Text(f"{clocks} clocks, {len(pairs)} pairs, {len(compared)} of them comparable")
    ]
    if bounds:
        middle, high = bounds[len(bounds) // 2], bounds[int(len(bounds) * 0.99)]
        lines.append(
            lazy_rich.Text(
                f"bound of a pair: median {format_ns(middle)}, p99 {format_ns(high)}, "
                f"worst {format_ns(bounds[-1])}; the least certain:"
            )
        )
    table = plain_table("a", "b", ">b minus a", ">bound ±")
    for pair in sorted(compared, key=lambda pair: -(pair.bound_ns or 0.0))[:MOST_PAIRS]:
        table.add_row(pair.a, pair.b, duration(pair.offset_ns), duration(pair.bound_ns))
    hint = lazy_rich.Text(
        "name clocks to see them pair by pair: syntony clock matrix h0 h1 …", style="dim"
    )
    return lazy_rich.Group(*lines, table, hint)

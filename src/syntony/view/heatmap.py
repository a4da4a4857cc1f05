"""The one-way-delay matrix as a heat map: one cell per direction of a NIC pair."""

from __future__ import annotations

from collections.abc import Sequence

from syntony.model.names import natural
from syntony.view import lazy_rich
from syntony.view.tables import plain_table
from syntony.wire.probes import MatrixCell

DARK_LOSS = 0.5
"""A direction that loses more than this share of its probes is shown as dark."""
_SHADES = ("#1a9850", "#66bd63", "#a6d96a", "#fee08b", "#fdae61", "#f46d43", "#d73027")
_CELL = 5
MAX_BLOCKS = 3
"""Sixteen NICs of a lab fit into 60 columns in two."""
LOST = "lost"
_NOT_PROBED = "·"
_NOT_MEASURED = "–"
_CLOCKS_NOT_KNOWN = "?"
MEANINGS = {
    "30%": "lost, delay not known",
    _NOT_MEASURED: "not measured: the other direction is lost, or nothing was sent",
    _NOT_PROBED: "not probed",
    _CLOCKS_NOT_KNOWN: "clocks not known",
}
"""Signs of directions without a delay; the console has the same (`web/src/delay/matrix.ts`)."""


def is_dark(cell: MatrixCell) -> bool:
    """Whether (almost) nothing arrives in this direction."""
    return cell.sent > 0 and cell.lost > DARK_LOSS * cell.sent


def heatmap(cells: Sequence[MatrixCell], *, width: int) -> lazy_rich.RenderableType:
    """Rows send, columns receive; median one-way delay in µs, shaded between the extremes.

    Args:
        width: characters available; a matrix too wide for them is divided into up to `MAX_BLOCKS`
            blocks of columns, below each other; a wider one is listed instead.
    """
    names = sorted({cell.src for cell in cells} | {cell.dst for cell in cells}, key=natural)
    if not names:
        return lazy_rich.Text("no probes yet")
    label = max(len(name) for name in names) + 1
    blocks = -(-len(names) // max(1, (width - label) // _CELL))
    if blocks > MAX_BLOCKS or label + _CELL > width:
        return listing(cells)
    scale = _scale(cells)
    at = {(cell.src, cell.dst): cell for cell in cells}
    size = -(-len(names) // blocks)
    lines = []
    for first in range(0, len(names), size):
        columns = names[first : first + size]
        head = "".join(f"{_short(name):>{_CELL}}" for name in columns)
        lines.append(lazy_rich.Text(" " * label + head, style="dim"))
        for src in names:
            line = lazy_rich.Text(f"{src:<{label}}")
            for dst in columns:
                line.append_text(_cell(at.get((src, dst)), at.get((dst, src)), scale))
            lines.append(line)
    return lazy_rich.Group(*lines, _legend(scale))


def listing(cells: Sequence[MatrixCell]) -> lazy_rich.Table:
    """The same as a table, one line per direction."""
    table = plain_table(
        "from", "to", ">paths", ">sent", ">lost", ">min µs", ">p50 µs", ">p99 µs", ">± clock ns",
        ">own stall",
    )  # fmt: skip
    for cell in sorted(cells, key=lambda cell: (natural(cell.src), natural(cell.dst))):
        delays = (cell.owd_min_ns, cell.owd_p50_ns, cell.owd_p99_ns)
        table.add_row(
            cell.src,
            cell.dst,
            str(cell.paths),
            str(cell.sent),
            lazy_rich.Text(str(cell.lost), style="bold red" if cell.lost else ""),
            *("–" if delay is None else f"{delay / 1e3:.2f}" for delay in delays),
            "–" if cell.clk_err_ns is None else str(cell.clk_err_ns),
            str(cell.dropped),
        )
    return table


def _scale(cells: Sequence[MatrixCell]) -> tuple[float, float]:
    delays = [cell.owd_p50_ns for cell in cells if cell.owd_p50_ns is not None]
    return (min(delays), max(delays)) if delays else (0.0, 0.0)


def _cell(
    cell: MatrixCell | None, back: MatrixCell | None, scale: tuple[float, float]
) -> lazy_rich.Text:
    """One direction; `back`: the other one."""
    if cell is None:
        return lazy_rich.Text(f"{_NOT_PROBED:>{_CELL}}", style="dim")
    if is_dark(cell):
        return lazy_rich.Text(f"{LOST:>{_CELL}}", style="bold white on red")
    if cell.owd_p50_ns is None:
        # A delay needs a stamp of either end, and the far one's comes with the reply.
        if not cell.sent or (back is not None and is_dark(back)):
            return lazy_rich.Text(f"{_NOT_MEASURED:>{_CELL}}", style="yellow")
        if cell.lost:
            share = f"{cell.lost / cell.sent:.0%}"
            return lazy_rich.Text(f"{share:>{_CELL}}", style="bold red")
        return lazy_rich.Text(f"{_CLOCKS_NOT_KNOWN:>{_CELL}}", style="yellow")
    style = _shade(cell.owd_p50_ns, scale) + (" underline" if cell.lost else "")
    return lazy_rich.Text(f"{_microseconds(cell.owd_p50_ns):>{_CELL}}", style=style)


def _shade(owd_ns: float, scale: tuple[float, float]) -> str:
    low, high = scale
    place = (owd_ns - low) / (high - low) if high > low else 0.0
    return _SHADES[min(int(place * len(_SHADES)), len(_SHADES) - 1)]


def _microseconds(owd_ns: float) -> str:
    micros = owd_ns / 1e3
    # Five characters touch the next column.
    if abs(micros) < 99.95:
        return f"{micros:.1f}"
    if abs(micros) < 9_999.5:
        return f"{micros:.0f}"
    return f"{micros / 1e3:.0f}ms" if abs(micros) < 99_500 else f"{micros / 1e6:.1f}s"


def _legend(scale: tuple[float, float]) -> lazy_rich.Text:
    low, high = scale
    legend = lazy_rich.Text("one-way delay, median, µs:  ", style="dim")
    legend.append(_microseconds(low), style=_SHADES[0])
    for shade in _SHADES:
        legend.append(" ■", style=shade)
    legend.append(f" {_microseconds(high)}", style=_SHADES[-1])
    legend.append("   rows send, columns receive\n", style="dim")
    legend.append(LOST, style="bold white on red")
    legend.append(" more than half   ", style="dim")
    legend.append("12.3", style="underline")
    legend.append(" some lost   ", style="dim")
    for mark, meaning in MEANINGS.items():
        legend.append(mark, style="bold red" if mark.endswith("%") else "dim")
        legend.append(f" {meaning}   ", style="dim")
    return legend


def _short(name: str) -> str:
    """``h3/rail0`` → ``3/0``: columns are narrow and the rows give the full names."""
    host, _, nic = name.partition("/")
    digits = "".join(filter(str.isdigit, host)), "".join(filter(str.isdigit, nic))
    return "/".join(digits) if all(digits) else name[: _CELL - 1]

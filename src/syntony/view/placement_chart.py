"""How policies come to rest: what flows get, epoch by epoch. As PNG or SVG.

Needs matplotlib (``pip install 'syntony[report]'``), imported when drawing.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "ecmp": "#8d99ae", "dlb": "#c97b63", "redraw": "#d1495b", "load-aware": "#edae49",
    "syntony": "#00798c",
}  # fmt: skip
_INK, _FAINT = "#22303c", "#5c6b7a"


def render(
    title: str, subtitle: str, lines: Mapping[str, Sequence[float]], kind: str = "svg"
) -> bytes:
    """One line for each policy.

    Args:
        title: what the picture says.
        subtitle: of what it is made.
        lines: policy to the mean part of the optimum before each epoch.
        kind: ``svg`` or ``png``.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "syntony", "font.size": 10}
    with rc_context(style):
        figure = Figure(figsize=(9.2, 4.6), facecolor="white")
        axes = figure.add_axes((0.075, 0.12, 0.76, 0.68))
        _draw(axes, lines)
        figure.text(0.075, 0.93, title, fontsize=13, fontweight="bold", color=_INK)
        figure.text(0.075, 0.865, subtitle, fontsize=9, color=_FAINT)
        out = io.BytesIO()
        options: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": 160}
        figure.savefig(out, format=kind, **options)
        return out.getvalue()


def _draw(axes: Axes, lines: Mapping[str, Sequence[float]]) -> None:
    last = max(len(values) for values in lines.values()) - 1
    placed: list[float] = []
    for name, values in sorted(lines.items(), key=lambda item: item[1][-1]):
        colour = COLOURS.get(name, _INK)
        whole = [*values, *[values[-1]] * (last + 1 - len(values))]
        axes.plot(range(last + 1), whole, color=colour, lw=2)
        # Labels of lines that end together stand above each other.
        at = max(whole[-1], placed[-1] + 0.045 if placed else 0)
        placed.append(at)
        axes.annotate(
            f"{name} {values[-1]:.3f}", (last, at), xytext=(6, 0), textcoords="offset points",
            color=colour, va="center", annotation_clip=False,
        )  # fmt: skip
    axes.set_xlim(0, last)
    axes.set_ylim(min(min(values) for values in lines.values()) - 0.05, 1.02)
    axes.set_xlabel("epochs", color=_FAINT)
    axes.set_ylabel("mean rate, part of the optimum", color=_FAINT)
    axes.grid(axis="y", color="#e9edf2")
    axes.set_axisbelow(True)
    axes.tick_params(colors=_FAINT, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color("#c5cdd8")

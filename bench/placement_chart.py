"""How policies come to rest: what flows get, epoch by epoch. As PNG or SVG.

Needs matplotlib (``pip install 'syntony[report]'``), imported when drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from syntony.view.drill_charts import render_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "ecmp": "#8d99ae", "dlb": "#c97b63", "redraw": "#d1495b", "load-aware": "#edae49",
    "syntony": "#00798c",
}  # fmt: skip
_SIZE_IN = (9.2, 4.6)
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

    Raises:
        MissingError: matplotlib is not installed.
    """

    def draw(figure: Figure) -> None:
        _draw(figure.add_axes((0.075, 0.12, 0.76, 0.68)), lines)
        figure.text(0.075, 0.93, title, fontsize=13, fontweight="bold", color=_INK)
        figure.text(0.075, 0.865, subtitle, fontsize=9, color=_FAINT)

    return render_figure(_SIZE_IN, draw, kind)


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
    style_axes(axes)

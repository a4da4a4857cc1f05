"""In-band delay of a job's flows over time, the slow one highlighted; as PNG or SVG.

Needs matplotlib (``pip install 'syntony[report]'``), imported when drawing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from syntony.view.throughput_chart import COLOURS, FORMATS, render_figure, style_axes

__all__ = ["FORMATS", "SlowJobChart", "SlowJobCurve", "render"]
_SIZE_IN = (10.0, 5.0)
_INK, _FAINT = "#22303c", "#8d99ae"


class SlowJobCurve(msgspec.Struct, frozen=True, kw_only=True):
    """One flow; NaN where nothing was recorded."""

    label: str
    slow: bool
    at_s: tuple[float, ...]
    delay_ms: tuple[float, ...]


class SlowJobChart(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a chart; time is in seconds since the flow was made slow."""

    title: str
    subtitle: str
    curves: tuple[SlowJobCurve, ...]
    marks: tuple[tuple[float, str], ...]


def render(chart: SlowJobChart, kind: str) -> bytes:
    """The chart as one file of `FORMATS`.

    Raises:
        MissingError: matplotlib is not installed.
    """
    return render_figure(_SIZE_IN, lambda figure: _draw(figure, chart), kind)


def _draw(figure: Any, chart: SlowJobChart) -> None:
    axes = figure.add_axes((0.085, 0.115, 0.89, 0.7))
    for curve in sorted(chart.curves, key=lambda each: each.slow):
        colour, width = (COLOURS[1], 2.2) if curve.slow else (_FAINT, 1.0)
        axes.plot(curve.at_s, curve.delay_ms, color=colour, lw=width,
                  label=curve.label if curve.slow else None)  # fmt: skip
    axes.set_yscale("log")
    axes.margins(x=0.06)
    axes.set_ylabel("in-band delay, ms", color=_FAINT)
    axes.set_xlabel("seconds since the flow was made slow", color=_FAINT)
    style_axes(axes)
    top = axes.get_ylim()[1]
    for number, (at_s, text) in enumerate(chart.marks):
        axes.axvline(at_s, color=_INK, lw=0.8, ls=(0, (4, 3)))
        axes.annotate(text, (at_s, top), xytext=(4, -4 - 13 * number), va="top",
                      textcoords="offset points", color=_INK, fontsize=9)  # fmt: skip
    axes.legend(loc="upper left", frameon=False, fontsize=8)
    figure.text(0.085, 0.93, chart.title, fontsize=14, fontweight="bold", color=_INK)
    figure.text(0.085, 0.875, chart.subtitle, fontsize=9.5, color=_FAINT)

"""Throughput over time, one line per run, the fault between them: as PNG or SVG.

Needs matplotlib (``pip install 'syntony[report]'``), imported when drawing.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec

from syntony.errors import MissingError

FORMATS = ("png", "svg")
_DPI = 160
INK, FAINT = "#22303c", "#8d99ae"
COLOURS = ("#8d99ae", "#d1495b", "#00798c", "#edae49")
"""Colours as in the clock report: grey for the run without failure, red for today's behaviour, teal
for Syntony."""
_BELOW, _ABOVE = -0.02, 1.22
"""Limits of the y axis relative to the highest throughput: a line at zero stays visible, labels
have room."""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A picture below a title: base class of what charts say."""

    size_in: ClassVar[tuple[float, float]]
    title_at: ClassVar[tuple[float, float, float]]
    """Left edge, height of the title, height of the subtitle; shares of the figure."""
    title: str
    subtitle: str

    def draw(self, figure: Any) -> None:
        """Put what is below the title on a figure."""
        raise NotImplementedError

    def render(self, kind: str) -> bytes:
        """The picture as one file of `FORMATS`. Raises `MissingError`: matplotlib is not
        installed."""
        return render_figure(self.size_in, self._draw, kind)

    def _draw(self, figure: Any) -> None:
        left, title, subtitle = self.title_at
        figure.text(left, title, self.title, fontsize=14, fontweight="bold", color=INK)
        figure.text(left, subtitle, self.subtitle, fontsize=9.5, color=FAINT)
        self.draw(figure)


class ThroughputLine(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    note: str
    """Its verdict, under the label in the legend."""
    at_s: tuple[float, ...]
    """Middles of bins, since the fault."""
    rate: tuple[float, ...]
    ends_s: float | None = None
    """When the job died or was killed, since the fault; None: it finished."""


class ThroughputChart(Chart, frozen=True, kw_only=True):
    size_in: ClassVar = (10.0, 5.0)
    title_at: ClassVar = (0.075, 0.94, 0.885)
    unit: str
    lines: tuple[ThroughputLine, ...]
    faults_s: tuple[tuple[float, float], ...]
    """Start and end of each fault, since the first."""
    fault_label: str

    def draw(self, figure: Any) -> None:
        axes = figure.add_axes((0.075, 0.115, 0.9, 0.68))
        top = max((max(line.rate, default=0.0) for line in self.lines), default=0.0) or 1.0
        axes.set_ylim(top * _BELOW, top * _ABOVE)
        axes.set_xlim(*_span(self.lines))
        _style(axes, self)
        for began_s, ended_s in self.faults_s:
            axes.axvspan(began_s, ended_s, color=INK, alpha=0.07, lw=0)
        if self.faults_s:
            _mark(axes, self.faults_s[0][0], self.fault_label, top * _ABOVE)
            _mark(axes, self.faults_s[-1][1], "healed", top * _ABOVE)
        for line, colour in zip(self.lines, COLOURS, strict=False):
            _line(axes, line, colour)
        _legend(figure, self.lines)


def check() -> None:
    """Raises `MissingError`: matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingError("charts need matplotlib; install it with: pip install 'syntony[report]'")


def render_figure(size_in: tuple[float, float], draw: Callable[[Any], None], kind: str) -> bytes:
    """What `draw` puts on a figure of so many inches, as one file of `FORMATS`. Raises
    `MissingError`: matplotlib is not installed."""
    check()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Text stays text in the SVG, and the same chart gives the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "syntony", "font.size": 10}):
        figure = Figure(figsize=size_in, dpi=_DPI, facecolor="white")
        draw(figure)
        out = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {}
        figure.savefig(out, format=kind, metadata=metadata)
        return out.getvalue()


def _span(lines: Sequence[ThroughputLine]) -> tuple[float, float]:
    instants = [at_s for line in lines for at_s in line.at_s] or [0.0, 1.0]
    return min(instants), max(instants)


def _style(axes: Any, picture: ThroughputChart) -> None:
    axes.set_xlabel("seconds since the fault", color=FAINT)
    axes.set_ylabel(picture.unit, color=FAINT)
    style_axes(axes)


def style_axes(axes: Any) -> None:
    """Show grid lines and a base line, without a frame."""
    axes.grid(axis="y", color="#d0d7de", lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color("#d0d7de")


def _mark(axes: Any, at_s: float, text: str, top: float) -> None:
    axes.axvline(at_s, color=INK, lw=0.8, ls=(0, (4, 3)))
    axes.annotate(
        text, (at_s, top), xytext=(4, -4), textcoords="offset points", color=INK,
        fontsize=9, va="top",
    )  # fmt: skip


def _line(axes: Any, line: ThroughputLine, colour: str) -> None:
    axes.plot(line.at_s, line.rate, color=colour, lw=2.0, solid_joinstyle="round")
    if line.ends_s is not None and line.at_s:
        axes.plot([line.ends_s], [0.0], marker="x", ms=9, mew=2.2, color=colour, clip_on=False)


def _legend(figure: Any, lines: Sequence[ThroughputLine]) -> None:
    """Labels above the plot, in the lines' colours, each with its verdict."""
    for column, (line, colour) in enumerate(zip(lines, COLOURS, strict=False)):
        left = 0.075 + column * 0.9 / max(1, len(lines))
        figure.text(left, 0.84, "━ " + line.label, color=colour, fontsize=10, fontweight="bold")
        figure.text(left + 0.022, 0.805, line.note, color=FAINT, fontsize=9)

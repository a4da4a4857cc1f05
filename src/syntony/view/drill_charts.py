"""The charts of drills, as PNG or SVG.

Needs matplotlib (``pip install 'syntony[report]'``), imported when drawing.
"""

from __future__ import annotations

import importlib.util
import io
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

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
    """Throughput over time, one line per run, the fault between them."""

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
        axes.set_xlabel("seconds since the fault", color=FAINT)
        axes.set_ylabel(self.unit, color=FAINT)
        style_axes(axes)
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


def style_axes(axes: Any) -> None:
    """Show grid lines and a base line, without a frame."""
    axes.grid(axis="y", color="#d0d7de", lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color("#d0d7de")


def _mark(axes: Any, at_s: float, text: str, top: float, line: int = 0) -> None:
    """A dashed line at an instant, its label below `top`, on one of several lines."""
    axes.axvline(at_s, color=INK, lw=0.8, ls=(0, (4, 3)))
    axes.annotate(
        text, (at_s, top), xytext=(4, -4 - 13 * line), textcoords="offset points", color=INK,
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


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HEADROOM = 1.15
"""Height of the y axes relative to the largest value, to leave room for labels."""


class ContentionCurve(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    at_s: tuple[float, ...]
    value: tuple[float, ...]

    @classmethod
    def of(cls, label: str, at_s: NDArray[np.float64], value: NDArray[np.float64]) -> Self:
        """From arrays, both (points,)."""
        return cls(label=label, at_s=tuple(at_s.tolist()), value=tuple(value.tolist()))


class ContentionChart(Chart, frozen=True, kw_only=True):
    """Jobs on one fabric over time, in seconds since Syntony was switched on: throughput above,
    one-way delay below."""

    size_in: ClassVar = (10.0, 6.4)
    title_at: ClassVar = (0.085, 0.945, 0.895)
    jobs: tuple[ContentionCurve, ...]
    """Mb/s."""
    optimum: float
    """Of all jobs together, Mb/s."""
    optimum_label: str = "optimum of all"
    delay: ContentionCurve
    """Milliseconds."""

    def draw(self, figure: Any) -> None:
        above = figure.add_axes((0.085, 0.42, 0.89, 0.41))
        below = figure.add_axes((0.085, 0.085, 0.89, 0.25), sharex=above)
        if len(self.jobs) > 1:
            total = _total(self.jobs)
            above.plot(total.at_s, total.value, color=INK, lw=2.2, label="all jobs")
        for curve, colour in zip(self.jobs, COLOURS[1:], strict=False):
            above.plot(curve.at_s, curve.value, color=colour, lw=1.8, label=curve.label)
        above.axhline(self.optimum, color=FAINT, lw=1.2, ls=(0, (1, 2)), label=self.optimum_label)
        above.set_ylim(0, self.optimum * _HEADROOM)
        above.set_ylabel("payload, Mb/s", color=FAINT)
        above.legend(loc="lower right", frameon=False, fontsize=9, ncols=5)
        below.plot(self.delay.at_s, self.delay.value, color=COLOURS[-1], lw=2.0)
        below.set_ylim(0, max((*self.delay.value, 1.0)) * _HEADROOM)
        below.set_ylabel(self.delay.label, color=FAINT)
        below.set_xlabel("seconds since Syntony was switched on", color=FAINT)
        _mark(above, 0, "Syntony acts", self.optimum * _HEADROOM)
        _mark(below, 0, "", 0)
        for axes in (above, below):
            style_axes(axes)


def _total(curves: Sequence[ContentionCurve]) -> ContentionCurve:
    sums = tuple(sum(values) for values in zip(*(c.value for c in curves), strict=True))
    return ContentionCurve(label="both", at_s=curves[0].at_s, value=sums)


class RankLossLine(msgspec.Struct, frozen=True, kw_only=True):
    """One run, in the order in which it did its steps."""

    label: str
    note: str
    at_s: tuple[float, ...]
    """When each step was done, since the kill."""
    loss: tuple[float, ...]


class RankLossChart(Chart, frozen=True, kw_only=True):
    """Loss and step time of a training job around the loss of a rank."""

    size_in: ClassVar = (10.0, 6.0)
    title_at: ClassVar = (0.085, 0.94, 0.895)
    lines: tuple[RankLossLine, ...]

    def draw(self, figure: Any) -> None:
        upper = figure.add_axes((0.085, 0.5, 0.89, 0.33))
        lower = figure.add_axes((0.085, 0.1, 0.89, 0.33), sharex=upper)
        for line, colour in zip(self.lines, COLOURS, strict=False):
            label = f"{line.label}: {line.note}" if line.note else line.label
            upper.plot(line.at_s, line.loss, color=colour, lw=1.2, label=label)
            steps_ms = [1e3 * (b - a) for a, b in itertools.pairwise(line.at_s)]
            lower.plot(line.at_s[1:], steps_ms, color=colour, lw=1.2)
        lower.set_yscale("log")
        upper.set_ylabel("loss", color=FAINT)
        lower.set_ylabel("step, ms", color=FAINT)
        lower.set_xlabel("seconds since the rank was killed", color=FAINT)
        for axes in (upper, lower):
            style_axes(axes)
            _mark(axes, 0, "", 0)
        upper.tick_params(labelbottom=False)
        upper.legend(loc="upper right", frameon=False, fontsize=8)


class SlowJobCurve(msgspec.Struct, frozen=True, kw_only=True):
    """One flow; NaN where nothing was recorded."""

    label: str
    slow: bool
    at_s: tuple[float, ...]
    delay_ms: tuple[float, ...]


class SlowJobChart(Chart, frozen=True, kw_only=True):
    """In-band delay of a job's flows, the slow one highlighted; time is in seconds since it was
    made slow."""

    size_in: ClassVar = (10.0, 5.0)
    title_at: ClassVar = (0.085, 0.93, 0.875)
    curves: tuple[SlowJobCurve, ...]
    marks: tuple[tuple[float, str], ...]

    def draw(self, figure: Any) -> None:
        axes = figure.add_axes((0.085, 0.115, 0.89, 0.7))
        for curve in sorted(self.curves, key=lambda each: each.slow):
            colour, width = (COLOURS[1], 2.2) if curve.slow else (FAINT, 1.0)
            axes.plot(curve.at_s, curve.delay_ms, color=colour, lw=width,
                      label=curve.label if curve.slow else None)  # fmt: skip
        axes.set_yscale("log")
        axes.margins(x=0.06)
        axes.set_ylabel("in-band delay, ms", color=FAINT)
        axes.set_xlabel("seconds since the flow was made slow", color=FAINT)
        style_axes(axes)
        top = axes.get_ylim()[1]
        for number, (at_s, text) in enumerate(self.marks):
            _mark(axes, at_s, text, top, number)
        axes.legend(loc="upper left", frameon=False, fontsize=8)

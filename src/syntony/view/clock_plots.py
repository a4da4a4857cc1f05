"""The plots of a clock report, drawn with matplotlib. Returns bytes; no files, no display."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from syntony.model import ClockState, format_ns
from syntony.view.clock_summary import ClockReport, ClockSeries, DelayReport, clock_figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORWARD, REVERSE, GREY, INK = "#d1495b", "#00798c", "#8d99ae", "#22303c"
_PALETTE = (
    "#00798c", "#d1495b", "#edae49", "#66a182", "#2e4057", "#8d6a9f", "#c97b63", "#3a86c8",
)  # fmt: skip
_MANY = 12
"""Beyond this many clocks, lines are grey and unnamed: only the spread is visible."""
_LEAST_NS = 0.5
"""Errors are whole nanoseconds: zero is drawn here on a logarithmic scale."""
_STYLE: Any = {
    "svg.fonttype": "path",
    "svg.hashsalt": "syntony",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#c5cdd8",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e9edf2",
    "xtick.color": "#5c6b7a",
    "ytick.color": "#5c6b7a",
    "legend.frameon": False,
}


def make_plots(report: ClockReport, form: str = "svg") -> dict[str, bytes]:
    """Every plot that the report has data for, by name, as ``svg`` or ``png``."""
    drawers: dict[str, Callable[[], Figure]] = {}
    if report.delays is not None:
        drawers["one-way-delay"] = partial(plot_delays, report.delays)
    if report.known_truth:
        drawers["error"] = partial(plot_errors, report)
    if report.clocks:
        drawers["clocks"] = partial(plot_clocks, report)
    with mpl.rc_context(_STYLE):
        return {name: _rendered(draw(), form) for name, draw in drawers.items()}


def plot_delays(delays: DelayReport) -> Figure:
    """One-way delay by direction, half the round trip, and delays from raw stamps."""
    figure = Figure(figsize=(9.2, 5.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.25))
    micro = [np.array(values) / 1e3 for values in (delays.forward_ns, delays.reverse_ns)]
    half = np.array(delays.half_rtt_ns) / 1e3
    top.plot(delays.at_s, micro[0], color=FORWARD, lw=1.8)
    top.plot(delays.at_s, micro[1], color=REVERSE, lw=1.8)
    top.plot(delays.at_s, half, color=GREY, lw=1.6, ls=(0, (4, 2)))
    top.set_yscale("log")
    _label_ends(
        top,
        delays.at_s,
        (
            (micro[0], f"{delays.src} → {delays.dst}", FORWARD),
            (micro[1], f"{delays.dst} → {delays.src}", REVERSE),
            (half, "half the round trip", GREY),
        ),
    )
    _plain_numbers(top)
    top.set_ylabel("one-way delay, µs")
    _title(
        top,
        _delay_title(delays),
        "Median of each second, on the fleet's timeline; of the errors the 95th percentiles",
    )
    for raw, colour in ((delays.raw_forward_ns, FORWARD), (delays.raw_reverse_ns, REVERSE)):
        bottom.plot(delays.at_s, np.array(raw) / 1e6, color=colour, lw=1.8)
    bottom.axhline(0, color=GREY, lw=0.8)
    bottom.set_ylabel("ms")
    bottom.set_xlabel("seconds before now")
    early = min(*delays.raw_forward_ns, *delays.raw_reverse_ns) < 0
    _title(
        bottom,
        "",
        "The same probes by the hosts' own clocks"
        + (": some arrived before they were sent" if early else ""),
    )
    return figure


def _delay_title(delays: DelayReport) -> str:
    gap = np.abs(np.array(delays.forward_ns) - np.array(delays.half_rtt_ns))
    wrong = float(np.quantile(gap, 0.95))
    text = f"Half the round trip is {format_ns(wrong)} off"
    errors = [abs(error) for error in delays.clock_error_ns if error is not None]
    if errors:
        text += (
            f"; the clocks behind the one-way delays, {format_ns(float(np.quantile(errors, 0.95)))}"
        )
    return text


def plot_errors(report: ClockReport) -> Figure:
    """Error against truth over time, and every error against the bound reported with it."""
    figure = Figure(figsize=(9.2, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    known = clock_figures(report)
    for clock, colour in _coloured(report.clocks):
        errors = np.array([np.nan if e is None else e for e in clock.error_ns])
        bounds = np.array([np.nan if b is None else b for b in clock.bound_ns])
        left.plot(clock.at_s, errors, color=colour, lw=1.1, label=clock.node)
        right.scatter(
            bounds, np.maximum(np.abs(errors), _LEAST_NS), s=7, color=colour, alpha=0.45, lw=0
        )
    left.axhline(0, color=GREY, lw=0.8)
    left.set_xlabel("seconds before now")
    left.set_ylabel("clock error, ns")
    _legend(left, report.clocks)
    p95, worst = known.error_p95_ns or 0.0, known.error_max_ns or 0.0
    _title(
        left,
        f"95 % of errors below {format_ns(p95)}, worst {format_ns(worst)}",
        "Fleet time as each host reads it, minus the truth",
    )
    right.set_xscale("log")
    right.set_yscale("log")
    ends = np.array(right.get_xlim())
    low, high = min(_LEAST_NS, ends[0]), ends[1]
    right.fill_between([low, high], [low, high], [high * 30] * 2, color="#fbe9eb", lw=0, zorder=0)
    right.plot([low, high], [low, high], color=FORWARD, lw=1.2)
    right.set_xlim(*ends)
    right.set_ylim(_LEAST_NS * 0.8, max(high, worst) * 2)
    right.set_xlabel("reported bound, ns")
    right.set_ylabel("|error|, ns")
    _title(
        right,
        f"{known.violations} of {known.compared:,} beyond their bound",
        "In the red area the bound would be a lie",
    )
    return figure


def plot_clocks(report: ClockReport) -> Figure:
    """Offset, drift and bound of every clock over time, with its lapses marked."""
    figure = Figure(figsize=(9.2, 6.6), layout="constrained")
    offset, drift, bound = figure.subplots(3, 1, sharex=True)
    for clock, colour in _coloured(report.clocks):
        rates = np.array(clock.drift_ppb)
        bounds = np.array([np.nan if b is None else b for b in clock.bound_ns])
        offset.plot(clock.at_s, np.array(clock.offset_ns) / 1e6, color=colour, lw=1.2)
        drift.plot(clock.at_s, rates - np.median(rates), color=colour, lw=1.2, label=clock.node)
        bound.plot(clock.at_s, bounds, color=colour, lw=1.2)
        lapses = [
            at
            for at, state in zip(clock.at_s, clock.state, strict=True)
            if state is not ClockState.SYNCHRONIZED
        ]
        bound.plot(lapses, [1.0] * len(lapses), "|", color=colour, ms=9, transform=_low(bound))
    offset.set_ylabel("ms")
    drift.set_ylabel("ppb")
    bound.set_ylabel("ns")
    bound.set_yscale("log")
    _plain_numbers(bound)
    bound.set_xlabel("seconds before now")
    _legend(drift, report.clocks)
    span = clock_figures(report)
    share = f"{span.synchronized:.1%} of samples synchronized"
    _title(offset, "Each clock goes its own way", "Fleet time minus local time")
    _title(drift, "", "Frequency, around each clock's median")
    middle = "" if span.bound_p50_ns is None else f", median {format_ns(span.bound_p50_ns)}"
    _title(bound, "", f"Bound on each clock's error{middle}; {share} (marks: not)")
    return figure


def _low(axes: Axes) -> Any:
    """Data across, a little above the axis upwards."""
    from matplotlib.transforms import Affine2D, blended_transform_factory

    return blended_transform_factory(axes.transData, Affine2D().scale(1, 0.04) + axes.transAxes)


def _coloured(clocks: Sequence[ClockSeries]) -> list[tuple[ClockSeries, str]]:
    if len(clocks) > _MANY:
        return [(clock, GREY) for clock in clocks]
    return [(clock, _PALETTE[place % len(_PALETTE)]) for place, clock in enumerate(clocks)]


def _legend(axes: Axes, clocks: Sequence[ClockSeries]) -> None:
    if len(clocks) <= _MANY:
        axes.legend(
            loc="upper left", ncols=len(clocks), fontsize=7.5, handlelength=0.9, columnspacing=1.0
        )
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + (high - low) * 0.14)


def _label_ends(axes: Axes, at_s: Sequence[float], lines: Sequence[tuple[Any, str, str]]) -> None:
    """Names in the lines' own colours, at the right where each ends, a line's height apart."""
    heights = [
        float(np.log(np.median(values[-max(1, len(values) // 20) :]))) for values, _, _ in lines
    ]
    low, high = np.log(axes.get_ylim())
    least = (high - low) * 0.06
    order = np.argsort(heights)
    placed = -np.inf
    for place in order:
        _, text, colour = lines[place]
        placed = max(heights[place], placed + least)
        axes.annotate(
            text,
            (at_s[-1], float(np.exp(placed))),
            xytext=(6, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontsize=8.5,
            annotation_clip=False,
        )


def _plain_numbers(axes: Axes) -> None:
    """1, 2, 5, 10, 20, … up a logarithmic axis, not powers of ten."""
    for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatted(FuncFormatter(_plain))
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))


def _plain(value: float, _place: int) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _title(axes: Axes, title: str, below: str) -> None:
    if title:
        axes.set_title(title, loc="left", fontweight="bold", fontsize=11.5, pad=20)
        axes.text(
            0, 1.02, below, transform=axes.transAxes, color="#5c6b7a", fontsize=8.5, va="bottom"
        )
    else:
        axes.set_title(below, loc="left", color="#5c6b7a", fontsize=8.5)


def _rendered(figure: Figure, form: str) -> bytes:
    target = io.BytesIO()
    # Without a date the same data give the same bytes.
    options: dict[str, Any] = (
        {"metadata": {"Date": None, "Creator": None}} if form == "svg" else {"dpi": 160}
    )
    figure.savefig(target, format=form, facecolor="white", **options)
    return target.getvalue()

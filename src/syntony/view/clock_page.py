"""A clock report as one self-contained HTML page: no script, no network. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import NamedTuple

import numpy as np

from syntony.model import ClockState
from syntony.view.clock_summary import ClockFigures, ClockReport, ClockSeries, clock_figures
from syntony.view.tables import duration


class _Caption(NamedTuple):
    title: str
    text: str


_CAPTIONS = {
    "one-way-delay": _Caption(
        "One-way delay",
        "Top: the delay of each direction, measured on the fleet's timeline, and half of the same "
        "probes' round-trip time, which is all that a host can measure alone. Bottom: the same "
        "probes by the timestamps of the two hosts' own clocks, uncorrected.",
    ),
    "error": _Caption(
        "Error against truth",
        "In the lab each clock's true error is known. Left: the error of fleet time on each "
        "host; the timeline's own offset, the median, is subtracted. Right: each of these errors "
        "against the bound that was reported with it at the time.",
    ),
    "clocks": _Caption(
        "Every clock",
        "What each clock does by itself, and how well it is known. Nothing here sets a clock: "
        "hosts run free, Syntony knows where they are.",
    ),
}
_CSS = """
body{font:15px/1.5 system-ui,sans-serif;color:#22303c;max-width:60rem;margin:2.5rem auto;
padding:0 1.2rem}
h1{font-size:1.7rem;margin:0}h2{font-size:1.15rem;margin:2.2rem 0 .2rem}
p{color:#4a5a68;margin:.3rem 0 .8rem;max-width:46rem}
.facts{display:flex;flex-wrap:wrap;gap:.8rem;margin:1.4rem 0}
.fact{background:#f4f6f9;border-radius:.5rem;padding:.7rem 1rem;min-width:8.5rem}
.fact b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}
.fact.bad b{color:#d1495b}.fact span{color:#5c6b7a;font-size:.85rem}
figure{margin:0}figure svg{width:100%;height:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%;margin-top:.6rem}
th,td{text-align:right;padding:.25rem .6rem;border-bottom:1px solid #e9edf2}td{white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{color:#5c6b7a;font-weight:500}
footer{margin:2.5rem 0;color:#5c6b7a;font-size:.85rem}code{background:#f4f6f9;padding:.1em .3em}
"""


def page(report: ClockReport, plots: Mapping[str, bytes], command: str) -> str:
    """The whole page.

    Args:
        pictures: SVG by name, as `clock_plots.make_plots` draws them.
        command: the command line that made it, for reproduction.
    """
    known = clock_figures(report)
    figures = "".join(_figure(name, svg) for name, svg in plots.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">'
        f"<title>Clocks of {escape(report.fleet)}</title><style>{_CSS}</style></head><body>"
        f"<h1>Clocks of {escape(report.fleet)}</h1><p>{escape(_span(report))}</p>"
        f'<div class="facts">{_tiles(known)}</div>{figures}{_table(report)}'
        f"<footer>{_notes(report, known)} Made by <code>{escape(command)}</code>; "
        f"the data are next to this page in <code>report.json</code>.</footer></body></html>\n"
    )


def _span(report: ClockReport) -> str:
    oldest_s = min((clock.at_s[0] for clock in report.clocks if clock.at_s), default=0.0)
    seconds = max(1, round(report.step_ns / 1e9))
    return (
        f"{len(report.clocks)} clocks over {abs(oldest_s):.0f} s, one sample per clock and "
        f"{'second' if seconds == 1 else f'{seconds} s'} at most, as the controller stored them."
    )


def _tiles(known: ClockFigures) -> str:
    tiles = [
        (f"{known.synchronized:.1%}", "of samples synchronized", known.synchronized < 1),
        (duration(known.bound_p50_ns), "median bound", False),
        (duration(known.bound_p95_ns), "95 % of bounds below", False),
    ]
    if known.compared:
        tiles += [
            (duration(known.error_p95_ns), "95 % of errors below", False),
            (duration(known.error_max_ns), "worst error", False),
            (str(known.violations), f"of {known.compared:,} beyond bound", known.violations > 0),
        ]
    return "".join(
        f'<div class="fact{" bad" if bad else ""}"><b>{escape(value)}</b>'
        f"<span>{escape(what)}</span></div>"
        for value, what, bad in tiles
    )


def _figure(name: str, svg: bytes) -> str:
    title, caption = _CAPTIONS[name]
    text = svg.decode()
    drawing = text[text.index("<svg") :]  # without the XML prologue, which HTML does not take
    return f"<h2>{title}</h2><p>{caption}</p><figure>{drawing}</figure>"


def _table(report: ClockReport) -> str:
    headings = ["clock", "drift, ppb", "bound p50", "bound max", "not synchronized"]
    if report.known_truth:
        headings += ["error p50", "error p95", "error max"]
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(clock, report)) + "</tr>"
        for clock in report.clocks
    )
    return f"<h2>Clock by clock</h2><table><tr>{head}</tr>{rows}</table>"


def _cells(clock: ClockSeries, report: ClockReport) -> list[str]:
    bounds = [bound for bound in clock.bound_ns if bound is not None]
    lapses = sum(state is not ClockState.SYNCHRONIZED for state in clock.state)
    cells = [
        clock.node,
        f"{np.median(clock.drift_ppb):+,.1f}",
        duration(float(np.median(bounds)) if bounds else None),
        duration(max(bounds, default=None)),
        f"{lapses} of {len(clock.state)}",
    ]
    if report.known_truth:
        errors = [abs(error) for error in clock.error_ns if error is not None]
        cells += [
            duration(float(np.quantile(errors, share)) if errors else None)
            for share in (0.5, 0.95, 1.0)
        ]
    return cells


def _notes(report: ClockReport, known: ClockFigures) -> str:
    if not report.known_truth:
        return (
            "No error against truth: outside of the lab the truth is unknown. Only the bound is "
            "known. It leaves out an asymmetry that all paths of a host share; see the reference."
        )
    share = known.compared / known.samples if known.samples else 0.0
    return (
        f"{share:.1%} of samples could be compared with the truth; the rest had no bound, or no "
        "second synchronized clock to compare with."
    )

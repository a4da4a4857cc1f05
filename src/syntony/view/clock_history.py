"""Tables of clock history: one clock line by line, or many clocks with one line each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise

import numpy as np

from syntony.model import ClockState, S
from syntony.model.names import natural
from syntony.view import lazy_rich
from syntony.view.clocks import BADNESS, STYLES
from syntony.view.tables import duration, plain_table
from syntony.wire.clocks import ClockSample


def by_clock(samples: Sequence[ClockSample]) -> dict[str, list[ClockSample]]:
    """Samples per clock, in order of time."""
    ordered = sorted(samples, key=lambda sample: (natural(sample.node), sample.ts_ns))
    return {node: list(group) for node, group in groupby(ordered, key=lambda each: each.node)}


def history_table(samples: Sequence[ClockSample]) -> lazy_rich.Table:
    """One clock, oldest first; `moved` is the change of offset beyond its own drift."""
    table = plain_table(">second", ">offset", ">moved", ">drift ppb", ">1-sigma", ">bound ±")
    table.add_column("state")
    table.add_column("why", style="dim")
    moves = ["–", *(duration(moved_ns(one, two)) for one, two in pairwise(samples))]
    for sample, move in zip(samples, moves, strict=False):
        table.add_row(
            f"{(sample.ts_ns - samples[-1].ts_ns) / S:.0f} s",
            duration(sample.offset_ns),
            move,
            f"{sample.drift_ppb:+,.1f}",
            duration(sample.sigma_ns),
            duration(sample.bound_ns),
            lazy_rich.Text(sample.state, style=STYLES[sample.state]),
            sample.reason,
        )
    return table


def summary_table(clocks: dict[str, list[ClockSample]]) -> lazy_rich.Table:
    """One line per clock over the whole time."""
    table = plain_table(
        "clock", ">over", ">drift ppb", ">± span", ">moved ≤", ">bound p50", ">bound ≤", "lapses"
    )
    for node, samples in clocks.items():
        drifts = [sample.drift_ppb for sample in samples]
        moves = [abs(moved_ns(one, two)) for one, two in pairwise(samples)]
        bounds = [sample.bound_ns for sample in samples if sample.bound_ns is not None]
        table.add_row(
            node,
            f"{(samples[-1].ts_ns - samples[0].ts_ns) / S:.0f} s",
            f"{drifts[-1]:+,.1f}",
            f"{(max(drifts) - min(drifts)) / 2:,.1f}",
            duration(max(moves, default=None)),
            duration(float(np.median(bounds)) if bounds else None),
            duration(max(bounds, default=None)),
            _lapses(samples),
        )
    return table


def moved_ns(one: ClockSample, two: ClockSample) -> float:
    """Difference between the second solution and the extrapolation of the first."""
    ahead_ns = one.drift_ppb * 1e-9 * (two.ref_ns - one.ref_ns)
    return two.offset_ns - one.offset_ns - ahead_ns


def _lapses(samples: Sequence[ClockSample]) -> lazy_rich.Text:
    counts = Counter(sample.state for sample in samples)
    text = lazy_rich.Text()
    for state in BADNESS:
        if counts[state] and state is not ClockState.SYNCHRONIZED:
            text.append(f"{counts[state]} {state} ", style=STYLES[state])
    return text or lazy_rich.Text("none", style="dim")

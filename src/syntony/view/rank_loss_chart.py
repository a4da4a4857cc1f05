"""Loss and step time of a training job around the loss of a rank; as PNG or SVG.

Needs matplotlib (``pip install 'syntony[report]'``), imported when drawing.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import msgspec

from syntony.view.throughput_chart import COLOURS, FAINT, INK, Chart, style_axes


class RankLossLine(msgspec.Struct, frozen=True, kw_only=True):
    """One run, in the order in which it did its steps."""

    label: str
    note: str
    at_s: tuple[float, ...]
    """When each step was done, since the kill."""
    loss: tuple[float, ...]


class RankLossChart(Chart, frozen=True, kw_only=True):
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
            axes.axvline(0.0, color=INK, lw=0.8, ls=(0, (4, 3)))
        upper.tick_params(labelbottom=False)
        upper.legend(loc="upper right", frameon=False, fontsize=8)

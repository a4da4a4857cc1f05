"""Jobs on one fabric over time: throughput above, one-way delay below; as PNG or SVG.

Needs matplotlib (``pip install 'syntony[report]'``), imported when drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

from syntony.view.throughput_chart import COLOURS, FAINT, INK, Chart, style_axes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ABOVE = 1.15
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
    """The data of a chart; time is in seconds since Syntony was switched on."""

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
        above.set_ylim(0, self.optimum * _ABOVE)
        above.set_ylabel("payload, Mb/s", color=FAINT)
        above.legend(loc="lower right", frameon=False, fontsize=9, ncols=5)
        below.plot(self.delay.at_s, self.delay.value, color=COLOURS[-1], lw=2.0)
        below.set_ylim(0, max((*self.delay.value, 1.0)) * _ABOVE)
        below.set_ylabel(self.delay.label, color=FAINT)
        below.set_xlabel("seconds since Syntony was switched on", color=FAINT)
        for axes in (above, below):
            axes.axvline(0, color=INK, lw=0.8, ls=(0, (4, 3)))
            style_axes(axes)
        above.annotate(
            "Syntony acts", (0, self.optimum * _ABOVE), xytext=(4, -4), va="top",
            textcoords="offset points", color=INK, fontsize=9,
        )  # fmt: skip


def _total(curves: Sequence[ContentionCurve]) -> ContentionCurve:
    sums = tuple(sum(values) for values in zip(*(c.value for c in curves), strict=True))
    return ContentionCurve(label="both", at_s=curves[0].at_s, value=sums)

"""Which ranks the others wait for, step after step, and since when. Pure.

Each rank sums up how long its collectives blocked it in each step (`StepWaits`), and reports that
once a second. A collective ends on all its ranks at about the same instant, so the rank that comes
last waits least. Only durations are compared: clocks of hosts need not agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

S = 1_000_000_000
REPEAT_NS = 30 * 60 * S
"""Interval of repeated reports: the fleet forgets a report after an hour."""
WINDOW_NS, LEAST_STEPS = 10 * S, 3
"""Ranks are compared over this time, and over at least this many steps of each."""
REPORT_NS = 60 * S
"""Ranks that are late for this long are reported: an evaluation by one rank is over by then."""
LATE, NO_LONGER_LATE = 0.15, 0.075
"""Lateness from which ranks are late, and below which they no longer are."""


class StepProgress(NamedTuple):
    """A rank's progress, and how long it waited."""

    steps: int = 0
    at_ns: int = 0
    """When it had done these steps, on its own clock."""
    waited_ns: int = 0
    """Total wait in these steps."""


class StepWaits:
    """Sums up a rank's waits in its steps."""

    def __init__(self) -> None:
        self.pace = StepProgress()
        self._boundary: int | None = None
        self._longest_ns = self._sum_ns = 0

    def add(self, boundary: int, waited_ns: int, now_ns: int, *, split: bool) -> None:
        """The program waited only for collectives during `waited_ns`, or less.

        Args:
            boundary: the step.
            waited_ns: from its last call of a collective until all had ended.
            now_ns: of this process.
            split: parameters are split over ranks, so that the program waits for each collective
                separately. Otherwise a backward pass continues meanwhile: a late rank is later with
                each collective, and only its last and longest delay costs time.
        """
        if boundary != self._boundary:
            if self._boundary is not None:
                waited = self._sum_ns if split else self._longest_ns
                self.pace = StepProgress(self.pace.steps + 1, now_ns, self.pace.waited_ns + waited)
            self._boundary, self._longest_ns, self._sum_ns = boundary, 0, 0
        self._longest_ns = max(self._longest_ns, waited_ns)
        self._sum_ns += waited_ns


class Straggler(NamedTuple):
    """Ranks that are late, window after window: usually one, at most half of all."""

    ranks: tuple[int, ...]
    lateness: float
    """Share of time by which steps would be shorter if these ranks were as fast as the next
    slowest."""
    for_ns: int

    @property
    def text(self) -> str:
        who = ("rank " if len(self.ranks) == 1 else "ranks ") + ", ".join(map(str, self.ranks))
        part = f"{self.lateness:.0%} of the time"
        return f"all others wait for {who} {part}, for {self.for_ns // S} s"


@dataclass
class LatenessWatch:
    """Compares a job's ranks window by window."""

    late: Straggler | None = None
    """Late ranks in the last window."""
    _began_ns: int | None = None
    _begin: Mapping[int, StepProgress] = field(default_factory=dict)

    def reset(self) -> None:
        """Ranks were connected again: earlier measurements are of other processes."""
        self._began_ns, self.late = None, None

    def look(self, ranks: Mapping[int, StepProgress], now_ns: int) -> bool:
        """Whether a window ends now: then `late` has its late ranks.

        Args:
            ranks: the last report of each; the same ranks from one `reset` to the next.
        """
        if self._began_ns is None:
            if ranks and all(each.steps for each in ranks.values()):
                self._began_ns, self._begin = now_ns, dict(ranks)
            return False
        steps = [each.steps - self._begin[rank].steps for rank, each in ranks.items()]
        if now_ns - self._began_ns < WINDOW_NS or min(steps) < LEAST_STEPS:
            return False
        before, for_ns = self.late, now_ns - self._began_ns
        order, gaps = _latest(self._begin, ranks)
        self._began_ns, self._begin, self.late = now_ns, dict(ranks), None
        count = next((n for n, gap in enumerate(gaps, 1) if gap >= LATE), 0)
        if before is not None:
            same = len(before.ranks)
            if {*order[:same]} == {*before.ranks} and gaps[same - 1] >= NO_LONGER_LATE:
                count, for_ns = same, before.for_ns + for_ns
        if count:
            self.late = Straggler(tuple(sorted(order[:count])), gaps[count - 1], for_ns)
        return True


def _latest(
    begin: Mapping[int, StepProgress], end: Mapping[int, StepProgress]
) -> tuple[list[int], list[float]]:
    """Ranks by the share of their time that they waited; and the differences between the first and
    second, second and third, … up to half of all."""
    parts = sorted(
        ((each.waited_ns - begin[rank].waited_ns) / max(1, each.at_ns - begin[rank].at_ns), rank)
        for rank, each in end.items()
    )
    waits = [part for part, _ in parts]
    gaps = [after - before for before, after in itertools.pairwise(waits)]
    return [rank for _, rank in parts], gaps[: len(parts) // 2]

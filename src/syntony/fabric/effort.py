"""How much work locating the faults of one second may cost, in counted steps. Pure.

Steps are counted, never measured: the same second is cut at the same place on every machine.
"""

from __future__ import annotations

SECOND_STEPS = 1_000.0
"""Steps for all windows of one second, and for a search for queues. One step takes 0.3 to 0.5 ms of
processor time."""
AGAIN = 1 / 3
"""Share of them for a second search of the same second, at least: after the end of a fault."""
DELAYS = 1 / 3
"""Share of them for delays, at least: those may be of other parts than losses."""
ENTRIES = 256
"""One step fits one candidate, or several that share its paths, with up to so many different
paths in all."""
FINDING_STEPS = 8.0
"""Kept for each finding, to compare it with its rivals."""
CUT = 0.5
"""Factor for probabilities of findings of a search that was cut: what was not compared may be as
likely as all that was."""


class Effort:
    """The steps that are left.

    Args:
        steps: the limit.
    """

    def __init__(self, steps: float = float("inf")) -> None:
        self.left = steps
        self.spent = 0.0

    def spend(self, entries: int) -> None:
        """Count one fit of so many different paths."""
        self.take(1.0 + entries / ENTRIES)

    def take(self, steps: float) -> None:
        """Count steps."""
        self.left -= steps
        self.spent += steps

    def part(self, share: float, *, least: float = 0.0) -> Effort:
        """A share of what is left, or the `least` steps: the caller has to `take` what of it was
        spent."""
        return Effort(max(self.left * share, least))

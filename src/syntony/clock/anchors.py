"""Find the anchors that agree on UTC: intervals shared by most of them and the memory.

A voter says "UTC is within this interval". With n voters of which at most f = ⌊(n-1)/2⌋ are wrong,
UTC lies between the first and the last point that n - f intervals cover (Marzullo 1984; NTP's
selection, RFC 5905 section 11.2.1, looks for the smallest f that works, which lets one narrow lie
decide as long as it overlaps the others).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from syntony.model import ClockState, Timeline, UtcReading, format_ns

READING_LIFETIME_NS = 10_000_000_000
"""A reading older than this on its own clock is ignored."""


class Anchor(NamedTuple):
    """A clock node trusted to know UTC."""

    node: str
    bound_ns: float
    """Largest error of its readings against UTC."""
    reported: bool = False
    """Its agent reports UTC with a bound of its own; else its clock itself is taken for UTC."""


class AnchorReading(NamedTuple):
    """An anchor's newest reading, and the rate of its offset from UTC since the previous one."""

    reading: UtcReading
    rate: float
    """Of `utc_minus_ns`, ns per ns of the anchor's clock."""

    @classmethod
    def after(cls, before: UtcReading, reading: UtcReading) -> AnchorReading | None:
        """None if the clock did not advance between the two."""
        since_ns = reading.local_ns - before.local_ns
        if since_ns <= 0:
            return None
        return cls(reading, (reading.utc_minus_ns - before.utc_minus_ns) / since_ns)

    def utc_minus_ns(self, local_ns: int) -> float:
        """UTC minus local at a local instant nearby."""
        return self.reading.utc_minus_ns + self.rate * (local_ns - self.reading.local_ns)


class Vote(NamedTuple):
    """UTC minus fleet time at one instant, according to one voter."""

    node: str
    offset_ns: float
    half_ns: float
    """The voter's interval is ``offset ± half``."""

    @property
    def low_ns(self) -> float:
        return self.offset_ns - self.half_ns

    @property
    def high_ns(self) -> float:
        return self.offset_ns + self.half_ns


class Agreement(NamedTuple):
    """The interval of UTC on which most voters agree."""

    low_ns: float
    high_ns: float
    centre_ns: float
    """Median of the readings that agree, within the interval."""
    nodes: tuple[str, ...]
    """Voters that agree."""


def votes(
    anchors: Iterable[Anchor],
    lines: Mapping[str, Timeline],
    readings: Mapping[str, AnchorReading],
    fleet_ns: int,
) -> tuple[list[Vote], dict[str, str]]:
    """The anchors' readings at an instant of fleet time, and why some have none (by node)."""
    cast, silent = [], {}
    for anchor in anchors:
        line = lines.get(anchor.node)
        if line is None or line.state is not ClockState.SYNCHRONIZED:
            silent[anchor.node] = "not synchronized" if line is not None else "not heard of"
            continue
        local_ns = line.to_local_ns(fleet_ns)
        utc_minus_ns, half_ns = 0.0, anchor.bound_ns + line.bound_ns(local_ns)
        if anchor.reported:
            known = readings.get(anchor.node)
            if known is None or abs(local_ns - known.reading.local_ns) > READING_LIFETIME_NS:
                silent[anchor.node] = "reports no UTC"
                continue
            utc_minus_ns = known.utc_minus_ns(local_ns)
            half_ns += known.reading.bound_ns
        cast.append(Vote(anchor.node, local_ns - fleet_ns + utc_minus_ns, half_ns))
    return cast, silent


def agreement(cast: Sequence[Vote]) -> Agreement | None:
    """The interval that all but a minority of the voters cover; None where there is none."""
    if not cast:
        return None
    needed = len(cast) - (len(cast) - 1) // 2
    ends = sorted([(vote.low_ns, 0, 1) for vote in cast] + [(vote.high_ns, 1, -1) for vote in cast])
    covered, low_ns, high_ns = 0, None, None
    for at_ns, _, change in ends:
        if covered >= needed and change < 0:
            high_ns = at_ns
        covered += change
        if covered >= needed and low_ns is None:
            low_ns = at_ns
    if low_ns is None or high_ns is None:
        return None
    favour = [vote for vote in cast if vote.low_ns <= high_ns and vote.high_ns >= low_ns]
    centre_ns = statistics.median(vote.offset_ns for vote in favour)
    return Agreement(
        low_ns,
        high_ns,
        min(max(centre_ns, low_ns), high_ns),
        tuple(vote.node for vote in favour),
    )


def left_out(cast: Sequence[Vote], found: Agreement) -> str:
    """One phrase naming those outvoted; empty when there are none."""
    return "; ".join(
        f"{vote.node} outvoted: off by {format_ns(vote.offset_ns - found.centre_ns)}"
        for vote in cast
        if vote.node not in found.nodes
    )

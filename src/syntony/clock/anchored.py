"""The network solve with the UTC layer on top, and the state of both that survives a restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from syntony.clock.anchors import Anchor, AnchorReading, votes
from syntony.clock.gauge import apply_lead
from syntony.clock.lead import Lead
from syntony.clock.network import NetworkSolver
from syntony.clock.utc import UtcMemory, UtcServo
from syntony.model import ClockState, Edge, Timeline, Utc, UtcReading

REMEMBERED_LINES = 1_000
"""Clocks that carry the fleet timeline over a restart; their median is good to a nanosecond."""


class FleetMemory(msgspec.Struct, frozen=True, kw_only=True):
    """State from which fleet time and its steering to UTC continue after a restart."""

    lines: tuple[Timeline, ...]
    utc: UtcMemory | None = None


class AnchoredSolver:
    """`NetworkSolver`'s interface; fleet time follows UTC slowly where there are anchors.

    Args:
        anchors: clock nodes that know UTC; none for a timeline of the fleet's own.
        step_ns: see `UtcServo`.
    """

    def __init__(self, anchors: Iterable[Anchor] = (), step_ns: float = 0.0) -> None:
        self._solver = NetworkSolver()
        self._anchors = tuple(anchors)
        self._servo = UtcServo(len(self._anchors), step_ns)
        self._readings: dict[str, UtcReading] = {}
        self._anchor_readings: dict[str, AnchorReading] = {}
        self._lines: tuple[Timeline, ...] = ()
        self.stepped_ns = 0
        """Step of fleet time by the last solve; 0 except at the start or on request."""

    @property
    def utc(self) -> Utc | None:
        """UTC against fleet time; None without anchors or before the first solve."""
        return self._servo.utc

    def update(
        self, edges: Sequence[Edge], now_ns: int, epochs: Mapping[str, int] | None = None
    ) -> None:
        """Take edges; see `NetworkSolver.update`."""
        self._solver.update(edges, now_ns, epochs)

    def add_readings(self, readings: Iterable[UtcReading]) -> None:
        """Take hosts' readings of UTC; only those of anchors are used."""
        wanted = {anchor.node for anchor in self._anchors if anchor.reported}
        for reading in readings:
            if reading.node not in wanted:
                continue
            before = self._readings.get(reading.node)
            self._readings[reading.node] = reading
            reading_with_rate = None if before is None else AnchorReading.after(before, reading)
            if reading_with_rate is not None:
                self._anchor_readings[reading.node] = reading_with_rate

    def solve(self, now_ns: int) -> tuple[Timeline, ...]:
        """Every known clock's timeline, sorted by node."""
        lines = self._solver.solve(now_ns)
        part = _main_part(lines)
        self.stepped_ns = 0
        if self._anchors and part is not None:
            lead = self._follow([line for line in lines if line.component == part])
            if lead:
                self._solver.lead(part, lead)
                lines = tuple(
                    apply_lead(line, lead) if _leads(line, part) else line for line in lines
                )
                self.stepped_ns = lead.step_ns
        elif self._anchors:
            self._servo.lose("no clock of the fleet is synchronized")
        self._lines = lines
        return lines

    def memory(self) -> FleetMemory:
        """As of the last solve: the best clocks' timelines and what is known of UTC.

        After a restart most clocks may not have reported yet. They are remembered, too: they may
        report to a successor first.
        """
        part = _main_part(self._lines)
        if part is None:
            return FleetMemory(lines=(), utc=self._servo.memory())
        fresh = {line.node: line for line in self._lines if line.component == part and _sound(line)}
        away = self._solver.held_over()
        best = sorted(fresh.values(), key=lambda line: line.sigma_ns)
        return FleetMemory(lines=(*best, *away)[:REMEMBERED_LINES], utc=self._servo.memory())

    def inherit(self, memory: FleetMemory) -> None:
        """Continue from a predecessor's memory; to be called before the first solve."""
        self._solver.inherit(memory.lines)
        if memory.utc is not None and self._anchors:
            self._servo.inherit(memory.utc)

    def _follow(self, lines: Sequence[Timeline]) -> Lead:
        by_node = {line.node: line for line in lines}
        fleet_ns = max(line.to_fleet_ns(line.ref_ns) for line in lines if _sound(line))
        cast, silent = votes(self._anchors, by_node, self._anchor_readings, fleet_ns)
        return self._servo.step(cast, fleet_ns, silent)


def _sound(line: Timeline) -> bool:
    return line.state is ClockState.SYNCHRONIZED


def _main_part(lines: Sequence[Timeline]) -> str | None:
    """The connected part with most synchronized clocks; the first by name among equals."""
    sizes = Counter(line.component for line in lines if _sound(line))
    return min(sizes, key=lambda part: (-sizes[part], part)) if sizes else None


def _leads(line: Timeline, part: str) -> bool:
    """Whether steering applies to a clock: to those of the part, and to those held over, which may
    return."""
    return line.component == part or line.state is ClockState.HOLDOVER

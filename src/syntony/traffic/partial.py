"""Detect partially reachable pairs: some probed flows are silent while others are answered, as when
one of several spines drops everything. Pure.

With a starved host or a full queue all flows of a pair are silent, but some are declared dead
first. So live flows count only once they were answered well into the silence of the dead ones.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

MIN_SILENT = 2
"""Minimum silent flows. A full queue on one path may drop all probes of one flow until it is dead,
but hardly of two. If a faulty part carries half of all flows, in either direction, fewer than two
of four ports cross it in one of twenty cases (13/256), of eight ports in one of 2,600."""


@dataclass(slots=True)
class _Silent:
    since_ns: int
    """Its last reply."""
    half_ns: int
    """Half of the silence after which it was declared dead."""


class PartialPathFailure:
    """A gray failure of one pair: some source ports are dead. Instants are CLOCK_MONOTONIC."""

    __slots__ = ("_answered_ns", "_silent")

    def __init__(self) -> None:
        self._silent: dict[int, _Silent] = {}
        self._answered_ns = 0
        """Newest reply to the flows that are not silent."""

    def died(self, flow_id: int, since_ns: int, at_ns: int) -> None:
        """A flow was declared dead; `since_ns` is its last reply."""
        self._silent[flow_id] = _Silent(since_ns, (at_ns - since_ns) // 2)

    def lives(self, flow_id: int) -> None:
        """A flow is answered again."""
        self._silent.pop(flow_id, None)

    def keep(self, flow_ids: Collection[int]) -> None:
        """Drop all other flows."""
        self._silent = {each: its for each, its in self._silent.items() if each in flow_ids}

    def answered(self, flow_id: int, answered_ns: int) -> None:
        """Take the last reply of a flow."""
        its = self._silent.get(flow_id)
        if its is None:
            self._answered_ns = max(self._answered_ns, answered_ns)
        else:
            its.since_ns = max(its.since_ns, answered_ns)

    @property
    def unsure(self) -> bool:
        """Whether newer replies decide."""
        return len(self._silent) >= MIN_SILENT and self.since_ns is None

    @property
    def since_ns(self) -> int | None:
        """Since when `MIN_SILENT` flows have been silent while others are answered; None: not, or
        not known."""
        if len(self._silent) < MIN_SILENT:
            return None
        latest = sorted(self._silent.values(), key=lambda its: its.since_ns)[-MIN_SILENT]
        return latest.since_ns if self._answered_ns >= latest.since_ns + latest.half_ns else None

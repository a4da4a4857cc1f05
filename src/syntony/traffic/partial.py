"""A pair of NICs between which the fabric loses a part: some of its probed flows are silent while
others are answered, as where one spine of several swallows what it gets. Pure.

Who is starved, or stands in a full queue, is silent on all flows alike, and calls some of them dead
before the others only because they were asked first. So those that live speak only once they have
been answered well into the silence of those that do not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

MIN_SILENT = 2
"""A full queue on one way may swallow every probe of one flow for as long as that counts as dead,
hardly of two at once; of four ports fewer than two pass a part that half of all flows pass, there
or back, in one of twenty cases (13/256), of eight in one of 2,600."""


@dataclass(slots=True)
class _Silent:
    since_ns: int
    """Its last answer."""
    half_ns: int
    """Half of the silence after which it was called dead."""


class PartialPathFailure:
    """Of one pair. Instants are of CLOCK_MONOTONIC."""

    __slots__ = ("_answered_ns", "_silent")

    def __init__(self) -> None:
        self._silent: dict[int, _Silent] = {}
        self._answered_ns = 0
        """The newest answer of those that are not silent."""

    def died(self, flow_id: int, since_ns: int, at_ns: int) -> None:
        """A flow was called dead, not answered since."""
        self._silent[flow_id] = _Silent(since_ns, (at_ns - since_ns) // 2)

    def lives(self, flow_id: int) -> None:
        """It is answered again."""
        self._silent.pop(flow_id, None)

    def keep(self, flow_ids: Collection[int]) -> None:
        """Of no others is anything heard any more."""
        self._silent = {each: its for each, its in self._silent.items() if each in flow_ids}

    def heard(self, flow_id: int, heard_ns: int) -> None:
        """When a flow was last answered."""
        its = self._silent.get(flow_id)
        if its is None:
            self._answered_ns = max(self._answered_ns, heard_ns)
        else:
            its.since_ns = max(its.since_ns, heard_ns)

    @property
    def unsure(self) -> bool:
        """Whether it depends on newer answers."""
        return len(self._silent) >= MIN_SILENT and self.since_ns is None

    @property
    def since_ns(self) -> int | None:
        """Since when `MIN_SILENT` flows have been silent while others are answered; None: they have
        not, or nobody has heard of any that are."""
        if len(self._silent) < MIN_SILENT:
            return None
        latest = sorted(self._silent.values(), key=lambda its: its.since_ns)[-MIN_SILENT]
        return latest.since_ns if self._answered_ns >= latest.since_ns + latest.half_ns else None

"""Which switch is down, by a sample of the ways that left it. Pure.

A switch that dies may lose no packet: its neighbours see the carrier go and send around it. What is
left of it is that ways which crossed it, learnt again, do not. Not all of them need to be learnt
again to know that: were it there, some of them would still cross it, or others would come to.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from syntony.fabric.book import Way
from syntony.fabric.names import cable_name, link_ends
from syntony.model import S

CERTAIN_NATS = 10.0
"""That none of the ways crosses a switch by chance, where ways are dealt out anew over it and those
that took its place, is less likely than e to minus this."""
BESIDE_NATS = 5.0
"""… and of those that no one of its cables accounts for, this: were that cable lost and the switch
there, these would have had no reason to turn."""
ENOUGH = 10
"""Ways that left, where none is known to be left: whatever took their place."""
RECENT_NS = 20 * S
"""A switch without an answer for so long before is silent: ways may still cross it."""
FEW = 3
"""Fewer paths in addition to those of one cable are noise."""


class _Left:
    """The ways that left one switch since any crossed it."""

    def __init__(self) -> None:
        self.ways: dict[Way, tuple[int, str, str]] = {}
        """When each was found to have left, and the cables that it came and left by."""
        self.instead: set[str] = set()


class Departures:
    """Takes ways that turned, says which switches are down. Not thread-safe."""

    def __init__(self) -> None:
        self._left: dict[str, _Left] = {}
        """By switch; none has crossed it since."""
        self._heard_ns: dict[str, int] = {}
        """Device to when it was learnt last that it answers."""
        self._before: dict[Way, Sequence[str | None]] = {}
        """Where ways went of which only a part is known since they turned."""

    def __contains__(self, switch: str) -> bool:
        """Whether any way has left a switch, and none has crossed it since."""
        return switch in self._left

    def turned(
        self, way: Way, old: Sequence[str | None], new: Sequence[str | None], learnt_ns: int
    ) -> None:
        """A way goes elsewhere than it did.

        Args:
            way: the way.
            old: its sender and the devices that answered.
            new: the same now; what is silent now may still be crossed, and proves nothing until it
                is known. Empty: nobody asks for the way any more.
            learnt_ns: when its trace began, fleet time.
        """
        old = self._before.pop(way, old)
        if None in new:
            self._before[way] = old
        if not new or None in new:
            return
        for place in range(2, len(old) - 1):
            before, device, after = old[place - 1 : place + 2]
            if before is None or device is None or after is None or device in new:
                continue
            since_ns = learnt_ns - self._heard_ns.get(device, 0)
            if since_ns <= 0 or (device not in self._left and since_ns > RECENT_NS):
                continue
            left = self._left.setdefault(device, _Left())
            left.ways[way] = (learnt_ns, cable_name(before, device), cable_name(device, after))
            if len(new) == len(old):
                left.instead.add(new[place] or "")

    def crossed(self, devices: Sequence[str | None], learnt_ns: int) -> None:
        """A way was learnt to cross these: they were there after all that had left by when it was
        begun to be asked for."""
        for device in filter(None, devices[1:]):
            self._heard_ns[device] = max(learnt_ns, self._heard_ns.get(device, 0))
            left = self._left.get(device)
            if left is None:
                continue
            left.ways = {way: it for way, it in left.ways.items() if it[0] > learnt_ns}
            if not left.ways:
                del self._left[device]

    def down(self, in_use: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Switches that are down → who else it may be: cables that all of its ways shared.

        Args:
            in_use: cables that some way is known to cross still.
        """
        crossed = {end for cable in in_use for end in link_ends(cable) or ()}
        found: dict[str, tuple[str, ...]] = {}
        for device, left in self._left.items():
            by_cable = Counter(cable for _, *pair in left.ways.values() for cable in pair)
            ways = len(left.ways)
            beside = {cable: ways - number for cable, number in by_cable.items()}
            if device in crossed:
                others = len(left.instead)
                few = min(beside.values())
                if _nats(ways, others) >= CERTAIN_NATS and _nats(few, others) >= BESIDE_NATS:
                    found[device] = ()
            elif ways >= ENOUGH:
                found[device] = tuple(sorted(c for c, rest in beside.items() if rest < FEW))
        return found


def _nats(ways: int, instead: int) -> float:
    """How unlikely it is that so many ways, dealt out anew over a switch and others, all miss
    it."""
    return -ways * math.log1p(-1 / (instead + 1)) if instead else 0.0

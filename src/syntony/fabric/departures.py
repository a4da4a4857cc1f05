"""Whether a switch is down, from a sample of the paths that left it. Pure.

A switch that dies may lose no packet, because its neighbours see the carrier go and send around it.
The evidence is that paths which crossed it no longer do when they are traced again. Not all of them
need to be traced again: if the switch were up, some of the sample would still cross it, or others
would join it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from syntony.fabric.book import Way
from syntony.fabric.names import cable_name, link_ends
from syntony.model import S

CERTAIN_NATS = 10.0
"""Evidence needed that a switch is down: the probability that paths distributed at random over it
and its replacements all miss it must be below e to minus this."""
BESIDE_NATS = 5.0
"""… and this for paths that no single cable of the switch accounts for: if only one cable were lost
and the switch up, these would have had no reason to change."""
ENOUGH = 10
"""Paths that must have left if none of the switch's cables is known to be in use."""
RECENT_NS = 20 * S
"""A switch without an answer for this long before is silent: paths may still cross it."""
FEW = 3
"""Fewer paths beyond those of one cable are noise."""


class _Left:
    """Paths that left one switch since any crossed it."""

    def __init__(self) -> None:
        self.ways: dict[Way, tuple[int, str, str]] = {}
        """When each was found to have left, and the cables that it used to enter and leave the
        switch."""
        self.instead: set[str] = set()


class Departures:
    """Takes paths that changed, and decides which switches are down. Not thread-safe."""

    def __init__(self) -> None:
        self._left: dict[str, _Left] = {}
        """By switch; no path has crossed it since."""
        self._seen_ns: dict[str, int] = {}
        """Device → when it was last traced as answering."""
        self._before: dict[Way, Sequence[str | None]] = {}
        """Previous hops of paths that are only partly known since they changed."""

    def __contains__(self, switch: str) -> bool:
        """Whether any path has left a switch, and none has crossed it since."""
        return switch in self._left

    @property
    def answered_ns(self) -> Mapping[str, int]:
        """Device → fleet time at which the newest trace that it answered began."""
        return self._seen_ns

    def turned(
        self, way: Way, old: Sequence[str | None], new: Sequence[str | None], learnt_ns: int
    ) -> None:
        """A path goes elsewhere than before.

        Args:
            way: direction of a flow.
            old: its sender and the devices that answered.
            new: the same now. A silent hop may still be the old device and proves nothing until it
                is known. Empty: the path is no longer traced.
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
            since_ns = learnt_ns - self._seen_ns.get(device, 0)
            if since_ns <= 0 or (device not in self._left and since_ns > RECENT_NS):
                continue
            left = self._left.setdefault(device, _Left())
            left.ways[way] = (learnt_ns, cable_name(before, device), cable_name(device, after))
            if len(new) == len(old):
                left.instead.add(new[place] or "")

    def crossed(self, devices: Sequence[str | None], learnt_ns: int) -> None:
        """A path was traced across these devices: they were up after all departures before its
        trace began."""
        for device in filter(None, devices[1:]):
            self._seen_ns[device] = max(learnt_ns, self._seen_ns.get(device, 0))
            left = self._left.get(device)
            if left is None:
                continue
            left.ways = {way: it for way, it in left.ways.items() if it[0] > learnt_ns}
            if not left.ways:
                del self._left[device]

    def down(self, in_use: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Switches that are down → alternatives: cables that all of its paths shared.

        Args:
            in_use: cables that some path is known to cross still.
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
                if (
                    improbability(ways, others) >= CERTAIN_NATS
                    and improbability(few, others) >= BESIDE_NATS
                ):
                    found[device] = ()
            elif ways >= ENOUGH:
                found[device] = tuple(sorted(c for c, rest in beside.items() if rest < FEW))
        return found


def improbability(ways: int, instead: int) -> float:
    """Improbability, in nats, that this many paths, distributed at random over a switch and others,
    all miss it."""
    return -ways * math.log1p(-1 / (instead + 1)) if instead else 0.0

"""Whether a switch is down or a cable lost, from a sample of the paths that left it. Pure.

A part that dies may lose no packet, because its neighbours see the carrier go and send around it.
The evidence is that paths which crossed it no longer do when they are traced again. Not all of them
need to be traced again: if the part were up, some of the sample would still cross it, or others
would join it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from syntony.fabric.book import Way
from syntony.fabric.names import cable_name, link_ends
from syntony.model import S

CERTAIN_NATS = 10.0
"""Evidence needed that a switch is down, or a cable lost: the probability that paths distributed at
random over it and its replacements all miss it must be below e to minus this."""
BESIDE_NATS = 5.0
"""… and this for paths that no other single cable accounts for: if only that one were lost, these
would have had no reason to change."""
ENOUGH = 10
"""Paths that must have left if none of the switch's cables is known to be in use."""
LEFT_NS = 3_600 * S
"""Departures from a switch, or from a cable that is not lost, are dropped if none followed for this
long: even spare paths are traced every ten minutes, so that those which one cause sends elsewhere
are all known."""
RECENT_NS = 20 * S
"""A switch without an answer for this long before is silent: paths may still cross it."""
FEW = 3
"""Fewer paths beyond those of one cable are noise."""


class _Left:
    """Paths that left one switch, or one cable between switches, since any crossed it."""

    def __init__(self) -> None:
        self.ways: dict[Way, tuple[int, Iterable[str]]] = {}
        """When each was found to have left, and the cables that may be why: of a switch those
        that it used to enter and leave it, of a cable all that it no longer takes."""
        self.instead: set[str] = set()
        """What paths take in its place."""
        self.newest_ns = 0
        """When the newest was found to have left."""

    def add(self, way: Way, learnt_ns: int, cables: Iterable[str]) -> None:
        """A path left."""
        self.ways[way] = learnt_ns, cables
        self.newest_ns = max(self.newest_ns, learnt_ns)


class Departures:
    """Takes paths that changed, and decides which switches are down and which cables are lost. Not
    thread-safe."""

    def __init__(self) -> None:
        self._left: dict[str, _Left] = {}
        """By switch; no path has crossed it since."""
        self._left_cables: dict[str, _Left] = {}
        """The same by cable between switches."""
        self._lost = frozenset[str]()
        """Of these, the lost ones: until a path crosses them, evidence only grows."""
        self._seen_ns: dict[str, int] = {}
        """Device → when it was last traced as answering."""
        self._before: dict[Way, tuple[Sequence[str | None], int]] = {}
        """Previous hops of paths that are only partly known since they changed, and since when: it
        is then that they left, even if it is learnt much later where to."""

    def __contains__(self, switch: str) -> bool:
        """Whether any path has left a switch, and none has crossed it since."""
        return switch in self._left

    def left_ns(self, switch: str) -> int:
        """When the trace began of the newest path that left a switch, fleet time; 0: none did."""
        return self._left[switch].newest_ns if switch in self._left else 0

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
        old, left_ns = self._before.pop(way, (old, learnt_ns))
        if None in new:
            self._before[way] = old, left_ns
        if not new or None in new:
            return
        for place in range(2, len(old) - 1):
            before, device, after = old[place - 1 : place + 2]
            if before is None or device is None or after is None or device in new:
                continue
            since_ns = left_ns - self._seen_ns.get(device, 0)
            if since_ns <= 0 or (device not in self._left and since_ns > RECENT_NS):
                continue
            left = self._left.setdefault(device, _Left())
            left.add(way, left_ns, (cable_name(before, device), cable_name(device, after)))
            if len(new) == len(old):
                left.instead.add(new[place] or "")
        if learnt_ns - left_ns <= RECENT_NS:  # else it is unknown who crossed them since
            self._leave_cables(way, _between_switches(old), _between_switches(new), learnt_ns)

    def _leave_cables(
        self, way: Way, old: Sequence[str], new: Sequence[str], learnt_ns: int
    ) -> None:
        gone = frozenset(filter(None, old)).difference(new)
        for place, cable in enumerate(old):
            if cable in gone:
                left = self._left_cables.setdefault(cable, _Left())
                left.add(way, learnt_ns, gone)
                if len(new) == len(old):
                    left.instead.add(new[place])

    def crossed(self, devices: Sequence[str | None], learnt_ns: int) -> None:
        """A path was traced across these devices: they and the cables between them were up after
        all departures before its trace began."""
        for device in filter(None, devices[1:]):
            self._seen_ns[device] = max(learnt_ns, self._seen_ns.get(device, 0))
            _keep_later(self._left, device, learnt_ns)
        for cable in _between_switches(devices) if self._left_cables else ():
            if cable in self._left_cables:
                _keep_later(self._left_cables, cable, learnt_ns)
                self._lost -= {cable}

    def came_back(self, switch: str) -> None:
        """A switch is up again that was down: that paths left its cables is no evidence any
        more."""
        for cable in [each for each in self._left_cables if switch in (link_ends(each) or ())]:
            del self._left_cables[cable]
            self._lost -= {cable}

    def lost_cables(self, now_ns: int) -> frozenset[str]:
        """Cables between switches that are lost: paths left each of them, also such that no other
        cable accounts for, and both of its switches have answered other paths since."""
        self._left_cables = {
            cable: left
            for cable, left in self._left_cables.items()
            if now_ns - left.newest_ns < LEFT_NS or cable in self._lost
        }
        candidates: list[tuple[int, str, dict[Way, Iterable[str]]]] = []
        many = {
            cable: left for cable, left in self._left_cables.items() if len(left.ways) >= ENOUGH
        }
        if many.keys() <= self._lost:
            return self._lost
        for cable, left in many.items():
            up_ns = min(self._seen_ns.get(end, 0) for end in link_ends(cable) or (cable,))
            ways = {way: gone for way, (at_ns, gone) in left.ways.items() if at_ns < up_ns}
            candidates.append((-len(ways), cable, ways))
        lost, explained = set[str](), set[Way]()
        candidates.sort(key=lambda each: (each[1] not in self._lost, *each[:2]))
        for _, cable, ways in candidates:
            others = len(self._left_cables[cable].instead)
            own = [gone for way, gone in ways.items() if way not in explained]
            by_cable = Counter(each for gone in own for each in gone if each != cable)
            few = len(own) - max(by_cable.values(), default=0)
            certain = (
                improbability(len(ways), others) >= CERTAIN_NATS
                and improbability(few, others) >= BESIDE_NATS
            )
            if certain or cable in self._lost:
                lost.add(cable)
                explained |= ways.keys()
        self._lost = frozenset(lost)
        return self._lost

    def down(self, in_use: Iterable[str], now_ns: int) -> dict[str, tuple[str, ...]]:
        """Switches that are down → alternatives: cables that all of its paths shared. If some path
        may still cross it, a sample has to show that, and the alternatives are none, or both of its
        only two cables.

        Args:
            in_use: cables that some path is known to cross still.
            now_ns: fleet time.
        """
        self._left = {
            device: left for device, left in self._left.items() if now_ns - left.newest_ns < LEFT_NS
        }
        cables: dict[str, set[str]] = {}
        for cable in in_use:
            for end in link_ends(cable) or ():
                cables.setdefault(end, set()).add(cable)
        found: dict[str, tuple[str, ...]] = {}
        for device, left in self._left.items():
            by_cable = Counter(cable for _, pair in left.ways.values() for cable in pair)
            ways = len(left.ways)
            beside = {cable: ways - number for cable, number in by_cable.items()}
            if device in cables:
                others = len(left.instead)
                if improbability(ways, others) < CERTAIN_NATS:
                    continue
                unsure = [c for c, n in beside.items() if improbability(n, others) < BESIDE_NATS]
                own = cables[device] | by_cable.keys()
                if not unsure or len(own) == 2:
                    found[device] = tuple(sorted(unsure))
            elif ways >= ENOUGH:
                found[device] = tuple(sorted(c for c, rest in beside.items() if rest < FEW))
        return found


def improbability(ways: int, instead: int) -> float:
    """Improbability, in nats, that this many paths, distributed at random over a switch and others,
    all miss it."""
    return -ways * math.log1p(-1 / (instead + 1)) if instead else 0.0


def _keep_later(every: dict[str, _Left], part: str, learnt_ns: int) -> None:
    """Drop departures from a part that a path crossed afterwards."""
    left = every.get(part)
    if left is None:
        return
    left.ways = {way: it for way, it in left.ways.items() if it[0] > learnt_ns}
    if not left.ways:
        del every[part]


def _between_switches(devices: Sequence[str | None]) -> list[str]:
    """The cable between each device of a path and the next, the sender's left out; empty where
    either is unknown."""
    return [cable_name(a, b) if a and b and a != b else "" for a, b in pairwise(devices[1:])]

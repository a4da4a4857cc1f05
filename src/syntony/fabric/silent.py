"""Whether a switch that never answers is down, from the paths that took it. Pure.

Such a switch is known as a silent hop between two known devices. All pairs of devices that silent
hops connect are one *silent part* of the fabric: one switch, or several that cannot be told apart.
So are pairs that flows cross there and back, as a switch may answer with an address of each port.
It is down if paths that took it are traced across other switches, and none is traced across it
since. A part that begins to answer is not down: its device was not known before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from syntony.fabric.book import Way
from syntony.fabric.departures import BESIDE_NATS, CERTAIN_NATS, ENOUGH, FEW, improbability
from syntony.model import S

STEADY_NS = 60 * S
"""A hop must have been silent for this long: switches are busy and answers are lost for a while."""
RECENT_NS = 20 * S
"""A device that was not seen for this long before is new: it may be the silent one."""

Pair = tuple[str, str]
"""Devices before and behind a silent hop, sorted."""


class SilentPart(msgspec.Struct, frozen=True):
    """A silent part that is down."""

    pairs: tuple[Pair, ...]
    since_ns: int
    """When the trace began that was the first to miss it, fleet time."""
    cables_of: tuple[str, ...] = ()
    """Devices at it whose cable alone may be the cause: all of its paths took it."""

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices at it, sorted."""
        return tuple(sorted({device for pair in self.pairs for device in pair}))


class SilentSwitches:
    """Takes paths as they become known and are confirmed. Not thread-safe.

    Args:
        down: of a previous process.
    """

    def __init__(self, down: Iterable[SilentPart] = ()) -> None:
        self.down = {part.devices: part for part in down}
        """By the devices at it."""
        self._hop: dict[Way, _SilentHop] = {}
        self._ways: Counter[Pair] = Counter()
        self._both_ways: set[Pair] = set()
        """First devices of the pairs of a path and of the reply to it."""
        self._silent_ns: dict[Pair, tuple[int, int]] = {}
        """When the first and the newest trace across a silent hop began."""
        self._left: dict[Pair, dict[Way, tuple[int, str]]] = {}
        """Paths that left it since → when their traces began, and what they cross instead."""
        self._seen_ns: dict[str, tuple[int, int]] = {}
        """Device → since when it is seen at least every `RECENT_NS`, and when last."""

    def take(self, way: Way, hops: Sequence[str | None], learnt_ns: int) -> None:
        """A path that is new, or goes elsewhere than before.

        Args:
            way: direction of a flow.
            hops: its sender and the devices that answered, None for a silent one; empty if it is
                no longer traced.
            learnt_ns: when its trace began, fleet time.
        """
        old, new = self._hop.pop(way, None), _silent_hop(hops)
        if old is not None:
            self._ways[old.pair] -= 1
            instead = hops[old.number] if old.number < len(hops) - 1 else None
            if instead is not None:
                self._left.setdefault(old.pair, {})[way] = (learnt_ns, instead)
        if new is not None:
            self._hop[way] = new
            self._ways[new.pair] += 1
            back = self._hop.get(Way(way.dst, way.src, way.dport, way.sport))
            if back is not None and back.pair != new.pair:
                self._both_ways.add((new.pair[0], back.pair[0]))
        self.confirm(way, hops, learnt_ns)

    def confirm(self, way: Way, hops: Sequence[str | None], learnt_ns: int) -> None:
        """A path was traced as it is known."""
        for device in filter(None, hops[1:]):
            first_ns, last_ns = self._seen_ns.get(device, (learnt_ns, learnt_ns))
            if learnt_ns - last_ns > RECENT_NS:
                first_ns = learnt_ns
            self._seen_ns[device] = first_ns, max(last_ns, learnt_ns)
        hop = self._hop.get(way)
        if hop is None or hop != _silent_hop(hops):
            return
        pair = hop.pair
        first_ns, last_ns = self._silent_ns.get(pair, (learnt_ns, learnt_ns))
        self._silent_ns[pair] = first_ns, max(last_ns, learnt_ns)
        if pair in self._left:
            left = self._left[pair] = {
                each: it for each, it in self._left[pair].items() if it[0] > learnt_ns
            }
            if not left:
                del self._left[pair]
        for devices, part in tuple(self.down.items()):
            if pair in part.pairs and learnt_ns > part.since_ns:
                del self.down[devices]

    def settle(self) -> None:
        """Evaluate what is down."""
        if not self._left:
            return
        used = [pair for pair in self._silent_ns if self._ways[pair] or pair in self._left]
        for pairs in _joined(used, self._both_ways):
            part = self._part(pairs)
            if part is not None and part.devices not in self.down:
                self.down[part.devices] = part
                for pair in pairs:
                    self._left.pop(pair, None)

    def _part(self, pairs: Sequence[Pair]) -> SilentPart | None:
        """A silent part, if it is down."""
        spans = [self._silent_ns[pair] for pair in pairs]
        first_ns, last_ns = min(span[0] for span in spans), max(span[1] for span in spans)
        if last_ns - first_ns < STEADY_NS:
            return None
        left: dict[Way, Pair] = {}
        instead, since_ns = set[str](), []
        for pair in pairs:
            for way, (at_ns, device) in self._left.get(pair, {}).items():
                known_ns = self._seen_ns.get(device, (last_ns, 0))[0]
                if at_ns > last_ns > known_ns:
                    left[way] = pair
                    instead.add(device)
                    since_ns.append(at_ns)
        at = Counter(device for pair in left.values() for device in pair)
        beside = {device: len(left) - number for device, number in at.items()}
        if any(self._ways[pair] for pair in pairs):
            few = min(beside.values(), default=0)
            certain = improbability(len(left), len(instead)) >= CERTAIN_NATS
            if not certain or improbability(few, len(instead)) < BESIDE_NATS:
                return None
            return SilentPart(tuple(sorted(pairs)), min(since_ns))
        if len(left) < ENOUGH:
            return None
        cables_of = tuple(sorted(device for device, rest in beside.items() if rest < FEW))
        return SilentPart(tuple(sorted(pairs)), min(since_ns), cables_of)


class _SilentHop(NamedTuple):
    """The one silent hop of a path between its first and its last switch."""

    number: int
    pair: Pair


def _silent_hop(hops: Sequence[str | None]) -> _SilentHop | None:
    """None: a path has no such hop, or several."""
    found = [
        _SilentHop(number, (min(before, behind), max(before, behind)))
        for number, (before, hop, behind) in enumerate(
            zip(hops[1:], hops[2:], hops[3:], strict=False), 2
        )
        if hop is None and before is not None and behind is not None
    ]
    return found[0] if len(found) == 1 else None


def _joined(pairs: Sequence[Pair], both_ways: Iterable[Pair]) -> list[list[Pair]]:
    """The pairs by silent part: those that share a device, or are taken there and back."""
    parts: list[tuple[set[str], list[Pair]]] = []
    found = {device for pair in pairs for device in pair}
    more = [pair for pair in both_ways if found.issuperset(pair)]
    for ends, own in [*((pair, [pair]) for pair in pairs), *((pair, []) for pair in more)]:
        touched = [part for part in parts if not part[0].isdisjoint(ends)]
        parts = [part for part in parts if part[0].isdisjoint(ends)]
        devices = {*ends}.union(*(part[0] for part in touched))
        parts.append((devices, [*own, *(pair for part in touched for pair in part[1])]))
    return [each for _, each in parts]

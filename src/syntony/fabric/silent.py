"""Whether a switch that never answers is down, from the paths that took it. Pure.

Such a switch is known as a silent hop between two known devices. All pairs of devices that silent
hops connect are one *silent part* of the fabric: one switch, or several that cannot be told apart.
So are pairs that flows cross there and back, as a switch may answer with an address of each port.
It is down if paths that took it are traced across other switches, and none is traced across it
since. Silence may have other reasons: a switch that limits its answers, or answers some hosts only.
`syntony.fabric.silence` says where these are possible; nothing is said to be down there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from syntony.fabric.book import Way
from syntony.fabric.departures import ENOUGH, FEW
from syntony.fabric.silence import MEMORY_NS, ROUNDS_NS, TWICE_NS, Answers, Pair, Span, span
from syntony.model import S

KNOWN_NS = 30 * S
"""A silent part must have been known for this long: switches are busy for a while."""
STEADY_NS = 100 * S
"""If it has not been known for this long, lost answers count as little as `FEW_SHARE`."""
HOLD_NS = 10 * S
"""For so long after the first paths left, others may be found to have joined it …"""
FEW_SHARE = 0.1
"""… or not to have left: of either, this share of those that left is noise."""
DROP_NS = 20 * S
"""Interval at which what is old is forgotten."""


class SilentPart(msgspec.Struct, frozen=True):
    """A silent part that is down."""

    pairs: tuple[Pair, ...]
    since_ns: int
    """When the trace began that was the first to miss it, fleet time."""
    cables_of: tuple[str, ...] = ()
    """Devices at it whose cable alone may be the cause: all of its paths took it."""
    names: tuple[str, ...] = ()
    """What it was called when it was found, and cables that may be the cause instead."""

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices at it, sorted."""
        return tuple(sorted({device for pair in self.pairs for device in pair}))


class _SilentHop(NamedTuple):
    """The one silent hop of a path between its first and its last switch."""

    number: int
    before: str
    behind: str

    @property
    def pair(self) -> Pair:
        return min(self.before, self.behind), max(self.before, self.behind)


class _Left(NamedTuple):
    """A path that was silent in two traces at least, and crosses something else."""

    hop: _SilentHop
    at_ns: int
    """When that trace began."""
    instead: str


class SilentSwitches:
    """Takes paths as they become known and are confirmed. Not thread-safe.

    Args:
        down: of a previous process.
    """

    def __init__(self, down: Iterable[SilentPart] = ()) -> None:
        self.down = {part.devices: part for part in down}
        """By the devices at it when it was found."""
        self._back: defaultdict[tuple[str, ...], dict[Way, Span]] = defaultdict(dict)
        """Of what is down, paths that are silent there since."""
        self._hop: dict[Way, tuple[_SilentHop, Span]] = {}
        self._ways: Counter[Pair] = Counter()
        self._both_ways: set[Pair] = set()
        """First devices of the pairs of a path and of the reply to it."""
        self._silent: dict[Pair, Span] = {}
        self._left: dict[Way, _Left] = {}
        self._answers = Answers()
        self._part_of: dict[Pair, list[Pair]] = {}
        """Emptied when pairs change."""
        self._now_ns = self._dropped_ns = 0

    def take(self, way: Way, hops: Sequence[str | None], learnt_ns: int) -> None:
        """A path that is new, or goes elsewhere than before.

        Args:
            way: direction of a flow.
            hops: its sender and the devices that answered, None for a silent one; empty if it is
                no longer traced.
            learnt_ns: when its trace began, fleet time.
        """
        self._answers.changed(way, hops)
        old, new = self._hop.get(way), _silent_hop(hops)
        if old is None or old[0] != new:
            self._move(way, new, hops, learnt_ns)
        self.confirm(way, hops, learnt_ns)

    def confirm(self, way: Way, hops: Sequence[str | None], learnt_ns: int) -> None:
        """A path was traced as it is known."""
        self._now_ns = max(self._now_ns, learnt_ns)
        known, hop = self._hop.get(way), _silent_hop(hops)
        self._answers.traced(way, hops, learnt_ns, missed=known is None and hop is not None)
        if known is None or hop != known[0]:
            return
        self._hop[way] = hop, span(known[1], learnt_ns)
        if hop.pair not in self._silent:
            self._part_of.clear()
        self._silent[hop.pair] = span(self._silent.get(hop.pair), learnt_ns)
        for devices, part in self.down.items():
            if learnt_ns > part.since_ns and not {*hop.pair}.isdisjoint(part.devices):
                returned = self._back[devices]
                returned[way] = span(returned.get(way), learnt_ns)

    def settle(self) -> None:
        """Evaluate what is down, and what no longer is."""
        self._drop_old()
        for devices in tuple(self._back):
            if self._is_back(self._back[devices]):
                del self.down[devices], self._back[devices]
        if len(self._left) < ENOUGH:
            return
        if not self._part_of:
            for pairs in _joined(self._silent, self._both_ways):
                self._part_of |= dict.fromkeys(pairs, pairs)
        left: dict[int, dict[Way, _Left]] = defaultdict(dict)
        for way, it in self._left.items():
            left[id(self._part_of[it.hop.pair])][way] = it
        for ways in left.values():
            if len(ways) >= ENOUGH:
                self._evaluate(self._part_of[next(iter(ways.values())).hop.pair], ways)

    # --- internal ---

    def _move(
        self, way: Way, new: _SilentHop | None, hops: Sequence[str | None], learnt_ns: int
    ) -> None:
        """A path is no longer silent where it was, or is silent elsewhere than before."""
        old = self._hop.pop(way, None)
        for returned in self._back.values():
            returned.pop(way, None)
        if new is not None or not hops:
            self._left.pop(way, None)
        if old is not None:
            self._ways[old[0].pair] -= 1
            left = _left(*old, hops, learnt_ns)
            if left is not None:
                self._left[way] = left
        if new is not None:
            self._hop[way] = new, Span(learnt_ns, learnt_ns)
            self._ways[new.pair] += 1
            back = self._hop.get(Way(way.dst, way.src, way.dport, way.sport))
            if back is not None and back[0].pair != new.pair:
                ends = new.pair[0], back[0].pair[0]
                if ends not in self._both_ways:
                    self._both_ways.add(ends)
                    self._part_of.clear()

    def _drop_old(self) -> None:
        """Forget what was not traced for long."""
        if self._now_ns - self._dropped_ns < DROP_NS:
            return
        self._dropped_ns, old_ns = self._now_ns, self._now_ns - MEMORY_NS
        self._left = {way: it for way, it in self._left.items() if it.at_ns > old_ns}
        needed = {it.hop.pair for it in self._left.values()}
        gone = [
            pair
            for pair, silent in self._silent.items()
            if silent.last_ns < old_ns and not self._ways[pair] and pair not in needed
        ]
        for pair in gone:
            del self._silent[pair], self._ways[pair]
            self._part_of.clear()
        self._answers.drop(self._now_ns)

    def _is_back(self, ways: Mapping[Way, Span]) -> bool:
        """Whether paths are silent there again, in two rounds each, and more than answers are lost:
        one that was not traced for long looks like that while its new switch does not answer."""
        sure = [way for way, it in ways.items() if it.last_ns - it.first_ns >= ROUNDS_NS]
        if len(sure) < FEW:
            return False
        return len(sure) > self._answers.lost({self._hop[way][0].before for way in sure})

    def _evaluate(self, pairs: list[Pair], ways: Mapping[Way, _Left]) -> None:
        part = self._part(pairs, ways)
        if part is None:
            return
        for way in ways:
            del self._left[way]
        for devices, known in self.down.items():
            if not {*known.pairs}.isdisjoint(pairs):
                more = tuple(sorted({*known.pairs, *pairs}))
                self.down[devices] = msgspec.structs.replace(known, pairs=more)
                return
        self.down[part.devices] = part

    def _part(self, pairs: Sequence[Pair], ways: Mapping[Way, _Left]) -> SilentPart | None:
        """A silent part, if it is down."""
        first_ns = min(self._silent[pair].first_ns for pair in pairs)
        last_ns = max(self._silent[pair].last_ns for pair in pairs)
        if last_ns - first_ns < KNOWN_NS:
            return None
        steady = last_ns - first_ns >= STEADY_NS
        left = {
            way: it
            for way, it in ways.items()
            if it.at_ns > last_ns and self._answers.regular(way, it.instead, last_ns)
        }
        if len(left) < ENOUGH or not self._is_silent_for_all(pairs, left, last_ns, steady):
            return None
        since_ns = min(it.at_ns for it in left.values())
        if self._now_ns - since_ns < HOLD_NS or self._is_in_use(pairs, len(left), since_ns):
            return None
        at = Counter(device for it in left.values() for device in it.hop.pair)
        cables_of = tuple(sorted(each for each, ways_at in at.items() if len(left) - ways_at < FEW))
        return SilentPart(tuple(sorted(pairs)), since_ns, cables_of)

    def _is_in_use(self, pairs: Sequence[Pair], left: int, since_ns: int) -> bool:
        """Whether more than a few paths are silent there still. Agents trace first those that are
        answered: if all paths were distributed anew, most of the first ones would have left too."""
        part, old_ns = {*pairs}, since_ns - MEMORY_NS
        hops = self._hop.values()
        still = sum(hop.pair in part and silent.last_ns > old_ns for hop, silent in hops)
        return still > FEW_SHARE * left

    def _is_silent_for_all(
        self, pairs: Sequence[Pair], left: Mapping[Way, _Left], last_ns: int, steady: bool
    ) -> bool:
        """Whether nothing else explains the silence of these paths than a switch that answers
        nobody."""
        answers, total = self._answers, len(left)
        sides = Counter(it.hop.before for it in left.values())
        instead = Counter(it.instead for it in left.values())
        lost, noise = answers.lost(sides), total if steady else FEW_SHARE * total
        if total - max(sides.values()) < FEW or lost >= noise:
            return False
        if lost > FEW_SHARE * answers.answered(sides, last_ns):
            return False
        if answers.missed(sides) > FEW_SHARE * total:
            return False
        there = answers.devices(pairs)
        if len(there | instead.keys()) > 1 and total - max(instead.values()) < FEW:
            return False
        since_ns = min(it.at_ns for it in left.values())
        return answers.all_since(there, since_ns) and not answers.hidden_from(sides, pairs, last_ns)


def _left(
    hop: _SilentHop, silent: Span, hops: Sequence[str | None], learnt_ns: int
) -> _Left | None:
    """None: the path was not silent for long, or it is unknown what it crosses instead."""
    if hop.number >= len(hops) - 1 or hops[hop.number - 1] != hop.before:
        return None
    instead = hops[hop.number]
    if instead is None or silent.last_ns - silent.first_ns < TWICE_NS:
        return None
    return _Left(hop, learnt_ns, instead)


def _silent_hop(hops: Sequence[str | None]) -> _SilentHop | None:
    """None: a path has no such hop, or several."""
    found = [
        _SilentHop(number, before, behind)
        for number, (before, hop, behind) in enumerate(
            zip(hops[1:], hops[2:], hops[3:], strict=False), 2
        )
        if hop is None and before is not None and behind is not None
    ]
    return found[0] if len(found) == 1 else None


def _joined(pairs: Iterable[Pair], both_ways: Iterable[Pair]) -> list[list[Pair]]:
    """The pairs by silent part: those that share a device, or are taken there and back."""
    above: dict[str, str] = {}

    def top(device: str) -> str:
        while (higher := above.setdefault(device, device)) != device:
            above[device] = above[higher]
            device = higher
        return device

    for a, b in pairs:
        above[top(a)] = top(b)
    for a, b in both_ways:
        if a in above and b in above:
            above[top(a)] = top(b)
    parts: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        parts[top(pair[0])].append(pair)
    return list(parts.values())

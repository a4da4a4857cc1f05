"""Which addresses may be of one switch, from paths that are traced with one or the other. Pure.

A switch may answer with any of its addresses. Without a topology each looks like a switch of its
own, and its death like that of several. Paths that turn from one to the other, between the same
devices, while both go on answering, show that they are one switch, or that paths are distributed
anew over several. So names are joined only if all that paths turned between die together.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence

from syntony.fabric.names import link_ends
from syntony.model import S

MANY = 3
"""So many paths that turn between two addresses are no accident."""
KEPT = 16
"""Of one pair of addresses so many turns are kept, the newest."""
ROUND_NS = 65 * S
"""One round of tracing. Addresses of a switch that dies answer last within it; paths rerouted
within it are reported together, and a moved cable's old place has this long to show that it is
gone."""


class Aliases:
    """Takes paths that changed. Not thread-safe.

    Args:
        named: devices that a topology names: each is one switch.
    """

    def __init__(self, named: Container[str] = ()) -> None:
        self._named = named
        self._turns: dict[frozenset[str], dict[Hashable, tuple[str, int]]] = {}
        """Two addresses → paths that turned between them: the one that each left last, and when its
        trace began."""

    def turned(
        self, way: Hashable, old: Sequence[str | None], new: Sequence[str | None], at_ns: int
    ) -> None:
        """A path goes elsewhere than before.

        Args:
            way: names it.
            old: its sender and the devices that answered.
            new: the same now.
            at_ns: when its trace began, fleet time.
        """
        differ = [(a, b) for a, b in zip(old, new, strict=False) if a != b]
        if len(old) != len(new) or len(differ) != 1:
            return
        ((left, joined),) = differ
        if left is None or joined is None or (left in self._named and joined in self._named):
            return
        turns = self._turns.setdefault(frozenset((left, joined)), {})
        turns.pop(way, None)
        turns[way] = left, at_ns
        if len(turns) > KEPT:
            del turns[next(iter(turns))]

    def of(self, device: str, left_ns: int, answered_ns: Mapping[str, int]) -> frozenset[str]:
        """Other addresses that may be of a switch that is down and answered last when it did; none
        if any has answered since.

        Args:
            device: one of its addresses.
            left_ns: when the trace began of the newest path that left it, fleet time.
            answered_ns: device → when the newest trace began that it answered.
        """
        found, open_ends = {device}, [device]
        while open_ends:
            one = open_ends.pop()
            for pair, turns in self._turns.items():
                if one not in pair or pair <= found:
                    continue
                # One that answers no more was left because it is dead.
                alive = sum(answered_ns.get(left, 0) > at_ns for left, at_ns in turns.values())
                if alive >= MANY:
                    open_ends += pair - found
                    found |= pair
        others = found - {device}
        if any(answered_ns.get(other, 0) >= left_ns for other in others):
            return frozenset()
        last_ns = answered_ns.get(device, 0)
        return frozenset(n for n in others if abs(answered_ns.get(n, 0) - last_ns) <= ROUND_NS)


def joined(down: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """Names of each switch that is down, and of what may be meant or the cause instead: together
    for those that may be one switch.

    Args:
        down: switch → its other addresses, and cables that may be the cause instead.
    """
    groups: list[set[str]] = []
    for switch, instead in down.items():
        names = {switch, *instead}
        same = [group for group in groups if any(n in group and not link_ends(n) for n in names)]
        groups = [group for group in groups if group not in same]
        groups.append(names.union(*same))
    return [tuple(sorted(group)) for group in groups]

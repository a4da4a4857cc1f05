"""Asking between two NICs on more source ports than usual, where something hangs. Pure.

Of the few ports that are watched all the time too few may pass the part of the fabric that a job's
flow has lost, and they are asked too seldom for it to be known soon; or all of them may, and both
NICs live though none of these is answered.
"""

from __future__ import annotations

from collections.abc import Callable

from syntony.model import MS, S
from syntony.traffic.pairs import Pair

HANGS_NS, HANGS_RTTS = 30 * MS, 2
"""Data without an acknowledgement for so long, and for so many round trips, are worth asking:
half of what makes a flow stalled."""
ASKS_NS = 250 * MS
"""For so long it is asked fast: until a port is dead that is late by 150 ms at times."""
AGAIN_NS = 1 * S
"""Between two times for one pair: where flows hang all the time, it costs little."""
PARTIAL_NS = 1 * S
"""A pair that was found reachable in part is taken to be so for so long, then looked at again."""
MOST = 4
"""Pairs at a time; a host on which more hang has other troubles."""


class ExtraPortProbing:
    """Of all pairs of one host. Instants are of CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._until_ns: dict[Pair, int] = {}
        self._partial_ns: dict[Pair, int] = {}
        """Those that were found reachable in part, to when to look again."""
        self._free_ns: dict[Pair, int] = {}

    @property
    def suspect(self) -> frozenset[Pair]:
        """To be asked on more ports, and fast."""
        return frozenset(self._until_ns)

    @property
    def partial(self) -> frozenset[Pair]:
        """To be asked on more ports for as long as it lasts."""
        return frozenset(self._partial_ns)

    def begin(self, pair: Pair, now_ns: int) -> bool:
        """Something hangs there; whether the pair is to be asked from now on."""
        if pair in self._partial_ns or now_ns < self._free_ns.get(pair, 0):
            return False
        if len(self._until_ns) >= MOST:
            return False
        self._free_ns = {each: at for each, at in self._free_ns.items() if at > now_ns}
        self._free_ns[pair] = now_ns + AGAIN_NS
        self._until_ns[pair] = now_ns + ASKS_NS
        return True

    def due_ns(self) -> int | None:
        """When to call `end`."""
        return min((*self._until_ns.values(), *self._partial_ns.values()), default=None)

    def end(self, now_ns: int, partial: Callable[[Pair], bool]) -> bool:
        """Asked for long enough; whether anything is to be asked otherwise now."""
        requested = [pair for pair, at_ns in self._until_ns.items() if at_ns <= now_ns]
        looked = [pair for pair, at_ns in self._partial_ns.items() if at_ns <= now_ns]
        for pair in (*requested, *looked):
            self._until_ns.pop(pair, None)
            self._partial_ns.pop(pair, None)
        still = [pair for pair in (*requested, *looked) if partial(pair)]
        self._partial_ns |= dict.fromkeys(still, now_ns + PARTIAL_NS)
        return bool(requested) or len(still) < len(looked)

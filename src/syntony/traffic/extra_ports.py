"""Probe pairs on which data hang on more source ports than usual. Pure.

Too few of the ports that are always probed may cross the faulty part of the fabric, and they are
probed too seldom to show it soon. Or all of them may cross it, and none is answered although both
NICs work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection

from syntony.model import MS, S
from syntony.traffic.pairs import Pair
from syntony.traffic.probe_plan import PlannedNics

HANGS_NS, HANGS_RTTS = 30 * MS, 2
"""Minimum time, and round trips, without an acknowledgement: half of what makes a flow stalled."""
PROBING_NS = 250 * MS
"""Duration of fast probing: until a port is dead whose replies are late by 150 ms at times."""
AGAIN_NS = 1 * S
"""Minimum interval for one pair, which limits the cost where flows hang all the time."""
PARTIAL_NS = 1 * S
"""A partially reachable pair is examined again after this time."""
MAX_PAIRS = 4
"""Maximum pairs at a time; a host on which more hang has other problems."""


class ExtraPortProbing:
    """Pairs of one host that are probed on more ports. Instants are CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._until_ns: dict[Pair, int] = {}
        self._partial_ns: dict[Pair, int] = {}
        """Partially reachable pairs → when to examine them again."""
        self._free_ns: dict[Pair, int] = {}

    @property
    def suspect(self) -> frozenset[Pair]:
        """Pairs to probe on more ports, and fast."""
        return frozenset(self._until_ns)

    @property
    def partial(self) -> frozenset[Pair]:
        """Partially reachable pairs, to probe on more ports while this lasts."""
        return frozenset(self._partial_ns)

    def begin(self, pair: Pair, now_ns: int) -> bool:
        """Data hang on a pair; returns whether it is to be probed from now on."""
        if pair in self._partial_ns or now_ns < self._free_ns.get(pair, 0):
            return False
        if len(self._until_ns) >= MAX_PAIRS:
            return False
        self._free_ns = {each: at for each, at in self._free_ns.items() if at > now_ns}
        self._free_ns[pair] = now_ns + AGAIN_NS
        self._until_ns[pair] = now_ns + PROBING_NS
        return True

    def due_ns(self) -> int | None:
        """When to call `end`."""
        return min((*self._until_ns.values(), *self._partial_ns.values()), default=None)

    def end(self, now_ns: int, partial: Callable[[Pair], bool]) -> bool:
        """End probing that is due; returns whether the set of probed pairs has changed."""
        requested = [pair for pair, at_ns in self._until_ns.items() if at_ns <= now_ns]
        looked = [pair for pair, at_ns in self._partial_ns.items() if at_ns <= now_ns]
        for pair in (*requested, *looked):
            self._until_ns.pop(pair, None)
            self._partial_ns.pop(pair, None)
        still = [pair for pair in (*requested, *looked) if partial(pair)]
        self._partial_ns |= dict.fromkeys(still, now_ns + PARTIAL_NS)
        return bool(requested) or len(still) < len(looked)


WITNESSES = 2
"""Least number of local NICs, and of the peer's NICs, in the watched pairs of a peer. With fewer,
silence of all pairs may be the fault of one NIC."""


def with_witnesses(
    used: Collection[Pair], plan: PlannedNics, fit: Callable[[str], bool]
) -> frozenset[Pair]:
    """The pairs in use, and for each peer the fewest additional planned pairs that are needed to
    attribute silence: a peer whose agent is late is silent on all pairs, a dead path is silent
    alone. Jobs' own paths may be missing from the plan, and its pairs may be unused by jobs.

    Args:
        used: pairs in use by jobs: local NIC and probed remote address.
        plan: the present probe plan.
        fit: whether a local NIC can be a witness now: it has a carrier.
    """
    by_host: dict[str, set[Pair]] = defaultdict(set)
    for flow in plan.flows.values():
        by_host[flow.host].add((flow.nic, flow.remote))
    found = set(used)
    for planned in by_host.values():
        watched = planned & found
        spare = {pair for pair in planned - found if fit(pair[0])} if watched else set()
        while spare:
            best = max(sorted(spare), key=lambda pair: _news(pair, watched))
            if not _news(best, watched):
                break
            watched.add(best)
            spare.remove(best)
        found |= watched
    return frozenset(found)


def _news(pair: Pair, watched: Collection[Pair]) -> int:
    """How many of its two NICs are needed and not in a watched pair yet."""
    return sum(
        len(known) < WITNESSES and nic not in known
        for nic, known in zip(pair, map(set, zip(*watched, strict=True)), strict=True)
    )

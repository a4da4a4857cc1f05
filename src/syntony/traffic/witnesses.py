"""Pairs of NICs to watch in addition to those in use, so that silence can be attributed. Pure.

A peer whose agent is late is silent on all pairs; a dead path is silent alone. A single watched
pair of a peer cannot distinguish the two. Jobs' own paths may be missing from the probe plan, and
the plan's pairs may be unused by jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection

from syntony.traffic.pairs import Pair
from syntony.traffic.probe_plan import PlannedNics

WITNESSES = 2
"""Least number of local NICs, and of the peer's NICs, in the watched pairs of a peer. With fewer,
silence of all pairs may be the fault of one NIC."""


def with_witnesses(
    used: Collection[Pair], plan: PlannedNics, fit: Callable[[str], bool]
) -> frozenset[Pair]:
    """The pairs in use, and for each peer the fewest additional planned pairs that are needed.

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

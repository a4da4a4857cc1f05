"""Flows that wait longer than the queues on their paths, as other flows across them show.

All packets wait in the queue of a link. A flow that waits far longer than all flows on every part
of its path is delayed by something of its own: a detour, a rate limit, its queue pair.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from syntony.workload.bundle import Floats
from syntony.workload.flows import LATE_RATIO, Flows
from syntony.workload.grid import Episode, K, episode, median

LONGEST = 0.05
"""Share of its windows in which a flow waits about as long as it ever does: the third longest of
seven delays is an ordinary one."""
STAYS = 0.9
"""Minimum share of the windows since the flow began to wait in which it waits longer: a queue of
bursts drains between them."""


def beyond_queues(flows: Flows) -> dict[int, Episode]:
    """Late flows that began to wait twice as long as the queues on their paths explain, and twice
    as long as before; and when."""
    found, queues = {}, _Queues(flows)
    for flow in flows.late:
        limit = LATE_RATIO * queues.longest_ns(flow)
        if not queues.waits_ns[flow] > limit:
            continue
        excess, known = flows.excess[flow], np.isfinite(flows.delay[flow])
        part = episode(flows.waiting[flow] & (flows.delay[flow] > limit), known)
        if part is None or part.share < STAYS or known[: part.first].sum() < K:
            continue
        before_ns = float(median(excess[: part.first]))
        if flows.mean_over(flows.excess, flow, part) > LATE_RATIO * before_ns:
            found[flow] = part
    return found


class _Queues:
    """The queues on paths; flows that cross the same links are looked up once."""

    def __init__(self, flows: Flows) -> None:
        self.flows = flows
        self.waits_ns = _long_waits_ns(flows.delay, 1.0)
        self.longest_waits_ns = _long_waits_ns(flows.delay, LONGEST)
        self._longest: dict[tuple[str, ...], list[tuple[float, int]]] = {}

    def longest_ns(self, flow: int) -> float:
        """How long packets of a flow can wait in the queues on its path, in ns; infinite if no
        other flow crosses one of its links.

        Each flow across several links in series waits for as long as all of their queues. The path
        is cut into parts that other flows cross whole, so that the sum of their waits is least.
        """
        hops = self.flows.hops[flow]
        if not hops:
            return math.inf
        least = [0.0] + [math.inf] * len(hops)
        for begin in range(len(hops)):
            for end in range(begin + 1, len(hops) + 1):
                waits = [wait for wait, mate in self._two_longest(hops[begin:end]) if mate != flow]
                least[end] = min(least[end], least[begin] + (waits[0] if waits else math.inf))
        return least[-1]

    def _two_longest(self, links: tuple[str, ...]) -> list[tuple[float, int]]:
        """Of the flows that cross all of these links, the two that wait longest, with how long."""
        if links not in self._longest:
            mates = set.intersection(*(self.flows.across[each] for each in links))
            known = [(float(self.longest_waits_ns[each]), each) for each in mates
                     if np.isfinite(self.longest_waits_ns[each])]  # fmt: skip
            self._longest[links] = heapq.nlargest(2, known)
        return self._longest[links]


def _long_waits_ns(delay: Floats, share: float) -> Floats:
    """Delay that each flow reaches in K windows, or in this share of its windows if that is fewer,
    in ns, (flows,), also where it always waits; NaN if it has fewer than K."""
    known = np.isfinite(delay)
    counts = known.sum(axis=1)
    place = np.minimum(K - 1, (share * counts).astype(int))
    ordered = -np.sort(-np.where(known, delay, -np.inf), axis=1)
    longest = ordered[np.arange(len(delay)), np.minimum(place, delay.shape[1] - 1)]
    waits: Floats = np.where(counts >= K, np.maximum(longest, 0.0), np.nan)
    return waits

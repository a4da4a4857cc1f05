"""Max-min rates of flows whose packets are spread evenly over several paths. Pure."""

from __future__ import annotations

import numpy as np

from syntony.sim.fluid.net import LivingPaths
from syntony.traffic.fair import TIE, Floats, Sharer

ROUNDS = 10_000


def max_min_split(
    candidates: LivingPaths, capacity: Floats, weight: Floats, share: Sharer
) -> Floats:
    """Rates, (flows,): as `traffic.fair.max_min`, each flow loading all its paths alike.

    Args:
        candidates: paths of each flow.
        capacity: of each link, (links,).
        weight: of each flow, (flows,).
        share: for flows that all have one path.
    """
    first, _, ways = candidates
    counts = np.diff(first)
    flows = len(counts)
    if (counts == 1).all():
        return share(ways, capacity, weight)
    owner = np.repeat(np.arange(flows), counts)
    part = np.repeat(1 / counts, counts)
    hops = ways.shape[1]
    # One entry for each (flow, link) with what part of the flow crosses it.
    flat = ways.ravel()
    keep = flat >= 0
    key = np.repeat(owner, hops)[keep].astype(np.int64) * len(capacity) + flat[keep]
    pairs, where = np.unique(key, return_inverse=True)
    amount = np.bincount(where, np.repeat(part, hops)[keep])
    flow, link = np.divmod(pairs, len(capacity))
    room = capacity.astype(np.float64).copy()
    rates = np.zeros(flows)
    for _ in range(ROUNDS):
        pull = np.bincount(link, amount * weight[flow], len(capacity))
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.where(pull > 0, room / pull, np.inf)
        best = np.full(flows, np.inf)
        np.minimum.at(best, flow, level[link])
        tight = np.full(len(capacity), np.inf)
        np.minimum.at(tight, link, best[flow])
        settled = level <= tight * (1 + TIE)
        done = np.zeros(flows, dtype=bool)
        done[flow[settled[link]]] = True
        rates[done] = best[done] * weight[done]
        gone = done[flow]
        room -= np.bincount(link[gone], amount[gone] * rates[flow[gone]], len(capacity))
        room = np.maximum(room, 0)
        flow, link, amount = flow[~gone], link[~gone], amount[~gone]
        if not len(flow):
            break
    return rates

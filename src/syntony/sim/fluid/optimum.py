"""What no placement can beat: max-min rates if flows could be split at will. Pure.

All links that the paths of a flow may take at one stage (its leaf's cables up, the other leaf's
cables down) count as one link of their common capacity. In a fabric where every leaf reaches every
spine alike that is exact; with dead cables it is a bound from above, and a near one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from syntony.sim.fluid.field import Field
from syntony.sim.fluid.net import Candidates, Numbers
from syntony.traffic.fair import Floats, Ints


class Optimum(NamedTuple):
    """Bounds, as parts of what each flow would get if only NICs were in its way."""

    rate_mean: float
    rate_min: float
    pinned_min: float
    """Bound of the minimum where flows cannot be split: of n like flows over m like links some
    link has n/m rounded up."""


def optimum(field: Field, flows: Numbers) -> Optimum:
    """Of flows that all run at once."""
    candidates = field.candidates(flows)
    groups, stages = _stages(candidates, field.net.links)
    capacity = np.zeros(field.net.links)
    np.add.at(capacity, groups, field.net.capacity)
    traffic = field.traffic
    weight = np.ones(len(flows)) if traffic.weight is None else traffic.weight[flows]
    rate = field.share(stages, capacity, weight)
    wanted = field.wanted(flows)
    share = rate / wanted
    pinned = _pinned(stages, groups, field.net.capacity, wanted)
    return Optimum(float(share.mean()), float(share.min()), min(pinned, float(share.min())))


def _stages(candidates: Candidates, links: int) -> tuple[Numbers, Ints]:
    """Group of each link, (links,), and each flow's groups, (flows, hops)."""
    parent = np.arange(links)
    first, _, ways = candidates
    owner = np.repeat(np.arange(len(first) - 1), np.diff(first))
    head = ways[first[:-1]]
    # Links at one stage of one flow belong together: label propagation until nothing changes.
    while True:
        before = parent.copy()
        for hop in range(ways.shape[1]):
            mine, lead = ways[:, hop], head[owner, hop]
            both = (mine >= 0) & (lead >= 0)
            low = np.minimum(parent[mine[both]], parent[lead[both]])
            np.minimum.at(parent, mine[both], low)
            np.minimum.at(parent, lead[both], low)
        parent = parent[parent]
        if (parent == before).all():
            break
    stages = np.where(head >= 0, parent[head], -1).astype(np.int32)
    return parent, stages


def _pinned(stages: Ints, groups: Numbers, capacity: Floats, wanted: Floats) -> float:
    """See `Optimum.pinned_min`; 1 where flows or links differ too much to say."""
    worst = 1.0
    for group in np.unique(stages[stages >= 0]).tolist():
        mine = wanted[(stages == group).any(axis=1)]
        alive = capacity[(groups == group) & (capacity > 0)]
        if not len(alive) or np.ptp(mine) > 1e-9 or np.ptp(alive) > 1e-9:
            continue
        most = -(-len(mine) // len(alive))
        worst = min(worst, float(alive[0] / (most * mine[0])))
    return worst

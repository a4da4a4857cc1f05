"""Upper bounds of any placement: max-min rates if flows could be split at will. Pure.

All links that the paths of a flow may take at one stage (its leaf's cables up, the other leaf's
cables down) count as one link of their common capacity. In a fabric where every leaf reaches every
spine alike that is exact; with dead cables it is a bound from above, and a near one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from syntony.sim.fluid.field import Field
from syntony.sim.fluid.net import Numbers
from syntony.traffic.fair import Floats, Ints

SAME = 1e-9
"""Relative difference up to which flows, or links, are alike."""


class Optimum(NamedTuple):
    """Bounds, as shares of the ideal rates, which only NICs limit."""

    rate_mean: float
    rate_min: float
    pinned_min: float
    """Bound of the minimum where flows cannot be split: of n like flows over m like links some
    link has n/m rounded up."""


def optimum(field: Field, flows: Numbers) -> Optimum:
    """Of flows that all run at once."""
    net, traffic = field.net, field.traffic
    src, dst = traffic.src[flows], traffic.dst[flows]
    groups = net.alternatives(src, dst)
    head = net.path(src, dst, np.zeros(len(flows), dtype=np.int64))
    stages = np.where(head >= 0, groups[head], -1).astype(np.int32)
    capacity = np.zeros(net.links)
    np.add.at(capacity, groups, net.capacity)
    weight = np.ones(len(flows)) if traffic.weight is None else traffic.weight[flows]
    rate = field.share(stages, capacity, weight)
    ideal_rates = field.ideal_rates(flows)
    share = rate / ideal_rates
    pinned = _pinned(stages, groups, net.capacity, ideal_rates)
    return Optimum(float(share.mean()), float(share.min()), min(pinned, float(share.min())))


def _pinned(stages: Ints, groups: Numbers, capacity: Floats, ideal_rates: Floats) -> float:
    """See `Optimum.pinned_min`; groups whose flows or links differ are left out."""
    count = len(capacity)
    crossed = stages >= 0
    of_flow = np.broadcast_to(ideal_rates[:, None], stages.shape)[crossed]
    least, most = _range(stages[crossed], of_flow, count)
    flows = np.bincount(stages[crossed], minlength=count)
    alive = capacity > 0
    slowest, fastest = _range(groups[alive], capacity[alive], count)
    links = np.bincount(groups[alive], minlength=count)
    like = (flows > 0) & (links > 0)
    like[like] = (most - least <= SAME * most)[like] & (fastest - slowest <= SAME * fastest)[like]
    if not like.any():
        return 1.0
    fullest = -(-flows[like] // links[like])
    return min(1.0, float((slowest[like] / (fullest * most[like])).min()))


def _range(groups: Numbers | Ints, values: Floats, count: int) -> tuple[Floats, Floats]:
    """Least and greatest value of each group, (count,)."""
    least, most = np.full(count, np.inf), np.zeros(count)
    np.minimum.at(least, groups, values)
    np.maximum.at(most, groups, values)
    return least, most

"""Central placement: somebody knows all flows, and places them anew whenever any starts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from syntony.sim.fluid.net import Numbers
from syntony.sim.fluid.policies.base import Policy
from syntony.traffic.fair import Ints
from syntony.traffic.problem import DEAD, Problem


class Central(Policy):
    """Edge colouring by chains of moves (`traffic.place`), flow lists known when flows start.
    Flows under way stay where they are."""

    name: ClassVar[str] = "central"

    def start(self, flows: Numbers) -> Numbers:
        return place_new(self, flows)


def place_new(policy: Policy, flows: Numbers) -> Numbers:
    """Picks for flows that start, those under way being where they are."""
    field = policy.field
    everybody = np.concatenate((field.running, flows))
    candidates = field.candidates(everybody)
    new = np.arange(len(everybody)) >= len(everybody) - len(flows)
    owner = np.repeat(np.arange(len(everybody)), np.diff(candidates.first))
    # Flows under way have one candidate: where they are.
    keep = new[owner] | (candidates.pick == field.pick[everybody][owner])
    owner, pick, ways = owner[keep], candidates.pick[keep], candidates.ways[keep]
    first = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(everybody)))))
    priority = field.traffic.priority
    problem = Problem(
        first=first,
        ways=inner(ways, first, owner),
        capacity=field.net.capacity,
        wanted=field.wanted(everybody),
        priority=np.ones(len(everybody), dtype=np.int8)
        if priority is None
        else priority[everybody],
    )
    start = np.full(len(everybody), DEAD, dtype=np.int64)
    start[~new] = first[:-1][~new]
    chosen = policy.tools.place(problem, start)
    return np.asarray(pick[chosen[new]])


def inner(ways: Ints, first: Numbers, owner: Numbers) -> Ints:
    """What placement decides about: all but the NICs' links, where a NIC has but one port."""
    ends = ways[:, [0, -1]]
    same = (ends == ends[first[owner]]).all()
    return np.ascontiguousarray(ways[:, 1:-1] if same and ways.shape[1] > 2 else ways)

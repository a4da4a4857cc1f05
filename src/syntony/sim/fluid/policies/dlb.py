"""Dynamic load balancing in switches: each takes its own least loaded link."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from syntony.sim.fluid.field import Field
from syntony.sim.fluid.net import Numbers
from syntony.sim.fluid.policies.base import PlacingPolicy, Tools
from syntony.traffic.fair import Ints


class Dlb(PlacingPolicy):
    """A flow that starts goes up where its leaf, then its aggregation switch, has the fewest flows.
    Switches on the way up cannot see congestion on the way down."""

    name: ClassVar[str] = "dlb"

    def __init__(
        self, field: Field, rng: np.random.Generator, epoch_ns: float, tools: Tools
    ) -> None:
        super().__init__(field, rng, epoch_ns, tools)
        self._flows = np.zeros(field.net.links + 1)

    def start(self, flows: Numbers) -> Numbers:
        found = np.zeros(len(flows), dtype=np.int64)
        candidates = self.field.candidates(flows)
        up = candidates.ways[:, 1 : max(2, candidates.ways.shape[1] // 2)]
        ties = self.rng.random(len(up))
        for place in self.rng.permutation(len(flows)).tolist():
            first, last = candidates.first[place], candidates.first[place + 1]
            counts = np.where(up[first:last] >= 0, self._flows[up[first:last]], 0)
            best = int(np.lexsort((ties[first:last], *counts.T[::-1]))[0])
            row = first + best
            found[place] = candidates.pick[row]
            self._count(candidates.ways[row], 1)
        return found

    def ended(self, flows: Numbers) -> None:
        ways = self.field.path(flows, self.field.pick[flows])
        np.subtract.at(self._flows, ways.ravel(), 1)

    def _count(self, links: Ints, change: int) -> None:
        self._flows[links] += change

"""Load-aware proportional moves: as many flows leave a link as exceed its capacity."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from syntony.sim.fluid.field import Telemetry
from syntony.sim.fluid.net import Numbers
from syntony.sim.fluid.policies.base import NO_MOVES, PlacingPolicy, PolicyMoves, draw, spread

DAMPING = 0.5
"""A flow moves with this times the excess of its worst link over that link's load. With telemetry
three epochs old 0.1 is needed: here it is divided by one more than the age in epochs."""
TIE = 1e-6


class LoadAware(PlacingPolicy):
    """A flow on a link whose demand exceeds its capacity moves, with a probability that grows with
    the excess, to the candidate path with the least excess. Each flow decides for itself."""

    name: ClassVar[str] = "load-aware"
    moves: ClassVar[bool] = True

    def start(self, flows: Numbers) -> Numbers:
        return draw(self.field, flows, self.rng)

    def step(self, telemetry: Telemetry, now_ns: float) -> PolicyMoves:
        flows = np.flatnonzero(telemetry.active & self.field.active)
        capacity = self.field.net.capacity
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = np.maximum(
                0, np.where(telemetry.offered > 0, 1 - capacity / telemetry.offered, 0)
            )
        worst = spread(excess, self.field.path(flows, self.field.pick[flows])[:, 1:-1])
        age = max(0.0, (now_ns - telemetry.at_ns) / self.epoch_ns)
        likely = DAMPING / (1 + age) * worst.max(axis=1, initial=0)
        likely[likely < TIE] = 0
        chosen = flows[self.rng.random(len(flows)) < likely]
        if not len(chosen):
            return NO_MOVES
        return self._best(chosen, telemetry)

    def _best(self, flows: Numbers, telemetry: Telemetry) -> PolicyMoves:
        field = self.field
        candidates = field.candidates(flows)
        owner = np.repeat(np.arange(len(flows)), np.diff(candidates.first))
        ways = candidates.ways[:, 1:-1]
        own = candidates.pick == field.pick[flows][owner]
        ideal_rates = field.ideal_rates(field.running)[np.searchsorted(field.running, flows)]
        load = spread(telemetry.offered, ways) + np.where(own, 0, ideal_rates[owner])[:, None]
        capacity = np.append(field.net.capacity, np.inf)[ways]
        cost = np.maximum(load - capacity, 0).sum(axis=1)
        # Random among equals: everybody sees the same loads.
        cost += TIE * self.rng.random(len(cost))
        order = np.lexsort((cost, owner))
        best = order[candidates.first[:-1]]
        leaves = ~own[best]
        return PolicyMoves(flows[leaves], candidates.pick[best][leaves])

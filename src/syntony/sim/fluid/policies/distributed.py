"""Policies without a controller: a hash, a switch or a host decides by itself."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from syntony.sim.fluid.field import Field, Telemetry
from syntony.sim.fluid.net import Numbers
from syntony.sim.fluid.policies.base import PlacingPolicy, PolicyMoves, Tools, draw
from syntony.traffic.fair import Ints


class Ecmp(PlacingPolicy):
    """A random living path for each flow (RFC 2992)."""

    name: ClassVar[str] = "ecmp"

    def start(self, flows: Numbers) -> Numbers:
        return draw(self.field, flows, self.rng)


class Spray(PlacingPolicy):
    """Packets of a flow are spread evenly over all its living paths."""

    name: ClassVar[str] = "spray"
    sprays: ClassVar[bool] = True

    def start(self, flows: Numbers) -> Numbers:
        return draw(self.field, flows, self.rng)


class DModK(PlacingPolicy):
    """The receiver's place below its leaf, modulo the number of living paths (Zahavi 2012): no two
    receivers of one leaf share a downlink, and shifts leave every uplink with one flow."""

    name: ClassVar[str] = "d-mod-k"

    def start(self, flows: Numbers) -> Numbers:
        return by_destination(self, flows)


def by_destination(policy: PlacingPolicy, flows: Numbers) -> Numbers:
    """D-mod-K's picks."""
    field = policy.field
    src, dst = field.traffic.src[flows], field.traffic.dst[flows]
    pick = field.net.position[dst] % field.net.choices(src, dst)
    if not field.net.healthy:
        dead = np.flatnonzero(~field.net.alive(field.path(flows, pick)))
        if len(dead):
            living = field.candidates(flows[dead])
            place = field.net.position[dst[dead]] % np.diff(living.first)
            pick[dead] = living.pick[living.first[:-1] + place]
    return np.asarray(pick)


class Dlb(PlacingPolicy):
    """A flow that starts goes up where its leaf, then its aggregation switch, has the fewest flows.
    What is crowded on the way down no switch on the way up can see."""

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


PATIENCE_NS = 5_000.0
"""Queueing delay from which a flow draws again: a few packets."""
PART = 0.1
"""Of those who wait, how many draw in one epoch: the best of 1, 0.5 and 0.1 at full load."""


class Redraw(PlacingPolicy):
    """As FlowBender and PLB do (a new hash for a flow that is marked or delayed)."""

    name: ClassVar[str] = "redraw"
    moves: ClassVar[bool] = True

    def start(self, flows: Numbers) -> Numbers:
        return draw(self.field, flows, self.rng)

    def step(self, seen: Telemetry, now_ns: float) -> PolicyMoves:  # noqa: ARG002 - no memory
        flows = np.flatnonzero(seen.active & self.field.active)
        waits = seen.delay_ns(self.field.path(flows, seen.pick[flows])) > PATIENCE_NS
        chosen = flows[waits & (self.rng.random(len(flows)) < PART)]
        return PolicyMoves(chosen, draw(self.field, chosen, self.rng))

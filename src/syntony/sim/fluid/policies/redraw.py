"""Delay-triggered redraw: a queued flow draws another path at random."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from syntony.sim.fluid.field import Telemetry
from syntony.sim.fluid.net import Numbers
from syntony.sim.fluid.policies.base import PlacingPolicy, PolicyMoves, draw

PATIENCE_NS = 5_000.0
"""Queueing delay from which a flow draws again: a few packets."""
PART = 0.1
"""Share of queued flows that draw in one epoch: the best of 1, 0.5 and 0.1 at full load."""


class Redraw(PlacingPolicy):
    """As FlowBender and PLB do (a new hash for a flow that is marked or delayed)."""

    name: ClassVar[str] = "redraw"
    moves: ClassVar[bool] = True

    def start(self, flows: Numbers) -> Numbers:
        return draw(self.field, flows, self.rng)

    def step(self, telemetry: Telemetry, now_ns: float) -> PolicyMoves:  # noqa: ARG002 - no memory
        flows = np.flatnonzero(telemetry.active & self.field.active)
        waits = telemetry.delay_ns(self.field.path(flows, telemetry.pick[flows])) > PATIENCE_NS
        chosen = flows[waits & (self.rng.random(len(flows)) < PART)]
        return PolicyMoves(chosen, draw(self.field, chosen, self.rng))

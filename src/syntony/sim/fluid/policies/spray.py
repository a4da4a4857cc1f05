"""Packet spraying: all paths at once."""

from __future__ import annotations

from typing import ClassVar

from syntony.sim.fluid.net import Numbers
from syntony.sim.fluid.policies.base import PlacingPolicy, draw


class Spray(PlacingPolicy):
    """Packets of a flow are spread evenly over all its living paths."""

    name: ClassVar[str] = "spray"
    sprays: ClassVar[bool] = True

    def start(self, flows: Numbers) -> Numbers:
        return draw(self.field, flows, self.rng)

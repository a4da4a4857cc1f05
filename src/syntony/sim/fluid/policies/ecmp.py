"""Equal-cost multi-path: a hash decides, once."""

from __future__ import annotations

from typing import ClassVar

from syntony.sim.fluid.net import Numbers
from syntony.sim.fluid.policies.base import PlacingPolicy, draw


class Ecmp(PlacingPolicy):
    """A random living path for each flow (RFC 2992)."""

    name: ClassVar[str] = "ecmp"

    def start(self, flows: Numbers) -> Numbers:
        return draw(self.field, flows, self.rng)

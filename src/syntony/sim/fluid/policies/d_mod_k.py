"""D-mod-K: the destination's number decides, without communication."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from syntony.sim.fluid.net import Numbers
from syntony.sim.fluid.policies.base import PlacingPolicy


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

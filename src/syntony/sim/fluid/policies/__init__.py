"""Policies that choose and change paths, behind one interface."""

from __future__ import annotations

from syntony.sim.fluid.policies.base import PlacingPolicy
from syntony.sim.fluid.policies.central import Central
from syntony.sim.fluid.policies.distributed import Dlb, DModK, Ecmp, Redraw, Spray
from syntony.sim.fluid.policies.load_aware import LoadAware
from syntony.sim.fluid.policies.steered import Steered

POLICIES: dict[str, type[PlacingPolicy]] = {
    policy.name: policy for policy in (Ecmp, Dlb, Spray, DModK, Redraw, LoadAware, Central, Steered)
}

__all__ = ["POLICIES", "PlacingPolicy"]

"""Policies that choose and change paths, one file each, behind one interface."""

from __future__ import annotations

from syntony.sim.fluid.policies.base import PlacingPolicy
from syntony.sim.fluid.policies.central import Central
from syntony.sim.fluid.policies.d_mod_k import DModK
from syntony.sim.fluid.policies.dlb import Dlb
from syntony.sim.fluid.policies.ecmp import Ecmp
from syntony.sim.fluid.policies.load_aware import LoadAware
from syntony.sim.fluid.policies.redraw import Redraw
from syntony.sim.fluid.policies.spray import Spray
from syntony.sim.fluid.policies.steered import Steered

POLICIES: dict[str, type[PlacingPolicy]] = {
    policy.name: policy for policy in (Ecmp, Dlb, Spray, DModK, Redraw, LoadAware, Central, Steered)
}

__all__ = ["POLICIES", "PlacingPolicy"]

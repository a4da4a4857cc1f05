"""4.6 Forwarding: every device sends every destination on, over all of its ways."""

from __future__ import annotations

from syntony.audit.check import Check, Section
from syntony.audit.result import Suspect


class RoutingTables(Check):
    """Switches and hosts forward to every destination over as many next hops as they should.

    Expected results: with a topology, the neighbours on shortest ways and no others; without, what
    more than half of the role's devices have: a route, and as many next hops; unknown where no
    number of next hops is so. No destination is thrown away, and no next hops lead in a circle.
    """

    id = "be.topo.routes"
    section = Section.TOPOLOGY
    reads = ("$ ip -j route show table all", "FRR's show ip route json (syntony audit network)")
    meaning = "flows crowd on the ways that are left, go round in circles, or vanish"
    remedy = "look at this device's BGP or subnet-manager session towards the missing next hop"
    suspect = Suspect.SWITCH

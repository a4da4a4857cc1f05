"""4.4 and 4.5 Between hosts: every NIC, every path, full-sized packets, delays."""

from __future__ import annotations

from typing import Literal

import msgspec

from syntony.audit.check import Check, Section
from syntony.audit.result import Suspect

_READS = ("UDP between the hosts (syntony audit network)",)


class RailConnectivity(Check):
    """Every NIC reaches its rail's NICs on all hosts, both ways.

    Expected results: each direction of each pair passes on at least one source port.
    """

    id = "be.conn.rail"
    section = Section.CONNECTIVITY
    reads = _READS
    meaning = "cabling, VLAN, routing or a dead port: jobs with this host hang at their start"
    remedy = "look at be.act.state and be.gid.ip of this NIC, then at its leaf port"
    suspect = Suspect.NIC


class AllPaths(Check):
    """Every member of every ECMP group passes packets.

    Expected results: all of 16 or more source ports of each pair pass, in each direction; the dead
    part is named by tracing lost flows and working ones of the same pair.
    """

    id = "be.conn.paths"
    section = Section.CONNECTIVITY
    reads = _READS
    meaning = "a dead or gray member of a group: some connections hang, others never notice"
    remedy = "take the link out of the group, then clean, reseat or replace it"
    suspect = Suspect.CABLE


class PathMtu(Check):
    """Packets of the full MTU pass, both ways.

    Expected results: a packet as large as the fleet's usual MTU, not to be fragmented, passes
    wherever a small one does; every NIC has that MTU.
    """

    id = "be.conn.mtu"
    section = Section.CONNECTIVITY
    reads = _READS
    meaning = "small messages pass and large ones vanish: jobs start, then hang"
    remedy = "set the MTU on the NIC and on its switch port"
    suspect = Suspect.CONFIG


class CrossRails(Check):
    """Rails are joined, or separate, everywhere alike.

    Expected results: as the limit `rails` says; else as two thirds of the directions between NICs
    of different rails do (all of a rail-only fabric fail, and that is right).
    """

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        rails: Literal["majority", "joined", "separate"] = "majority"

    id = "be.conn.cross"
    section = Section.CONNECTIVITY
    reads = _READS
    meaning = "collectives across rails (all-to-all, PXN off) hang or leave by another network"
    remedy = "compare routes, VRFs and access lists of this NIC's rail with the others'"
    suspect = Suspect.CONFIG
    limits: Input

    def wanted(self, passed: int, reported: int) -> bool | None:
        """Whether directions across rails should pass; None: undecided.

        Args:
            passed: how many do.
            reported: of how many.
        """
        if self.limits.rails != "majority":
            return self.limits.rails == "joined"
        if 3 * passed >= 2 * reported:
            return True
        return False if 3 * passed <= reported else None


class HopRails(Check):
    """NIC k of every host is on the leaf of rail k, as hop counts show it.

    Expected results: as be.topo.rail, with leaves found by NICs that have one router in between; no
    switch is asked. Skipped where hosts are not routed.
    """

    id = "be.conn.hops"
    section = Section.TOPOLOGY
    reads = _READS
    meaning = "this rail's traffic crosses the spine, or the job takes the wrong NIC for the rail"
    remedy = "swap the cables, or bind interface names to slots (udev)"
    suspect = Suspect.CABLE


class PairLatency(Check):
    """No pair takes much longer than others that are as many hops apart.

    Expected results: round trips within 5 median absolute deviations (10 % at least) of the median
    of their class.
    """

    id = "be.lat.pair"
    section = Section.LATENCY
    reads = _READS
    meaning = "congestion, a detour or a slow port on this pair's path"
    remedy = "measure one-way delays: syntony probe matrix; then syntony fabric show"
    suspect = Suspect.FABRIC


class OneWayDelay(Check):
    """Both directions of a pair take as long, by the fleet's clocks.

    Expected results: forward and reverse one-way delay differ by no more than the clocks' error and
    what is usual in the class of that many hops.
    """

    id = "be.lat.owd"
    section = Section.LATENCY
    reads = ("the controller's probe rows",)
    meaning = "one direction is congested, detoured or misrouted: round trips hide which"
    remedy = "syntony fabric show names the part; look at its queue and errors"
    suspect = Suspect.FABRIC


class LoadedDelay(Check):
    """Filling a direction's path adds no more delay than on other paths of as many hops.

    Expected results: the median round trip while TCP fills the path from one NIC to the other, less
    the median of the idle path, at most 4 times the class's median, and within 5 median absolute
    deviations of it; and at least half of the rate that fills the others. Asked for with --load: it
    loads the fabric, one direction of each pair at a time.
    """

    id = "be.lat.loaded"
    section = Section.LATENCY
    reads = ("UDP during TCP load between the hosts (syntony audit network --load)",)
    meaning = "a deeper queue, a slower link or no ECN there: one flow makes all others wait"
    remedy = "compare rate, buffer, PFC and ECN settings of this direction's ports with others'"
    suspect = Suspect.PORT


class DelayFit(Check):
    """Delays fit the number of hops that there should be.

    Expected results: smallest delays on a line over the hops of the expected topology; a NIC most
    of whose pairs are off it is not cabled as planned. Needs no switch and no routing.
    """

    id = "be.lat.floor"
    section = Section.LATENCY
    reads = ("smallest delays", "a topology file")
    meaning = "the cable ends elsewhere, is far longer, or an extra hop is in between"
    remedy = "follow the cable; compare with be.topo.links"
    suspect = Suspect.CABLE


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

"""4.6 Between switches: the leaf × spine matrix, oversubscription, speeds."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from syntony.audit.cabling import Cabling, SwitchPlane, ends, pattern
from syntony.audit.fabric_check import FABRIC, FabricCheck
from syntony.audit.majority import MIN_VOTERS, MajorityVote, Votes, majority, own_vote
from syntony.audit.result import Result, Status, Suspect
from syntony.fabric.names import cable_name
from syntony.model.names import host_of, natural

OVERSUBSCRIBED = 1.0
"""More host than uplink bandwidth."""
_LANE_GBPS = {
    "SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100,
    "XDR": 200,
}  # fmt: skip
"""Signalling rate of one lane as InfiniBand's names say it (IBTA, rounded as in link names)."""


class Uplinks(FabricCheck):
    """Every leaf has as many links to every spine.

    Expected results: among leaves that share spines, each pair has the number of links that more
    than half of the leaves have to more than half of their spines (of fewer than three leaves: that
    spines have to leaves); where links do not divide evenly, each leaf has as many in all as more
    than half of the leaves. The same a tier higher.
    """

    id = "be.topo.uplinks"
    meaning = "less bandwidth from this leaf, and unequal paths: ECMP and adaptive routing collide"
    remedy = "look for light at both ends, then reseat or replace the cable"

    def test(self, fabric: Cabling) -> Iterator[Result]:
        if len(fabric.tiers) < 2:
            yield self.skip("no switch above the leaves")
        for tier in range(len(fabric.tiers) - 1):
            planes = fabric.planes(tier)
            for plane in planes:
                for upper, below in plane.strays.items():
                    yield from self._stray(plane, upper, below)
                yield from self._matrix(plane)

    def _matrix(self, plane: SwitchPlane) -> Iterator[Result]:
        total = _spread(plane)
        if total is not None:
            for lower in plane.lowers:
                if plane.uplinks(lower) < total:
                    yield self._short(plane, lower, total)
            return
        decision = _usual(plane)
        if decision.value is None:
            if decision.disputed:
                fewest = ", ".join(_fewest(plane))
                yield self.unknown(
                    f"links of a pair: {decision.why}; fewest: {fewest}", pattern(plane.lowers)
                )
            return
        uneven = _uneven(plane, decision.value)
        for upper in sorted(uneven, key=natural):
            links = {plane.joined(lower, upper) for lower in plane.lowers}
            yield self.result(
                Status.WARN, upper, f"{min(links)} links to most switches below",
                f"{decision.value} links", f"{decision.why} have {decision.value} to the others",
                meaning="a line card is dark, or links do not divide evenly among the switches",
                remedy="look at the switch; if it is meant so, give an expected file",
                suspect=Suspect.SWITCH,
            )  # fmt: skip
        for lower in plane.lowers:
            for upper in plane.uppers:
                if upper not in uneven and plane.joined(lower, upper) != decision.value:
                    yield self._pair(plane, lower, upper, decision.value)

    def _pair(self, plane: SwitchPlane, lower: str, upper: str, usual: int) -> Result:
        ports = plane.links.get((lower, upper), ())
        expected = majority(plane.links.get((other, upper), ()) for other in plane.lowers) or ()
        gone = [port for port in expected if port and port not in ports]
        where = f"; dark: port {', '.join(gone)} of {lower}" if gone else ""
        pairs = len(plane.uppers) * len(plane.lowers)
        total = sum(map(plane.uplinks, plane.lowers))
        few = len(ports) < usual
        return self.result(
            Status.FAIL, cable_name(lower, upper), f"{len(ports)} links", f"{usual} links",
            f"{lower} has {plane.uplinks(lower)} of {usual * len(plane.uppers)} uplinks{where}; "
            f"{total} of {usual * pairs} in all",
            meaning="" if few else "a cable that belongs elsewhere",
            remedy="" if few else "compare with the cabling plan",
        )  # fmt: skip

    def _short(self, plane: SwitchPlane, lower: str, total: int) -> Result:
        """The result for a leaf whose links do not divide evenly among the spines."""
        counts = ", ".join(f"{plane.joined(lower, upper)} to {upper}" for upper in plane.uppers)
        return self.result(
            Status.FAIL, lower, f"{plane.uplinks(lower)} uplinks", f"{total} uplinks", counts,
        )  # fmt: skip

    def _stray(self, plane: SwitchPlane, upper: str, below: tuple[str, ...]) -> Iterator[Result]:
        """An upper switch that less than half of the leaves are linked to."""
        mine = [lower for lower in below if lower in plane.lowers]
        if len(mine) < len(below):  # it has its own leaves: these links are in the wrong plane
            for lower in mine:
                yield self.result(
                    Status.FAIL, cable_name(lower, upper), f"{plane.joined(lower, upper)} links",
                    "0 links", f"{upper} serves other leaves; of these only {', '.join(mine)}",
                    meaning="a cable that belongs elsewhere", remedy="compare with the plan",
                )  # fmt: skip
            return
        yield self.result(
            Status.FAIL, upper, f"linked to {len(mine)} of {len(plane.lowers)} leaves",
            "linked to all", f"linked to {', '.join(mine)}", suspect=Suspect.SWITCH,
            remedy="look at the switch: most of its ports are dark",
        )  # fmt: skip


def _usual(plane: SwitchPlane) -> MajorityVote[int]:
    """Links of a pair: one vote of each lower switch; of fewer than three, of each upper one."""
    lowers, uppers = Votes[int]("switches"), Votes[int]("upper switches")
    for lower in plane.lowers:
        lowers.add(lower, own_vote(plane.joined(lower, upper) for upper in plane.uppers))
    for upper in plane.uppers:
        uppers.add(upper, own_vote(plane.joined(lower, upper) for lower in plane.lowers))
    decision = lowers.decide()
    return decision if lowers.total >= MIN_VOTERS else uppers.decide()


def _fewest(plane: SwitchPlane) -> Iterator[str]:
    """Pairs with the smallest number of links, with it."""
    pairs = {
        (lower, upper): plane.joined(lower, upper)
        for lower in plane.lowers for upper in plane.uppers
    }  # fmt: skip
    least = min(pairs.values(), default=0)
    yield from (f"{cable_name(*pair)} {count}" for pair, count in pairs.items() if count == least)


def _uneven(plane: SwitchPlane, usual: int) -> frozenset[str]:
    """Upper switches that more than half of all have another number of links to, all the same."""
    found = set()
    for upper in plane.uppers:
        alike = majority(plane.joined(lower, upper) for lower in plane.lowers)
        if alike not in {None, usual, 0}:
            found.add(upper)
    return frozenset(found)


def _spread(plane: SwitchPlane) -> int | None:
    """Uplinks of each lower switch where they cannot divide evenly; None where they do.

    More than half of the switches have as many, one link more to some of the upper switches than to
    the others, and these are not the same for all, so that the upper switches are as evenly loaded.
    """
    totals = majority(plane.uplinks(lower) for lower in plane.lowers)
    if totals is None or totals % max(1, len(plane.uppers)) == 0:
        return None
    load = [sum(plane.joined(lower, upper) for lower in plane.lowers) for upper in plane.uppers]
    even = [
        max(counts) - min(counts) == 1
        for lower in plane.lowers
        if (counts := [plane.joined(lower, upper) for upper in plane.uppers])
    ]
    balanced = max(load) - min(load) < len(plane.lowers) / 2
    return totals if 2 * sum(even) > len(plane.lowers) and balanced else None


class Bisection(FabricCheck):
    """No leaf has lost uplink bandwidth that its hosts can fill.

    Expected results: on every leaf hosts' bandwidth over uplinks' at most 1, or as much uplink
    bandwidth as more than half of the leaves have: a fabric that is oversubscribed by design.
    """

    id = "be.topo.bisection"
    meaning = "traffic that leaves this leaf is slowed down when all hosts send at once"
    remedy = "restore the leaf's uplinks (see be.topo.uplinks), or move hosts"
    suspect = Suspect.FABRIC

    def test(self, fabric: Cabling) -> Iterator[Result]:
        if len(fabric.tiers) < 2:
            yield self.skip("no switch above the leaves")
            return
        up: dict[str, float] = defaultdict(float)
        down: dict[str, float] = defaultdict(float)
        for (leaf, _), ports in fabric.links(0).items():
            up[leaf] += sum(_gbps(fabric, leaf, port) for port in ports)
        for nic in fabric.attachments:
            down[nic.leaf] += _gbps(fabric, nic.leaf, nic.port)
        ratios = {leaf: down[leaf] / up[leaf] for leaf in fabric.leaves if up[leaf]}
        if not ratios:
            yield self.unknown("no leaf has uplinks")
            return
        usual = majority(up[leaf] for leaf in ratios) or 0.0
        worst = sorted(
            (leaf for leaf in ratios if ratios[leaf] > OVERSUBSCRIBED and up[leaf] < usual),
            key=lambda leaf: -ratios[leaf],
        )
        if worst:
            listed = ", ".join(f"{leaf} {ratios[leaf]:.2f}" for leaf in worst)
            design = max(OVERSUBSCRIBED, ratios[worst[0]] * up[worst[0]] / usual)
            yield self.result(
                Status.WARN, FABRIC, f"{ratios[worst[0]]:.2f}:1 at {worst[0]}",
                f"{design:.2f}:1 at most", f"host over uplink bandwidth: {listed}",
            )  # fmt: skip
            return
        most = max(ratios, key=lambda leaf: ratios[leaf])
        yield self.result(Status.PASS, FABRIC, f"{ratios[most]:.2f}:1 at {most}",
                          evidence="host over uplink bandwidth of the fullest leaf")  # fmt: skip


class Speeds(FabricCheck):
    """All links of a tier have one width and speed, and both ends report the same.

    Expected results: the rate that more than half of the tier's hosts (or lower switches) have;
    warn where all NICs of a host have another (a host of another role).
    """

    id = "be.topo.speed"
    meaning = "one slow link holds up every collective that crosses it"
    remedy = "clean and reseat; replace the cable if the rate stays"

    def test(self, fabric: Cabling) -> Iterator[Result]:
        if not fabric.rates:
            yield self.skip("the source reports no rates")
            return
        tiers: dict[tuple[int, int], list[_Rated]] = defaultdict(list)
        place = {name: level for level, tier in enumerate(fabric.tiers) for name in tier}
        for cable in fabric.topology.cables:
            a, b = ends(cable)
            rates = [rate for rate in (fabric.rates.get(a), fabric.rates.get(b)) if rate]
            name = f"{cable.name} ({a.device}:{a.port}, {b.device}:{b.port})"
            level = sorted((place.get(a.device, -1), place.get(b.device, -1)))
            if len(set(rates)) == 2:
                yield self.result(
                    Status.FAIL, cable.name, " and ".join(rates), "one rate", f"{name}: ends differ"
                )
            elif rates:
                low = min((a, b), key=lambda end: place.get(end.device, -1)).device
                nic = low not in place
                owner = host_of(low) if nic else low
                tiers[level[0], level[1]].append(_Rated(rates[0], cable.name, name, owner, nic))
        for links in tiers.values():
            yield from self._odd(links)

    def _odd(self, links: list[_Rated]) -> Iterator[Result]:
        """One vote of each host, or lower switch: what more than half of its links have."""
        rates: dict[str, list[str]] = defaultdict(list)
        for link in links:
            rates[link.owner].append(link.rate)
        votes = Votes[str]("hosts" if links[0].nic else "switches")
        for owner, mine in sorted(rates.items()):
            votes.add(owner, own_vote(mine))
        decision = votes.decide()
        if decision.value is None:
            if decision.disputed:
                yield self.unknown(f"rate: {decision.why}")
            return
        for link in links:
            if link.rate != decision.value:
                alone = link.nic and decision.value not in rates[link.owner]
                yield self.result(
                    Status.WARN if alone else Status.FAIL, link.cable, link.rate, decision.value,
                    f"{link.ends}; {decision.why} have {decision.value}"
                    + ("; all links of this host are so" if alone else ""),
                )  # fmt: skip


class _Rated(NamedTuple):
    """One cable whose ends agree on its rate."""

    rate: str
    cable: str
    ends: str
    owner: str
    """The host, or the lower of two switches."""
    nic: bool


def _gbps(fabric: Cabling, device: str, port: str) -> float:
    """A link's rate; 1 where it is not reported, so that links are counted."""
    match = re.fullmatch(r"(\d+)x([A-Z]+\d*)", fabric.rates.get((device, port), ""))
    if match is None or match[2] not in _LANE_GBPS:
        return 1.0
    return int(match[1]) * _LANE_GBPS[match[2]]

"""4.6 Between switches: the leaf × spine matrix, oversubscription, speeds."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from syntony.audit.cabling import cluster, ends, majority, mode, natural
from syntony.audit.fabric_check import FABRIC, FabricCheck
from syntony.audit.result import Status, Suspect
from syntony.fabric.names import cable_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from syntony.audit.cabling import Cabling
    from syntony.audit.result import Result

OVERSUBSCRIBED = 1.0
"""More host than uplink bandwidth; counted only where most leaves have no more."""
_LANE_GBPS = {
    "SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100,
    "XDR": 200,
}  # fmt: skip
"""Signalling rate of one lane as InfiniBand's names say it (IBTA, rounded as in link names)."""


class Uplinks(FabricCheck):
    """Every leaf has as many links to every spine.

    Expected results: among leaves that share spines, each pair has the most frequent number of
    links; the same a tier higher.
    """

    id = "be.topo.uplinks"
    meaning = "less bandwidth from this leaf, and unequal paths: ECMP and adaptive routing collide"
    remedy = "look for light at both ends, then reseat or replace the cable"

    def test(self, fabric: Cabling) -> Iterator[Result]:
        if len(fabric.tiers) < 2:
            yield self.skip("no switch above the leaves")
        for tier in range(len(fabric.tiers) - 1):
            yield from self._tier(fabric.links(tier))

    def _tier(self, links: Mapping[tuple[str, str], tuple[str, ...]]) -> Iterator[Result]:
        above: dict[str, set[str]] = defaultdict(set)
        for lower, upper in links:
            above[upper].add(lower)
        planes = cluster({upper: frozenset(lowers) for upper, lowers in above.items()})
        for lowers in planes:
            near = Counter(upper for lower, upper in links if lower in lowers)
            uppers = [upper for upper, count in near.items() if 2 * count >= len(lowers)]
            for upper, count in sorted(near.items()):
                if upper not in uppers:
                    yield from self._stray(links, lowers, upper, count)
            yield from self._matrix(links, lowers, sorted(uppers, key=natural))

    def _matrix(
        self, links: Mapping[tuple[str, str], tuple[str, ...]], lowers: tuple[str, ...],
        uppers: list[str],
    ) -> Iterator[Result]:  # fmt: skip
        pairs = [(lower, upper) for upper in uppers for lower in lowers]
        usual = mode(len(links[pair]) for pair in pairs if pair in links)
        if usual is None:
            if pairs:
                yield self.unknown("no number of links is the most frequent", lowers[0])
            return
        total = sum(len(links.get(pair, ())) for pair in pairs)
        for lower, upper in pairs:
            ports = links.get((lower, upper), ())
            if len(ports) == usual:
                continue
            own = sum(len(links.get((lower, other), ())) for other in uppers)
            expected_ports = majority(links.get((other, upper), ()) for other in lowers) or ()
            gone = [port for port in expected_ports if port and port not in ports]
            where = f"; dark: port {', '.join(gone)} of {lower}" if gone else ""
            yield self.result(
                Status.FAIL, cable_name(lower, upper), f"{len(ports)} links", f"{usual} links",
                f"{lower} has {own} of {usual * len(uppers)} uplinks{where}; "
                f"{total} of {usual * len(pairs)} in all",
                meaning="" if len(ports) < usual else "a cable that belongs elsewhere",
                remedy="" if len(ports) < usual else "compare with the cabling plan",
            )  # fmt: skip

    def _stray(
        self, links: Mapping[tuple[str, str], tuple[str, ...]], lowers: tuple[str, ...], upper: str,
        count: int,
    ) -> Iterator[Result]:  # fmt: skip
        """An upper switch that less than half of the leaves are linked to."""
        mine = [lower for lower in lowers if (lower, upper) in links]
        elsewhere = any(other == upper for lower, other in links if lower not in lowers)
        if elsewhere:  # it has its own leaves: these links are in the wrong plane
            for lower in mine:
                yield self.result(
                    Status.FAIL, cable_name(lower, upper), f"{len(links[lower, upper])} links",
                    "0 links", f"{upper} serves other leaves; of these only {', '.join(mine)}",
                    meaning="a cable that belongs elsewhere", remedy="compare with the plan",
                )  # fmt: skip
            return
        yield self.result(
            Status.FAIL, upper, f"linked to {count} of {len(lowers)} leaves", "linked to all",
            f"linked to {', '.join(mine)}", suspect=Suspect.SWITCH,
            remedy="look at the switch: most of its ports are dark",
        )  # fmt: skip


class Bisection(FabricCheck):
    """No leaf has more host bandwidth than uplink bandwidth where most have not.

    Expected results: hosts' bandwidth over uplinks' at most 1 on every leaf, or at most the median
    of all leaves in a fabric that is oversubscribed by design.
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
        design = max(OVERSUBSCRIBED, statistics.median(ratios.values()))
        worst = sorted((leaf for leaf in ratios if ratios[leaf] > design), key=lambda n: -ratios[n])
        if worst:
            listed = ", ".join(f"{leaf} {ratios[leaf]:.2f}" for leaf in worst)
            yield self.result(
                Status.WARN, FABRIC, f"{ratios[worst[0]]:.2f}:1 at {worst[0]}",
                f"{design:.2f}:1 at most", f"host over uplink bandwidth: {listed}",
            )  # fmt: skip


class Speeds(FabricCheck):
    """All links of a tier have one width and speed, told alike by both ends.

    Expected results: the most frequent rate of the tier; warn where all NICs of a host have
    another (a host of another role).
    """

    id = "be.topo.speed"
    meaning = "one slow link holds up every collective that crosses it"
    remedy = "clean and reseat; replace the cable if the rate stays"

    def test(self, fabric: Cabling) -> Iterator[Result]:
        if not fabric.rates:
            yield self.skip("the source tells no rates")
            return
        tiers: dict[tuple[int, int], list[tuple[str, str, str, str]]] = defaultdict(list)
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
                nic = next((end.device for end in (a, b) if end.device not in place), "")
                tiers[level[0], level[1]].append((rates[0], cable.name, name, nic))
        for links in tiers.values():
            yield from self._odd(links)

    def _odd(self, links: list[tuple[str, str, str, str]]) -> Iterator[Result]:
        usual = mode(rate for rate, *_ in links)
        if usual is None:
            yield self.unknown("no rate is the most frequent: " + ", ".join(sorted({x[0] for x in links})))  # fmt: skip  # noqa: E501
            return
        hosts: dict[str, set[str]] = defaultdict(set)
        for rate, *_, nic in links:
            hosts[nic.partition("/")[0]].add(rate)
        for rate, cable, name, nic in links:
            if rate != usual:
                alone = bool(nic) and usual not in hosts[nic.partition("/")[0]]
                yield self.result(
                    Status.WARN if alone else Status.FAIL, cable, rate, usual,
                    f"{name}; {sum(1 for x in links if x[0] == usual)} others have {usual}"
                    + ("; all links of this host are so" if alone else ""),
                )  # fmt: skip


def _gbps(fabric: Cabling, device: str, port: str) -> float:
    """A link's rate; 1 where it is not told, so that links are counted."""
    match = re.fullmatch(r"(\d+)x([A-Z]+\d*)", fabric.rates.get((device, port), ""))
    if match is None or match[2] not in _LANE_GBPS:
        return 1.0
    return int(match[1]) * _LANE_GBPS[match[2]]

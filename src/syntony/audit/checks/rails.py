"""4.6 Cabling of hosts: each NIC on its rail's leaf, at its host's port; none missing."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from syntony.audit.cabling import (
    Attachment,
    Cabling,
    LeafGroup,
    misplaced_pairs,
    name_columns,
    pattern,
    port_gap,
)
from syntony.audit.fabric_check import FABRIC, FabricCheck
from syntony.audit.majority import MIN_VOTERS, Votes, majority, own_vote
from syntony.audit.result import Result, Status, Suspect

IN_ORDER = 0.75
"""Share of NICs that make port order a rule: two swapped cables among four hosts of four."""


class _Misplaced(NamedTuple):
    nic: Attachment
    should: tuple[str, str]
    """Leaf and port where it ought to be; the port is empty if any will do."""


class RailCabling(FabricCheck):
    """NIC k of every host is on the leaf of rail k.

    Expected results: within a group of leaves, NICs of one name are on the leaf where those of more
    than half of the hosts are (three hosts or more); unknown where no leaf has so many.
    """

    id = "be.topo.rail"
    meaning = "ring neighbours of this rail talk across the spine, or to the wrong rail"
    remedy = "move the cable to the leaf of its rail"

    def test(self, fabric: Cabling) -> Iterator[Result]:
        if not fabric.by_host:
            yield self.unknown("no NIC says which host's it is")
            return
        wrong = []
        for group in fabric.groups:
            for label, votes in _by_label(fabric, group).items():
                ballot = Votes[str]()
                for nic in votes:
                    ballot.add(nic.host, nic.leaf)
                right = ballot.decide()
                if right.value is not None:
                    should = right.value, ""
                    wrong += [_Misplaced(nic, should) for nic in votes if nic.leaf != right.value]
                elif right.disputed:
                    yield self.unknown(right.why, f"{group.name}/{label}")
        for pair in misplaced_pairs(wrong, _crossed):
            yield self._misplaced(fabric, pair)

    def _misplaced(self, fabric: Cabling, pair: tuple[_Misplaced, ...]) -> Result:
        first = pair[0].nic
        here = _at_all(nic for nic, _ in pair)
        if len(pair) == 2:
            both = "+".join(nic.label for nic, _ in pair)
            return self.result(
                Status.FAIL,
                f"{first.host}/{both}",
                here,
                ", ".join(f"{nic.label} on {leaf}" for nic, (leaf, _) in pair),
                f"swapped: each is on the other's leaf; {_peers(fabric, pair[0])}",
                remedy=f"swap the two cables of {first.host} {both}",
            )
        return self.result(
            Status.FAIL, _name(first), here, f"{first.label} on {pair[0].should[0]}",
            _peers(fabric, pair[0]),
            remedy=f"move the cable of {_name(first)} from {first.leaf} to {pair[0].should[0]}",
        )  # fmt: skip


class PortPositions(FabricCheck):
    """A host has the same port number on every leaf.

    Expected results: equal port numbers for all NICs of a host, where three quarters of all NICs
    (of three hosts or more) are so; otherwise the fabric is not cabled so: skipped.
    """

    id = "be.topo.portpos"
    meaning = "this leaf's cables are not in the order of the others': neighbours swapped"
    remedy = "swap the cables at the leaf, or relabel the ports"
    suspect = Suspect.PORT

    def test(self, fabric: Cabling) -> Iterator[Result]:
        hosts = {
            host: nics
            for host, nics in fabric.by_host.items()
            if len(nics) > 1
            and len({nic.leaf for nic in nics}) == len(nics)
            and all(nic.port for nic in nics)
        }
        usual = {host: own_vote(nic.port for nic in nics) for host, nics in hosts.items()}
        total = sum(map(len, hosts.values()))
        even = sum(nic.port == usual[host] for host, nics in hosts.items() for nic in nics)
        if len(hosts) < MIN_VOTERS or even < IN_ORDER * total:
            yield self.skip(f"{even} of {total} NICs have their host's port number on their leaf")
            return
        wrong = []
        for host, nics in hosts.items():
            port = usual[host]
            if port is None:
                yield self.result(
                    Status.WARN, host, _at_all(nics), "one port number on all leaves",
                    "no port number is that of more than half of its NICs",
                )  # fmt: skip
                continue
            wrong += [_Misplaced(nic, (nic.leaf, port)) for nic in nics if nic.port != port]
        for one in wrong:
            yield self._misplaced(fabric, one, wrong)

    def _misplaced(
        self, fabric: Cabling, one: _Misplaced, wrong: Sequence[_Misplaced]
    ) -> Result:  # fmt: skip
        nic, (leaf, port) = one
        there = fabric.at_port.get((leaf, port))
        partner = next((o for o in wrong if _crossed(one, o)), None)
        evidence = f"its other NICs are at port {port} of their leaves"
        remedy = f"move the cable of {_name(nic)} to port {port} of {leaf}, or relabel the port"
        if partner is not None:
            evidence += (
                f"; {_name(partner.nic)} is in its place and should be at {partner.should[1]}"
            )
            remedy = f"swap the cables of {_name(nic)} and {_name(partner.nic)} at {leaf}"
        elif there is not None:
            evidence += f"; {_name(there)} is in its place"
        return self.result(
            Status.WARN, _name(nic), f"{leaf} port {nic.port}", f"{leaf} port {port}",
            evidence, remedy=remedy,
        )  # fmt: skip


class Attached(FabricCheck):
    """Every host has all its NICs on the fabric, every group all its leaves.

    Expected results: a host's NICs are those that more than half of its group's hosts have, or of
    all hosts where the group has fewer than three or cannot decide. Hosts that have no more than
    half of these NICs are of another role where two or more are alike; one alone is unknown.
    """

    id = "be.topo.attached"
    meaning = "the host runs with fewer rails than the others, or not at all"
    remedy = "look for light at both ends: clean, reseat or replace the cable; then the NIC"

    def test(self, fabric: Cabling) -> Iterator[Result]:
        if not fabric.by_host:
            yield self.unknown("no NIC says which host's it is")
            return
        everywhere = majority(_labels(fabric, host) for host in fabric.by_host) or frozenset()
        usual = [_usual(fabric, group) or everywhere for group in fabric.groups]
        if not any(usual):
            yield self._undecided(fabric)
            return
        own = [own_vote(_labels(fabric, host) for host in group.hosts) or frozenset()
               for group in fabric.groups]  # fmt: skip
        absent = 0
        for group, labels in zip(fabric.groups, usual, strict=True):
            whole = labels < everywhere and 2 * len(labels) > len(everywhere)
            for result in self._group(fabric, group, everywhere if whole else labels):
                absent += result.suspect is Suspect.SWITCH
                yield result
            wider = max((more for more in own if labels < more), key=len, default=labels)
            if not whole and labels < wider and _nearly(labels, wider):
                absent += 1
                lacked = ", ".join(sorted(wider - labels))
                yield self.unknown(f"no host has {lacked}, which others have: a leaf is absent, or "
                                   "these hosts are of another role", group.name)  # fmt: skip
        if not absent:
            yield from self._dark_leaves(fabric)

    def _dark_leaves(self, fabric: Cabling) -> Iterator[Result]:
        """A leaf that took its hosts along leaves a gap in the ports of all its spines."""
        for plane in fabric.planes(0) if len(fabric.tiers) > 1 else ():
            gap = port_gap(plane.turned())
            if gap.absent:
                yield self.unknown(
                    f"port {gap.dark} dark on {gap.why}, between ports that lead to leaves: as "
                    f"many as {gap.absent} leaves take; absent, or reserved",
                    f"below {pattern(plane.uppers)}",
                )

    def _undecided(self, fabric: Cabling) -> Result:
        """Too few hosts, or no NICs that more than half of them have."""
        votes = Votes[str]()
        for host in fabric.by_host:
            votes.add(host, " ".join(sorted(_labels(fabric, host))))
        decision = votes.decide()
        if decision.disputed:
            return self.unknown(f"NICs of a host: {decision.why}")
        return self.result(Status.NOT_COMPARED, FABRIC, evidence=decision.why)

    def _group(self, fabric: Cabling, group: LeafGroup, labels: frozenset[str]) -> Iterator[Result]:
        lacks = {host: labels - _labels(fabric, host) for host in group.hosts
                 if _labels(fabric, host) < labels}  # fmt: skip
        roles = Counter(_labels(fabric, host) for host in lacks)
        yield from self._leaves(fabric, group, lacks)
        everybody = _shared(group, lacks)
        for host, missing in lacks.items():
            has = _labels(fabric, host)
            alone = roles[has] == 1
            if 2 * len(has) > len(labels) or (alone and 2 * len(has) == len(labels)):
                yield from self._host(fabric, group, host, missing - everybody)
            elif alone:
                yield self.unknown(
                    f"it has {', '.join(sorted(has))}, others {len(labels)} NICs: it is of "
                    "another role, or its other links are down", host,
                )  # fmt: skip

    def _host(
        self, fabric: Cabling, group: LeafGroup, host: str, missing: frozenset[str]
    ) -> Iterator[Result]:
        places = {
            label: majority(nic.leaf for nic in votes)
            for label, votes in _by_label(fabric, group).items()
        }
        port = own_vote(nic.port for nic in fabric.by_host[host])
        has = ", ".join(sorted(_labels(fabric, host)))
        for label in sorted(missing):
            leaf = places.get(label)
            there = fabric.at_port.get((leaf or "", port or ""))
            if there is not None and not there.host:
                continue  # present but unnamed: another check reports that
            yield self.result(
                Status.FAIL, f"{host}/{label}", "no link",
                f"on {leaf or group.name}" + (f" port {port}" if leaf and port else ""),
                f"{host} has {has} only",
            )  # fmt: skip

    def _leaves(
        self, fabric: Cabling, group: LeafGroup, lacks: Mapping[str, frozenset[str]]
    ) -> Iterator[Result]:
        """A NIC that no host of the group has: its leaf is absent."""
        for label in sorted(_shared(group, lacks)):
            like = next(leaf for other in fabric.groups if (leaf := _leaf_of(fabric, other, label)))
            whole = next(each for each in fabric.groups if like in each.leaves)
            yield self.result(
                Status.FAIL,
                _absent_name(group, like, fabric, whole) or f"{group.name}/{label}",
                "absent",
                f"{len(whole.leaves)} leaves in {group.name}",
                f"{len(group.hosts)} hosts lack {label}, which others have on {like}: "
                f"{', '.join(group.hosts)}",
                meaning="a leaf switch is down, unmanaged or not cabled",
                remedy="look for the switch: power, then its uplinks, then its configuration",
                suspect=Suspect.SWITCH,
            )  # fmt: skip


def _nearly(labels: frozenset[str], wider: frozenset[str]) -> bool:
    """More than half of them, or one of two."""
    return 2 * len(labels) > len(wider) or (len(labels), len(wider)) == (1, 2)


def _shared(group: LeafGroup, lacks: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """What each of several hosts of a group lacks."""
    if len(group.hosts) < 2 or len(lacks) < len(group.hosts):
        return frozenset()
    return frozenset.intersection(*lacks.values())


def _labels(fabric: Cabling, host: str) -> frozenset[str]:
    return frozenset(nic.label for nic in fabric.by_host[host])


def _by_label(fabric: Cabling, group: LeafGroup) -> Mapping[str, list[Attachment]]:
    """The NICs of the group's hosts by what they are called."""
    found: dict[str, list[Attachment]] = defaultdict(list)
    for host in group.hosts:
        for nic in fabric.by_host[host]:
            found[nic.label].append(nic)
    return found


def _usual(fabric: Cabling, group: LeafGroup) -> frozenset[str] | None:
    """What NICs more than half of the group's hosts have; None where that is undecided."""
    return majority(_labels(fabric, host) for host in group.hosts)


def _leaf_of(fabric: Cabling, group: LeafGroup, label: str) -> str:
    return majority(nic.leaf for nic in _by_label(fabric, group).get(label, ())) or ""


def _absent_name(group: LeafGroup, like: str, fabric: Cabling, whole: LeafGroup) -> str:
    """The absent leaf's likely name, from its siblings' numbers.

    In ``leaf-01-01``, ``leaf-02-01`` of the group and ``leaf-03-02`` of another, the first
    number is the rail's, since it is what differs within a group.
    """
    siblings, cousins = name_columns(group.leaves), name_columns(whole.leaves)
    if siblings is None or cousins is None or len(siblings) != len(cousins):
        return ""
    name = re.split(r"(\d+)", like)
    built = [
        ours[0] if len(set(ours)) == 1 else name[place]
        for place, ours in enumerate(siblings)
    ]  # fmt: skip
    differs = [len(set(ours)) > 1 for ours in siblings]
    guess = "".join(built)
    known = guess in {device.name for device in fabric.topology.devices}
    return "" if known or sum(differs) != 1 or not re.search(r"\d", guess) else guess


def _crossed(one: _Misplaced, other: _Misplaced) -> bool:
    """Whether each is where the other belongs: two of one host, or two ports of one leaf."""
    here, there = one.nic, other.nic
    if one.should[1]:
        places = (here.leaf, here.port) == other.should, (there.leaf, there.port) == one.should
        return all(places)
    return here.host == there.host and (here.leaf, there.leaf) == (other.should[0], one.should[0])


def _peers(fabric: Cabling, one: _Misplaced) -> str:
    label, leaf = one.nic.label, one.should[0]
    count = sum(1 for nic in fabric.attachments if nic.label == label and nic.leaf == leaf)
    return f"{leaf} has {label} of {count} other hosts"


def _name(nic: Attachment) -> str:
    return f"{nic.host}/{nic.label}" if nic.host else nic.nic


def _at(nic: Attachment) -> str:
    return f"{nic.label} on {nic.leaf}" + (f" port {nic.port}" if nic.port else "")


def _at_all(nics: Iterable[Attachment]) -> str:
    return ", ".join(_at(nic) for nic in nics)

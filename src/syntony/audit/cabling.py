"""Models a fabric's cabling: hosts' NICs on leaves, leaves in groups, links above. Pure.

No expected file is needed: the majority of hosts, leaves and links sets what the others should
have. A
*group* (rack, pod, scalable unit) is a set of leaves that share most of their hosts; one cable in
the wrong group does not join two.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from syntony.audit.majority import Votes, own_vote
from syntony.fabric.graph import Cable, Topology
from syntony.fabric.lldp import LldpProblem
from syntony.fabric.names import ComponentKind
from syntony.model.names import natural

_T = TypeVar("_T")
SERVICE_SHARE = 0.25
"""A switch most of whose neighbours have more NICs than itself is above them, whatever fabric
manager or gateway hangs on it, unless a larger share of its cables goes to NICs."""


class Attachment(NamedTuple):
    """A NIC's port on a switch."""

    nic: str
    host: str
    """Empty where the NIC does not say whose it is."""
    label: str
    """What the NIC is called within its host: ``mlx5_0``, ``HCA-5``; with two cables and more, its
    port behind a colon."""
    leaf: str
    port: str
    """Of the leaf."""


class LeafGroup(NamedTuple):
    """Leaves that share most of their hosts."""

    leaves: tuple[str, ...]
    hosts: tuple[str, ...]

    @property
    def name(self) -> str:
        """What the leaves' names have in common: ``IBLEAF-*-01``."""
        return pattern(self.leaves)


class SwitchPlane(NamedTuple):
    """Switches of one tier and those of the next that most of them are linked to."""

    lowers: tuple[str, ...]
    uppers: tuple[str, ...]
    links: Mapping[tuple[str, str], tuple[str, ...]]
    """(lower, upper) to the lower ends' ports; also to strays."""
    used: Mapping[str, frozenset[str]]
    """Switch to all its ports that lead anywhere."""
    strays: Mapping[str, tuple[str, ...]]
    """An upper switch that fewer than half of the lowers are linked to, to all who are."""
    down: Mapping[tuple[str, str], tuple[str, ...]]
    """(upper, lower) to the upper ends' ports."""

    def joined(self, lower: str, upper: str) -> int:
        """Links between two of them."""
        return len(self.links.get((lower, upper), ()))

    def uplinks(self, lower: str) -> int:
        """Number of links from a lower switch to the upper switches of the plane."""
        return sum(self.joined(lower, upper) for upper in self.uppers)

    def turned(self) -> SwitchPlane:
        """The same seen from above: what is below the upper switches."""
        return SwitchPlane(self.uppers, self.lowers, self.down, self.used, {}, self.links)


class Cabling:
    """What is cabled to what.

    Args:
        topology: devices and cables.
        rates: device and port to its rate (``4xNDR``), where known.
        says: device to its own description, where it has one.
        doubts: what of the source contradicts itself or makes no sense.
    """

    def __init__(
        self,
        topology: Topology,
        rates: Mapping[tuple[str, str], str] = MappingProxyType({}),
        says: Mapping[str, str] = MappingProxyType({}),
        doubts: Sequence[LldpProblem] = (),
    ) -> None:
        self.topology = topology
        self.rates = rates
        self.says = says
        self.doubts = doubts

    @cached_property
    def tiers(self) -> tuple[tuple[str, ...], ...]:
        """Leaves, then what is above them, and so on."""
        nics = self.nics
        own, all_of_them = Counter[str](), Counter[str]()
        for here, there in self._both_ways():
            all_of_them[here.device] += 1
            own[here.device] += there.device in nics
        switches = {device.name for device in self.topology.devices} - nics
        leaves = {
            name for name in switches
            if own[name] > SERVICE_SHARE * all_of_them[name]
            or (own[name] and not self._above(name, own))
        }  # fmt: skip
        spare = self._spare_leaves(switches - leaves, leaves)
        found = [leaves]
        left = switches - leaves - spare
        while found[-1] and left:
            near = {n for name in found[-1] for n in self.topology.neighbours.get(name, ())}
            found.append(near & left)
            left -= near
        tiers = [tier for tier in found if tier]
        if len(tiers) == 2 and spare:  # of a single pod, cores look like leaves without hosts
            tiers.append(spare)
        return tuple(tuple(sorted(tier)) for tier in tiers)

    def _above(self, name: str, own: Mapping[str, int]) -> bool:
        """Whether more than half of its neighbours have more NICs than a switch has."""
        near = [each for each in self.topology.neighbours.get(name, ()) if each not in self.nics]
        return 2 * sum(own[each] > own[name] for each in near) > len(near)

    def _spare_leaves(self, others: set[str], leaves: set[str]) -> set[str]:
        """Switches without NICs that hang where a leaf does, by more than half as many switches:
        they are not above anybody. One that has lost cables may hang from a single one, like a
        core, unless other spare leaves hang from there too."""
        near, below = self.topology.neighbours, leaves | self.nics
        spare = set()
        for name in others:
            mine = set(near.get(name, ())) - leaves
            common = Counter(
                leaf for upper in mine for leaf in near.get(upper, ()) if leaf in leaves
            )
            if any(
                count == len(mine) and 2 * count > len(set(near[leaf]) - below)
                for leaf, count in common.items()
            ):
                spare.add(name)
        places = {frozenset(near[name]) - leaves for name in spare}
        return spare | {
            name for name in others if any(set(near.get(name, leaves)) < place for place in places)
        }

    @property
    def leaves(self) -> tuple[str, ...]:
        return self.tiers[0] if self.tiers else ()

    @cached_property
    def attachments(self) -> tuple[Attachment, ...]:
        """Every NIC port that is on a leaf, hosts in order."""
        leaves = set(self.leaves)
        cables = [
            (here, there)
            for here, there in self._both_ways()
            if here.device in self.nics and there.device in leaves
        ]
        often = Counter(here.device for here, _ in cables)
        found = []
        for here, there in cables:
            host, slash, label = here.device.partition("/")
            if not slash:
                host, label = "", here.device
            if often[here.device] > 1:
                label += f":{here.port}"
            found.append(Attachment(here.device, host, label, there.device, there.port))
        return tuple(sorted(found, key=lambda a: (a.host, a.label, a.nic)))

    @cached_property
    def by_host(self) -> Mapping[str, tuple[Attachment, ...]]:
        """NICs by host, of those that name their host."""
        found: dict[str, list[Attachment]] = defaultdict(list)
        for attachment in self.attachments:
            if attachment.host:
                found[attachment.host].append(attachment)
        return {host: tuple(mine) for host, mine in found.items()}

    @cached_property
    def at_port(self) -> Mapping[tuple[str, str], Attachment]:
        """Leaf and port to the NIC that is there."""
        return {(a.leaf, a.port): a for a in self.attachments if a.port}

    @cached_property
    def groups(self) -> tuple[LeafGroup, ...]:
        """All leaves that have hosts, each in one group; every host is in the group where most of
        its NICs are.
        """
        clusters = cluster({host: _own_leaves(mine) for host, mine in self.by_host.items()})
        known = {leaf for leaves in clusters for leaf in leaves}
        strangers = {a.leaf for mine in self.by_host.values() for a in mine} - known
        clusters = sorted([*clusters, *((leaf,) for leaf in strangers)])
        place = {leaf: number for number, leaves in enumerate(clusters) for leaf in leaves}
        hosts: dict[int, list[str]] = defaultdict(list)
        for host, mine in self.by_host.items():
            often = Counter(place[a.leaf] for a in mine)
            hosts[min(often, key=lambda number: (-often[number], number))].append(host)
        return tuple(
            LeafGroup(leaves, tuple(hosts[number])) for number, leaves in enumerate(clusters)
        )  # fmt: skip

    def links(self, lower: int) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Cables from tier `lower` to the next: (lower, upper) to the lower ends' ports, sorted."""
        return self._between(self.tiers[lower], self.tiers[lower + 1])

    def _between(
        self, these: Sequence[str], those: Sequence[str]
    ) -> Mapping[tuple[str, str], tuple[str, ...]]:
        near, far = set(these), set(those)
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for here, there in self._both_ways():
            if here.device in near and there.device in far:
                found[here.device, there.device].append(here.port)
        return {ends: tuple(sorted(ports, key=natural)) for ends, ports in found.items()}

    def planes(self, lower: int) -> tuple[SwitchPlane, ...]:
        """Switches of tier `lower` that share most of what is above them, each plane by itself."""
        links = self.links(lower)
        down = self._between(self.tiers[lower + 1], self.tiers[lower])
        above: dict[str, set[str]] = defaultdict(set)
        for below, upper in links:
            above[upper].add(below)
        found = []
        for lowers in cluster({upper: frozenset(below) for upper, below in above.items()}):
            near = Counter(upper for below, upper in links if below in lowers)
            own = [upper for upper, count in near.items() if 2 * count >= len(lowers)]
            found.append(
                SwitchPlane(
                    lowers,
                    tuple(sorted(own, key=natural)),
                    {pair: ports for pair, ports in links.items() if pair[0] in lowers},
                    self._used,
                    {upper: tuple(sorted(above[upper])) for upper in sorted(set(near) - set(own))},
                    {pair: ports for pair, ports in down.items() if pair[1] in lowers},
                )
            )
        return tuple(found)

    @cached_property
    def _used(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for here, _ in self._both_ways():
            found[here.device].add(here.port)
        return {device: frozenset(ports) for device, ports in found.items()}

    @cached_property
    def nics(self) -> frozenset[str]:
        return frozenset(self.topology.of_kind(ComponentKind.NIC, ComponentKind.HOST))

    def _both_ways(self) -> Iterator[tuple[_End, _End]]:
        for cable in self.topology.cables:
            a, b = ends(cable)
            yield a, b
            yield b, a


def _own_leaves(mine: Iterable[Attachment]) -> frozenset[str]:
    """The leaves that a host belongs to: those with more than half as many of its NICs as any.

    One of eight NICs in another rack does not make its leaf one of the host's.
    """
    often = Counter(a.leaf for a in mine)
    most = max(often.values())
    return frozenset(leaf for leaf, count in often.items() if 2 * count > most)


class _End(NamedTuple):
    device: str
    port: str


def ends(cable: Cable) -> tuple[_End, _End]:
    return _End(cable.a, cable.a_port), _End(cable.b, cable.b_port)


def cluster(sets: Mapping[str, frozenset[str]]) -> list[tuple[str, ...]]:
    """Items that mostly occur together: two belong together if more than half of the sets that
    have the rarer one have the other too.

    Args:
        sets: any number of sets of items, by a name.
    """
    alone = Counter(item for items in sets.values() for item in items)
    together = Counter(
        (a, b) for items in sets.values() for a in items for b in items if a < b
    )  # fmt: skip
    root = {item: item for item in alone}

    def find(item: str) -> str:
        while root[item] != item:
            root[item] = root[root[item]]
            item = root[item]
        return item

    for (a, b), count in together.items():
        if 2 * count > min(alone[a], alone[b]):
            root[find(a)] = find(b)
    clusters: dict[str, list[str]] = defaultdict(list)
    for item in sorted(alone):
        clusters[find(item)].append(item)
    return sorted(tuple(items) for items in clusters.values())


class PortGap(NamedTuple):
    """Ports between uplinks that lead nowhere, alike on more than half of a plane's switches."""

    absent: int
    """As many upper switches would take these ports; 0: there is no such gap."""
    perhaps: int
    """The same where uplink ports do not mostly follow one another, but some do."""
    dark: str
    reported: bool
    """Uplink ports follow one another, so that a gap would show."""
    why: str


def port_gap(plane: SwitchPlane) -> PortGap:
    """Find the unused uplink ports that an upper switch absent from a whole plane leaves behind."""
    votes = Votes[tuple[int, ...]]("switches")
    reported = 0
    for lower in plane.lowers:
        ports = [port for upper in plane.uppers for port in plane.links.get((lower, upper), ())]
        numbers = sorted(int(port) for port in ports if port.isdecimal() and port.isascii())
        steps = [b - a for a, b in itertools.pairwise(numbers)]
        reported += own_vote(steps) == 1
        votes.add(lower, _dark(numbers, plane.used.get(lower, frozenset())) if 1 in steps else ())
    decision = votes.decide(min_voters=1)
    dark = decision.value or ()
    each = own_vote(plane.joined(*pair) for pair in plane.links) or 0
    absent = len(dark) // each if each and len(dark) % each == 0 else 0
    if absent >= len(plane.uppers):
        absent = 0
    follow = 2 * reported > len(plane.lowers)
    listed = ", ".join(map(str, dark))
    return PortGap(absent if follow else 0, absent, listed, follow, decision.why)


def _dark(uplinks: Sequence[int], used: frozenset[str]) -> tuple[int, ...]:
    """Unused ports with an uplink on either side."""
    found: list[int] = []
    for a, b in itertools.pairwise(uplinks):
        between = range(a + 1, b)
        if not any(str(port) in used for port in between):
            found += between
    return tuple(found)


def name_columns(names: Sequence[str]) -> list[tuple[str, ...]] | None:
    """Words and numbers of at least two names, by their place; None: not all have as many."""
    split = [re.split(r"(\d+)", name) for name in names]
    if len(names) < 2 or len({len(words) for words in split}) != 1:
        return None
    return list(zip(*split, strict=True))


def pattern(names: Sequence[str]) -> str:
    """What names have in common, with ``*`` for numbers that differ; else the first and how many
    more.
    """
    found = name_columns(names)
    if found is None:
        return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else "".join(names)
    columns = [set(column) for column in found]
    if any(len(words) > 1 and place % 2 == 0 for place, words in enumerate(columns)):
        return f"{names[0]} and {len(names) - 1} more"
    return "".join(words.pop() if len(words) == 1 else "*" for words in columns)


def misplaced_pairs(wrong: Sequence[_T], swapped: Callable[[_T, _T], bool]) -> list[tuple[_T, ...]]:
    """Every wrong one alone or, where two stand in each other's place, both together."""
    left = list(wrong)
    found: list[tuple[_T, ...]] = []
    while left:
        one = left.pop(0)
        other = next((other for other in left if swapped(one, other)), None)
        if other is None:
            found.append((one,))
        else:
            left.remove(other)
            found.append((one, other))
    return found

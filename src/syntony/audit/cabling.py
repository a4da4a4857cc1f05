"""A fabric as an auditor looks at it: hosts' NICs on leaves, leaves in groups, links above. Pure.

No expected file is needed: what most hosts, leaves and links do is what the others should do. A
*group* (rack, pod, scalable unit) is a set of leaves that share most of their hosts; one cable in
the wrong group does not join two.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

from syntony.fabric.graph import Cable, Topology
from syntony.fabric.names import ComponentKind

_T = TypeVar("_T")
_Value = TypeVar("_Value", bound=Hashable)
MIN_PEERS = 3
"""Fewer do not decide what is right."""
MAJORITY = 2 / 3
"""Share that must agree: one of three may be wrong, one of two may not."""
LEAF_SHARE = 0.1
"""A switch is a leaf if this share of its cables goes to NICs: a fabric manager on a spine does not
make it one."""


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


class Group(NamedTuple):
    """Leaves that share most of their hosts."""

    leaves: tuple[str, ...]
    hosts: tuple[str, ...]

    @property
    def name(self) -> str:
        """What the leaves' names have in common: ``IBLEAF-*-01``."""
        return pattern(self.leaves)


class Cabling:
    """Who is cabled where.

    Args:
        topology: devices and cables.
        rates: device and port to its rate (``4xNDR``), where known.
        says: device to what it says of itself, where it says anything.
    """

    def __init__(
        self,
        topology: Topology,
        rates: Mapping[tuple[str, str], str] | None = None,
        says: Mapping[str, str] | None = None,
    ) -> None:
        self.topology = topology
        self.rates = rates or {}
        self.says = says or {}

    @cached_property
    def tiers(self) -> tuple[tuple[str, ...], ...]:
        """Leaves, then what is above them, and so on."""
        nics = self._nics
        own, all_of_them = Counter[str](), Counter[str]()
        for here, there in self._both_ways():
            all_of_them[here.device] += 1
            own[here.device] += there.device in nics
        switches = {device.name for device in self.topology.devices} - nics
        leaves = {name for name in switches if own[name] > LEAF_SHARE * all_of_them[name]}
        found = [leaves]
        left = switches - leaves
        while found[-1] and left:
            near = {n for name in found[-1] for n in self.topology.neighbours.get(name, ())}
            found.append(near & left)
            left -= near
        return tuple(tuple(sorted(tier)) for tier in found if tier)

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
            if here.device in self._nics and there.device in leaves
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
        """Of the NICs that say whose they are."""
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
    def groups(self) -> tuple[Group, ...]:
        """All leaves that have hosts, each in one group; every host is in the group where most of
        its NICs are.
        """
        on_leaf = {
            host: frozenset(a.leaf for a in mine) for host, mine in self.by_host.items()
        }  # fmt: skip
        clusters = cluster(on_leaf)
        place = {leaf: number for number, leaves in enumerate(clusters) for leaf in leaves}
        hosts: dict[int, list[str]] = defaultdict(list)
        for host, mine in self.by_host.items():
            often = Counter(place[a.leaf] for a in mine)
            hosts[min(often, key=lambda number: (-often[number], number))].append(host)
        return tuple(
            Group(leaves, tuple(hosts[number])) for number, leaves in enumerate(clusters)
        )  # fmt: skip

    def links(self, lower: int) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Cables from tier `lower` to the next: (lower, upper) to the lower ends' ports, sorted."""
        below, above = set(self.tiers[lower]), set(self.tiers[lower + 1])
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for here, there in self._both_ways():
            if here.device in below and there.device in above:
                found[here.device, there.device].append(here.port)
        return {ends: tuple(sorted(ports, key=natural)) for ends, ports in found.items()}

    @cached_property
    def _nics(self) -> frozenset[str]:
        return frozenset(self.topology.of_kind(ComponentKind.NIC, ComponentKind.HOST))

    def _both_ways(self) -> Iterator[tuple[_End, _End]]:
        for cable in self.topology.cables:
            a, b = ends(cable)
            yield a, b
            yield b, a


class _End(NamedTuple):
    device: str
    port: str


def ends(cable: Cable) -> tuple[_End, _End]:
    """Both ends of a cable."""
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


def majority(values: Iterable[_Value]) -> _Value | None:
    """What at least `MAJORITY` of at least `MIN_PEERS` values are; None if undecided."""
    often = Counter(values)
    if often.total() < MIN_PEERS:
        return None
    value, count = often.most_common(1)[0]
    return value if count >= MAJORITY * often.total() else None


def mode(values: Iterable[_Value]) -> _Value | None:
    """The only most frequent value; None where two are as frequent, or there is none."""
    best = Counter(values).most_common(2)
    if not best or (len(best) == 2 and best[0][1] == best[1][1]):
        return None
    return best[0][0]


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Sorts ``2`` before ``10``."""
    parts = re.findall(r"\d+|\D+", text)
    return tuple((int(p), "") if p.isascii() and p.isdigit() else (-1, p) for p in parts)


def pattern(names: Sequence[str]) -> str:
    """What names have in common, with ``*`` for numbers that differ; else the first and how many
    more.
    """
    split = [re.split(r"(\d+)", name) for name in names]
    if not split or len({len(words) for words in split}) != 1:
        return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else "".join(names)
    columns = [set(column) for column in zip(*split, strict=True)]
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

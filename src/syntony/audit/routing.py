"""Judges routing tables: do all devices use all next hops they should? Pure."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from syntony.audit.checks.network import RoutingTables
from syntony.audit.majority import MIN_VOTERS, Votes, own_vote
from syntony.audit.parse.routes import MAIN, KernelRoute, Network, RoutingTable
from syntony.audit.result import FLEET, Result, Status, Suspect
from syntony.fabric.graph import Topology
from syntony.fabric.names import ComponentKind, cable_name
from syntony.model.names import some

_ENDS = frozenset({ComponentKind.NIC, ComponentKind.HOST})
_LISTED = 4


def judge_routes(
    tables: Sequence[RoutingTable],
    topology: Topology | None = None,
    silent: Mapping[str, str] | None = None,
) -> tuple[Result, ...]:
    """Verdicts of `be.topo.routes`.

    Args:
        tables: of switches and hosts.
        topology: gives the expected next hops; None: the majority does.
        silent: devices whose table could not be had, and why.
    """
    check = RoutingTables()
    found = [
        check.result(Status.UNKNOWN, device, evidence=why)
        for device, why in (silent or {}).items()
    ]  # fmt: skip
    if not tables:
        if not found:
            why = "no routing table was read: name switches with --switches, or --routes DIR"
            found = [check.result(Status.SKIP, FLEET, evidence=why)]
        return tuple(found)
    compared = _Fleet(tables, topology)
    bad = [*compared.thrown(), *compared.circles(), *compared.off_plan(), *compared.odd()]
    if bad:
        return (*found, *bad)
    said = f"{len(tables)} tables, {sum(len(each.routes) for each in tables)} routes"
    if not compared.comparable:
        why = f"{said}: fewer than {MIN_VOTERS} devices of any role, and no topology"
        return (*found, check.result(Status.UNKNOWN, FLEET, evidence=why))
    return (*found, check.result(Status.PASS, FLEET, evidence=said))


class _Fleet:
    """All tables together."""

    def __init__(self, tables: Sequence[RoutingTable], topology: Topology | None) -> None:
        self._tables = tables
        self._topology = topology
        self._check = RoutingTables()
        self._distances: dict[str, dict[str, int]] = {}
        """Leaf to every switch's cables from it."""
        self._roles: dict[str, list[RoutingTable]] = defaultdict(list)
        for each in tables:
            self._roles[self._role(each.device)].append(each)
        self._planned = {
            each.device for each in tables
            if topology is not None and self._kind(each.device) not in {None, *_ENDS}
        }  # fmt: skip

    @property
    def comparable(self) -> bool:
        """Whether there is anything to compare with."""
        return bool(self._planned) or any(len(each) >= MIN_VOTERS for each in self._roles.values())

    def thrown(self) -> Iterator[Result]:
        """Destinations that a device throws away; a default route that does so is a usual guard."""
        for table in self._tables:
            gone = [r for r in table.routes if r.thrown and r.network.prefixlen]
            if gone:
                yield self._fail(
                    table.device, f"throws {len(gone)} destinations away", "forwards them",
                    _some(f"{r.thrown} {r.network} (table {r.table})" for r in gone),
                )  # fmt: skip

    def circles(self) -> Iterator[Result]:
        """Devices that send a destination round in a circle, once for each circle."""
        reported: set[frozenset[str]] = set()
        for network in sorted(
            {r.network for t in self._tables for r in t.routes if r.hops}, key=str
        ):
            ways = {t.device: self._ways(t, network) for t in self._tables}
            for circle in _circles(ways):
                if frozenset(circle) not in reported:
                    reported.add(frozenset(circle))
                    yield self._fail(
                        " -> ".join((*circle, circle[0])), f"{network} goes round in a circle",
                        "each hop is nearer", f"next hops towards {network}",
                    )  # fmt: skip

    def off_plan(self) -> Iterator[Result]:
        """Next hops that are missing or should not be there, by the topology."""
        lost: dict[str, list[str]] = defaultdict(list)
        for table in self._tables:
            if table.device not in self._planned:
                continue
            for network, (got, wanted) in self._planned_ways(table).items():
                for other in wanted - got:
                    lost[cable_name(table.device, other)].append(f"{table.device} to {network}")
                if got - wanted:
                    yield self._fail(
                        table.device, f"{network} goes by {_some(sorted(got - wanted))}",
                        _some(sorted(wanted)), "not on a shortest way of the topology",
                    )  # fmt: skip
        for cable, said in sorted(lost.items()):
            yield self._fail(
                cable, f"not used for {len(said)} destinations", "used", _some(said),
                suspect=Suspect.PORT,
            )  # fmt: skip

    def odd(self) -> Iterator[Result]:
        """What more than half of a role have and a device has not; those with a plan are done."""
        for role, tables in sorted(self._roles.items()):
            left = [each for each in tables if each.device not in self._planned]
            if len(left) >= MIN_VOTERS:
                yield from self._odd(role, left)

    def _odd(self, role: str, tables: Sequence[RoutingTable]) -> Iterator[Result]:
        often = Counter(place for each in tables for place in {_place(r) for r in each.routes})
        usual = {place for place, count in often.items() if _usual(place, count, tables)}
        widths = _Widths(tables)
        for each in tables:
            have = {_place(route) for route in each.routes}
            yield from self._missing(each, usual - have, role, len(tables))
            yield from self._narrow(each, widths, role)
        if widths.disputed:
            said = _some(f"{network}: {why}" for network, why in sorted(widths.disputed.items()))
            yield self._check.result(
                Status.UNKNOWN, role, evidence=f"number of next hops: {said}"
            )  # fmt: skip

    def _missing(
        self, table: RoutingTable, usual: Iterable[tuple[str, Network]], role: str, peers: int
    ) -> Iterator[Result]:
        lost = [
            f"{network} (table {name})"
            for name, network in sorted(usual, key=str)
            if not any(r.table == name and _covers(r.network, network) for r in table.routes)
            and not _at_home(table, network)
        ]
        if lost:
            yield self._fail(
                table.device, f"no route to {len(lost)} destinations", f"as {role} devices have",
                f"{_some(lost)}; {peers} of {role} compared",
            )  # fmt: skip

    def _narrow(self, table: RoutingTable, widths: _Widths, role: str) -> Iterator[Result]:
        """Fewer next hops than peers have for the destination; where few have it, for any."""
        narrow, wanted = [], 0
        for route in table.routes:
            usual = widths.usual(route) if route.hops else 0
            if len(route.hops) < usual:
                narrow.append(f"{route.network}: {len(route.hops)} of {usual}")
                wanted = max(wanted, usual)
        if narrow:
            yield self._fail(
                table.device, f"too few next hops to {len(narrow)} destinations",
                f"{wanted} as more than half of the {role} devices have", _some(narrow),
                suspect=Suspect.PORT,
            )  # fmt: skip

    def _planned_ways(self, table: RoutingTable) -> dict[Network, tuple[set[str], set[str]]]:
        """Destination to the neighbours it goes by and those it should go by."""
        ways: dict[Network, tuple[set[str], set[str]]] = {}
        for route in table.routes:
            leaf = self._leaf_of.get(route.network)
            if not route.hops or leaf is None or leaf == table.device:
                continue
            got = {self._owner.get(via, via) for via in route.hops}
            ways[route.network] = got, self._nearer(table.device, leaf)
        for network, leaf in self._leaf_of.items():
            if leaf == table.device or network in ways:
                continue
            if not any(_covers(r.network, network) for r in table.routes):
                ways[network] = set(), self._nearer(table.device, leaf)
        return ways

    @cached_property
    def _leaf_of(self) -> dict[Network, str]:
        """Destination to the leaf that all of its NICs hang on, by the topology."""
        topology = self._topology
        if topology is None:
            return {}
        networks = {
            r.network for t in self._tables for r in t.routes
            if t.device in self._planned and r.hops and r.network.prefixlen
        }  # fmt: skip
        lengths = {(network.version, network.prefixlen) for network in networks}
        leaves: dict[Network, set[str]] = defaultdict(set)
        for nic in (each for each in topology.devices if each.kind is ComponentKind.NIC):
            near = topology.neighbours.get(nic.name, ())
            for address in map(ipaddress.ip_address, nic.addresses):
                for version, length in lengths:
                    if version == address.version:
                        leaves[ipaddress.ip_network((address, length), strict=False)].update(near)
        return {
            network: next(iter(near)) for network, near in leaves.items()
            if network in networks and len(near) == 1
        }  # fmt: skip

    def _nearer(self, here: str, leaf: str) -> set[str]:
        if self._topology is None:
            return set()
        if leaf not in self._distances:
            self._distances[leaf] = self._topology.distances(leaf)
        return self._topology.nearer(here, self._distances[leaf])

    @cached_property
    def _owner(self) -> dict[str, str]:
        """Address to the device that it belongs to."""
        own = {address: table.device for table in self._tables for address in table.own}
        return own | (self._topology.by_address if self._topology is not None else {})

    def _ways(self, table: RoutingTable, network: Network) -> set[str]:
        """Devices that a switch sends a destination to; a host forwards nothing."""
        if self._kind(table.device) in _ENDS:
            return set()
        exact = self._exact[table.device].get(network)
        if exact is None:
            fitting = [r for r in table.routes if r.table == MAIN and _covers(r.network, network)]
            exact = max(fitting, key=lambda r: r.network.prefixlen, default=None)
        return {self._owner[v] for v in exact.hops if v in self._owner} if exact else set()

    @cached_property
    def _exact(self) -> dict[str, dict[Network, KernelRoute]]:
        return {
            t.device: {r.network: r for r in t.routes if r.table == MAIN} for t in self._tables
        }  # fmt: skip

    def _kind(self, device: str) -> ComponentKind | None:
        if self._topology is None or device not in self._topology.neighbours:
            return None
        return self._topology.kind_of(device)

    def _role(self, device: str) -> str:
        kind = self._kind(device)
        return str(kind) if kind is not None else re.sub(r"[\d-]+.*", "", device) or device

    def _fail(
        self, subject: str, got: str, expected: str, evidence: str,
        suspect: Suspect = Suspect.SWITCH,
    ) -> Result:  # fmt: skip
        return self._check.result(Status.FAIL, subject, got, expected, evidence, suspect=suspect)


class _Widths:
    """How many next hops devices of one role have: one vote of each."""

    def __init__(self, tables: Sequence[RoutingTable]) -> None:
        self._of_place: dict[tuple[str, Network], Votes[int]] = defaultdict(
            lambda: Votes("devices")
        )
        votes = Votes[int]("devices")
        for table in tables:
            routes = {_place(route): len(route.hops) for route in table.routes if route.hops}
            for place, width in routes.items():
                self._of_place[place].add(table.device, width)
            votes.add(table.device, own_vote(routes.values()))
        self._any = votes.decide()
        self.disputed: dict[str, str] = {}
        """Destination to why no width is usual."""

    def usual(self, route: KernelRoute) -> int:
        """Of a destination; of any, where fewer than three devices have it; 0 if undecided."""
        votes = self._of_place[_place(route)]
        decision = votes.decide() if votes.total >= MIN_VOTERS else self._any
        if decision.value is None and votes.total >= MIN_VOTERS:
            self.disputed[str(route.network)] = decision.why
        return decision.value or 0


def _place(route: KernelRoute) -> tuple[str, Network]:
    return route.table, route.network


def _covers(wide: Network, narrow: Network) -> bool:
    return wide.version == narrow.version and narrow.subnet_of(wide)  # type: ignore[arg-type]


def _usual(place: tuple[str, Network], count: int, tables: Sequence[RoutingTable]) -> bool:
    """Whether more than half have it, of those that it is not the own side of."""
    if 3 * count < len(tables):
        return False
    return 2 * count > sum(not _at_home(table, place[1]) for table in tables)


def _at_home(table: RoutingTable, network: Network) -> bool:
    """Whether the destination is the device's own side: it has an address there, or a part of it is
    connected.
    """
    if any(ipaddress.ip_address(own) in network for own in table.own):
        return True
    return any(not r.hops and not r.thrown and _covers(network, r.network) for r in table.routes)


def _circles(ways: Mapping[str, set[str]]) -> Iterator[tuple[str, ...]]:
    """One circle for each device that is on one, found by following next hops."""
    done: set[str] = set()
    for start in ways:
        path: list[str] = []
        stack = [(start, 0)]
        while stack:
            device, depth = stack.pop()
            del path[depth:]
            if device in path:
                yield tuple(path[path.index(device) :])
                continue
            if device in done or device not in ways:
                continue
            done.add(device)
            path.append(device)
            stack += [(other, depth + 1) for other in sorted(ways[device])]


def _some(words: Iterable[str]) -> str:
    return some(words, _LISTED)

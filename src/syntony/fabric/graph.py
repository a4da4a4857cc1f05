"""The fabric as a graph: devices, the cables between their ports, and differences of two graphs.
Pure."""

from __future__ import annotations

import ipaddress
import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from syntony.errors import InputError
from syntony.fabric.names import (
    GROUP,
    ComponentKind,
    cable_name,
    guess_kind,
    link_ends,
    link_name,
)
from syntony.model.names import did_you_mean

MAX_NAME = 128
_ENDS = frozenset({ComponentKind.NIC, ComponentKind.HOST})


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A switch, a NIC (``h3/rail0``) or a host."""

    name: str
    kind: ComponentKind = ComponentKind.COMPONENT
    """``component`` if it is to be derived."""
    addresses: tuple[str, ...] = ()
    """Addresses with which it answers a traceroute."""


class Cable(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A connection of two ports; port names may be unknown (empty)."""

    a: str
    b: str
    a_port: str = ""
    b_port: str = ""
    gbps: float = 0.0
    """Per direction; 0: not given."""

    @property
    def name(self) -> str:
        """``leaf0--spine1``, the same for parallel ones."""
        return cable_name(self.a, self.b)


class TopologyDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between two topologies, as an event."""

    change: str
    """``added``, ``removed``, ``moved`` or ``changed``."""
    what: str
    """``device`` or ``cable``."""
    name: str
    detail: str = ""


class Topology(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A checked fabric (see `make_topology`)."""

    devices: tuple[Device, ...]
    """Sorted by name."""
    cables: tuple[Cable, ...]

    @cached_property
    def _kinds(self) -> dict[str, ComponentKind]:
        return {device.name: device.kind for device in self.devices}

    @cached_property
    def by_address(self) -> dict[str, str]:
        """Address in a traceroute → the device with that address."""
        return {canonical(address): d.name for d in self.devices for address in d.addresses}

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """Device → the devices cabled to it, sorted."""
        near: dict[str, set[str]] = defaultdict(set)
        for cable in self.cables:
            near[cable.a].add(cable.b)
            near[cable.b].add(cable.a)
        return {name: tuple(sorted(others)) for name, others in near.items()}

    @cached_property
    def parallel(self) -> dict[str, int]:
        """Cable, by the name that parallel ones share → number of cables; only where there are
        several."""
        counts = Counter(cable.name for cable in self.cables)
        return {name: count for name, count in counts.items() if count > 1}

    def kind_of(self, name: str) -> ComponentKind:
        """The kind of a device, link or cable by its name; guessed for an unknown one."""
        return self._kinds.get(name) or guess_kind(name)

    def of_kind(self, *kinds: ComponentKind) -> tuple[str, ...]:
        return tuple(device.name for device in self.devices if device.kind in kinds)

    def distances(self, start: str) -> dict[str, int]:
        """Switch → its number of cables from a device, over switches only; the device itself is
        0."""
        away = {start: 0}
        todo = deque([start])
        while todo:
            here = todo.popleft()
            for other in self.neighbours.get(here, ()):
                if other not in away and self.kind_of(other) not in _ENDS:
                    away[other] = away[here] + 1
                    todo.append(other)
        return away

    def nearer(self, here: str, away: Mapping[str, int]) -> set[str]:
        """Neighbours of a switch that are nearer to the destination, by `distances` from it."""
        near = self.neighbours.get(here, ())
        return {other for other in near if other in away and away[other] < away.get(here, 0)}


def make_topology(devices: Iterable[Device], cables: Iterable[Cable]) -> Topology:
    """Check the parts and derive the tiers that are not given.

    Raises:
        InputError: an empty or overlong name, two devices with one name, one address at two
            devices, a cable to a missing device or from a device to itself, or a port in two
            cables.
    """
    found = sorted(devices, key=lambda device: device.name)
    joined = tuple(cables)
    _check_devices(found)
    _check_cables(joined, {device.name for device in found})
    tiers = _tiers(found, joined)
    return Topology(
        devices=tuple(msgspec.structs.replace(d, kind=tiers[d.name]) for d in found),
        cables=tuple(sorted(joined, key=lambda c: (c.name, c.a_port, c.b_port))),
    )


def _check_devices(devices: Sequence[Device]) -> None:
    owners: dict[str, str] = {}
    names: set[str] = set()
    for device in devices:
        _check_name(device.name)
        if device.name in names:
            raise InputError("duplicate-name", f"two devices are called {device.name}")
        names.add(device.name)
        for address in device.addresses:
            other = owners.setdefault(canonical(address), device.name)
            if other != device.name:
                raise InputError(
                    "duplicate-address", f"{address} belongs to {other} and to {device.name}"
                )


def canonical(address: str) -> str:
    """An IP address in the kernel's notation; anything else unchanged."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address


def is_device_name(name: str) -> bool:
    """Whether a device can have this name: not a link's name, and printable."""
    return 0 < len(name) <= MAX_NAME and name.isprintable() and link_ends(name) is None


def _check_name(name: str) -> None:
    if not is_device_name(name):
        raise InputError(
            "bad-name",
            f"{name[:40]!r} cannot name a device: printable, up to {MAX_NAME}, without -> or --",
        )


def _check_cables(cables: Sequence[Cable], names: set[str]) -> None:
    used: set[tuple[str, str]] = set()
    for cable in cables:
        for end in (cable.a, cable.b):
            if end not in names:
                hint = did_you_mean(end, names)
                raise InputError("unknown-device", f"a cable ends at {end[:80]!r}{hint}")
        if cable.a == cable.b:
            raise InputError("loop", f"a cable joins {cable.a} to itself")
        if not 0 <= cable.gbps < math.inf:
            raise InputError("bad-speed", f"{cable.name} has {cable.gbps} Gb/s")
        for port in ((cable.a, cable.a_port), (cable.b, cable.b_port)):
            if port[1] and port in used:
                raise InputError("port-twice", f"port {port[1]} of {port[0]} is in two cables")
            used.add(port)


def _tiers(devices: Sequence[Device], cables: Sequence[Cable]) -> dict[str, ComponentKind]:
    """Kinds as given or as names suggest; for other switches by their distance from the NICs."""
    kinds = {d.name: d.kind for d in devices}
    near: dict[str, set[str]] = defaultdict(set)
    for cable in cables:
        near[cable.a].add(cable.b)
        near[cable.b].add(cable.a)
    for name, kind in kinds.items():
        if kind is ComponentKind.COMPONENT:
            kinds[name] = guess_kind(name)
    ends = {ComponentKind.NIC, ComponentKind.HOST}
    below = {name for name, kind in kinds.items() if kind in ends}
    for tier in (ComponentKind.LEAF, ComponentKind.SPINE, ComponentKind.CORE):
        above = {other for name in below for other in near[name]} - below
        for name in above:
            if kinds[name] in {ComponentKind.COMPONENT, ComponentKind.SWITCH}:
                kinds[name] = tier
        below |= above
    return kinds


def diff(before: Topology, after: Topology) -> tuple[TopologyDifference, ...]:
    """Changes between two topologies, devices first.

    A device with one cable whose other end is now elsewhere has *moved*: the most common mistake of
    recabling.
    """
    changes = [*_device_changes(before, after)]
    gone, come = (
        sorted(_ends(one) - _ends(other)) for one, other in ((before, after), (after, before))
    )
    moved = {
        name: (before.neighbours[name][0], after.neighbours[name][0])
        for name in sorted(before.neighbours.keys() & after.neighbours.keys())
        if len(before.neighbours[name]) == len(after.neighbours[name]) == 1
        and before.neighbours[name] != after.neighbours[name]
    }
    for name, (old, new) in moved.items():
        changes.append(
            TopologyDifference(
                change="moved", what="device", name=name, detail=f"from {old} to {new}"
            )
        )
    for change, ends in (("removed", gone), ("added", come)):
        for a, b, *ports in ends:
            if a not in moved and b not in moved:
                detail = f"ports {ports[0] or '?'} and {ports[1] or '?'}" if any(ports) else ""
                changes.append(
                    TopologyDifference(
                        change=change, what="cable", name=cable_name(a, b), detail=detail
                    )
                )
    return tuple(changes)


def _device_changes(before: Topology, after: Topology) -> Iterable[TopologyDifference]:
    old = {device.name: device for device in before.devices}
    new = {device.name: device for device in after.devices}
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield TopologyDifference(
                change="removed", what="device", name=name, detail=old[name].kind.value
            )
        elif name not in old:
            yield TopologyDifference(
                change="added", what="device", name=name, detail=new[name].kind.value
            )
        elif old[name].kind is not new[name].kind:
            detail = f"was {old[name].kind}, is {new[name].kind}"
            yield TopologyDifference(change="changed", what="device", name=name, detail=detail)


def _ends(topology: Topology) -> set[tuple[str, str, str, str]]:
    """Cables by both ends, in either order."""
    found = set()
    for cable in topology.cables:
        (a, a_port), (b, b_port) = sorted(((cable.a, cable.a_port), (cable.b, cable.b_port)))
        found.add((a, b, a_port, b_port))
    return found


def components_of(hops: Sequence[str | None]) -> list[str]:
    """A path's devices, with the links between them, in order; unknown ones become one group.

    Successive hops that belong to one device (a relay or another routing table in the same box)
    count as that device once: there is no cable between them.

    Args:
        hops: device names from sender to receiver; None for a hop that did not answer.
    """
    components: list[str] = []
    last: str | None = None
    gap = False
    for hop in hops:
        if hop is None:
            gap = True
            continue
        if hop == last and not gap:
            continue
        if last is not None:
            components.append(group_name(last, hop) if gap else link_name(last, hop))
        components.append(hop)
        last, gap = hop, False
    return components


def group_name(a: str, b: str) -> str:
    """The group of all unknown components between two known devices."""
    return f"{a}{GROUP}{b}"

"""Parse and merge what hosts' LLDP neighbours announce: `lldpctl -f json`. Pure.

The document is an object per interface, or a list of objects. A chassis is named by its key, except
when it has no name (`lldpd`'s json keeps keys, json0 does not). Both are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from syntony.errors import InputError
from syntony.fabric.graph import Cable, Device, Topology, is_device_name, make_topology
from syntony.fabric.names import ComponentKind

HERE = "localhost"
"""Name of the host itself, if the document does not contain it."""


class Neighbour(NamedTuple):
    """The announcement that one NIC received."""

    nic: str
    """``gpu001/eth2``"""
    name: str
    """Of the switch."""
    chassis: str
    """Its chassis id; empty if not announced."""
    addresses: tuple[str, ...]
    port: str
    """Of the switch."""


class LldpProblem(NamedTuple):
    """A contradictory or invalid announcement."""

    subject: str
    what: str
    certain: bool
    """Whether the fault is certainly in the fabric, not in the collected data."""


class Merged(NamedTuple):
    """Many hosts' neighbours as one fabric."""

    topology: Topology
    doubts: tuple[LldpProblem, ...]


def read_neighbours(document: Any, host: str = "") -> list[Neighbour]:
    """One host's neighbours that announce a name or an id. Raises `InputError`."""
    if not isinstance(document, Mapping) or not isinstance(document.get("lldp"), Mapping):
        raise InputError("not-lldp", 'no object "lldp": use lldpctl -f json')
    own = host or str(document.get("host") or HERE)
    found = []
    for nic, entry in _interfaces(document["lldp"].get("interface", [])):
        chassis = _chassis(entry)
        if chassis is not None:
            found.append(Neighbour(f"{own}/{nic}", *chassis, _port(entry)))
    return found


def merge_lldp(neighbours: Iterable[Neighbour]) -> Merged:
    """Merge many hosts' neighbours. Switches are the same if they announce the same name and
    chassis id.

    A contradiction affects only its subject: an address of two switches is used for neither, a
    switch port that two NICs claim is left out, and so is a name that is not valid for a device.
    """
    neighbours = list(neighbours)
    doubts: list[LldpProblem] = []
    usable = []
    switches = {name for each in neighbours for name in _switch_names(each)}
    for each in neighbours:
        names = (each.nic, *_switch_names(each))
        if all(map(is_device_name, names)) and each.nic not in switches:
            usable.append(each)
        else:
            doubts.append(LldpProblem(each.nic, f"{each.name[:40]!r} cannot name a switch", False))
    named = _names(usable, doubts)
    addresses = _addresses(usable, named, doubts)
    ports = _ports(usable, named, doubts)
    devices = {name: Device(name=name, addresses=own) for name, own in addresses.items()}
    own_port = {each.nic: each.nic.rpartition("/")[2] for each in usable}
    cables = []
    for each in usable:
        nic, switch = each.nic, named[each.name, each.chassis]
        devices[nic] = Device(name=nic, kind=ComponentKind.NIC)
        port = each.port if (switch, each.port) in ports else ""
        cables.append(Cable(a=nic, b=switch, a_port=own_port.pop(nic, ""), b_port=port))
    return Merged(make_topology(devices.values(), cables), tuple(doubts))


def _switch_names(each: Neighbour) -> tuple[str, str]:
    """Names for the switch, in order of preference: its name, alone or with its chassis id."""
    return each.name, f"{each.name} {each.chassis}"


_Switch = tuple[str, str]
"""Name and chassis id."""


def _names(neighbours: Sequence[Neighbour], doubts: list[LldpProblem]) -> dict[_Switch, str]:
    """Unique names: a name that several chassis announce is extended by the chassis id."""
    ids: dict[str, set[str]] = defaultdict(set)
    for each in neighbours:
        ids[each.name].add(each.chassis)
    for name, several in sorted(ids.items()):
        if len(several - {""}) > 1:
            listed = ", ".join(sorted(several - {""}))
            doubts.append(
                LldpProblem(name, f"{len(several - {''})} switches say this name: {listed}", True)
            )
    return {
        (name, chassis): f"{name} {chassis}" if chassis and len(several - {""}) > 1 else name
        for name, several in ids.items()
        for chassis in several
    }


def _addresses(
    neighbours: Sequence[Neighbour], named: Mapping[_Switch, str], doubts: list[LldpProblem]
) -> dict[str, tuple[str, ...]]:
    owners: dict[str, set[str]] = defaultdict(set)
    found: dict[str, list[str]] = defaultdict(list)
    for each in neighbours:
        switch = named[each.name, each.chassis]
        found[switch] += each.addresses
        for address in each.addresses:
            owners[address].add(switch)
    for address, switches in sorted(owners.items()):
        if len(switches) > 1:
            listed = ", ".join(sorted(switches))
            doubts.append(
                LldpProblem(listed, f"address {address} on {len(switches)} switches", True)
            )
    return {
        switch: tuple(dict.fromkeys(a for a in own if len(owners[a]) == 1))
        for switch, own in found.items()
    }


def _ports(
    neighbours: Sequence[Neighbour], named: Mapping[_Switch, str], doubts: list[LldpProblem]
) -> frozenset[tuple[str, str]]:
    """Ports that exactly one NIC claims."""
    claims: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in neighbours:
        if each.port:
            claims[named[each.name, each.chassis], each.port].append(each.nic)
    for (switch, port), nics in sorted(claims.items()):
        if len(nics) > 1:
            listed = ", ".join(sorted(nics))
            doubts.append(LldpProblem(f"{switch} port {port}", f"claimed by {listed}", False))
    return frozenset(place for place, nics in claims.items() if len(nics) == 1)


def _interfaces(found: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    groups = found if isinstance(found, list) else [found]
    for group in groups:
        if not isinstance(group, Mapping):
            raise InputError("not-lldp", "an interface that is no object")
        named = {group["name"]: group} if isinstance(group.get("name"), str) else group
        for name, entry in named.items():
            if not isinstance(entry, Mapping):
                raise InputError("not-lldp", f"interface {str(name)[:40]!r} is no object")
            yield str(name), entry


def _chassis(entry: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]] | None:
    """The neighbour's name, chassis id and management addresses; None without a name."""
    chassis = entry.get("chassis")
    if isinstance(chassis, list) and chassis:
        chassis = chassis[0]
    if not isinstance(chassis, Mapping) or not chassis:
        return None
    inner: Any = chassis
    if "id" in chassis or "name" in chassis:
        name = _text(chassis.get("name")) or _value(chassis.get("id"))
    else:
        name, inner = next(iter(chassis.items()))
    if not isinstance(inner, Mapping) or not name:
        return None
    addresses = inner.get("mgmt-ip", [])
    listed = addresses if isinstance(addresses, list) else [addresses]
    texts = [item if isinstance(item, str) else _value(item) for item in listed]
    kept = tuple(dict.fromkeys(text for text in texts if text))
    return str(name), _value(inner.get("id")), kept


def _port(entry: Mapping[str, Any]) -> str:
    port = entry.get("port")
    if isinstance(port, list) and port:
        port = port[0]
    return _value(port.get("id")) if isinstance(port, Mapping) else ""


def _value(item: Any) -> str:
    """`{"type": …, "value": X}`, or a list of such."""
    if isinstance(item, list) and item:
        item = item[0]
    value = item.get("value") if isinstance(item, Mapping) else None
    return value if isinstance(value, str) else ""


def _text(item: Any) -> str:
    if isinstance(item, list) and item:
        return _text(item[0]) or _value(item[0])
    return item if isinstance(item, str) else ""

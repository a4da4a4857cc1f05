"""What a host's neighbours say of themselves: `lldpctl -f json`. Pure.

The document is an object per interface, or a list of them; a chassis is named by its key, except
when it has no name (`lldpd`'s json keeps keys, json0 does not). Both are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from syntony.errors import InputError
from syntony.fabric.graph import Cable, Device, Topology, make_topology
from syntony.fabric.names import ComponentKind

HERE = "localhost"
"""Name of the asked host, where the document does not tell it."""


def parse_lldp(document: Any, host: str = "") -> Topology:
    """One host's neighbours as a topology: its NICs, and a switch at the end of each.

    Raises:
        InputError: not such a document.
    """
    if not isinstance(document, Mapping) or not isinstance(document.get("lldp"), Mapping):
        raise InputError("not-lldp", 'no object "lldp": use lldpctl -f json')
    own = host or str(document.get("host") or HERE)
    devices: dict[str, Device] = {}
    cables = []
    for nic, entry in _interfaces(document["lldp"].get("interface", [])):
        chassis, port = _chassis(entry), _port(entry)
        if chassis is None:
            continue
        name, addresses = chassis
        nic_name = f"{own}/{nic}"
        devices[nic_name] = Device(name=nic_name, kind=ComponentKind.NIC)
        devices.setdefault(name, Device(name=name, addresses=addresses))
        cables.append(Cable(a=nic_name, b=name, a_port=nic, b_port=port))
    return make_topology(devices.values(), cables)


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


def _chassis(entry: Mapping[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    """The neighbour's name and management addresses; None where it has no name."""
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
    return str(name), tuple(dict.fromkeys(text for text in texts if text))


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

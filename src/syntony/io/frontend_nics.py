"""Which interfaces carry the front-end network, read from a host's sysfs and routing tables.

An interface carries it when the default route leaves by it, or when an interface on top of it does
(bond, VLAN, bridge, Azure's synthetic NIC over its virtual function), or when one of its virtual
functions does. Interfaces towards mounted network file systems are listed separately: `LinkFiles`
classifies them by their cards.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import NamedTuple

from syntony.audit.parse.proc_routes import default_routes_4, default_routes_6
from syntony.io.files import text_of

_NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "beegfs", "ceph", "gpfs", "wekafs", "cifs", "smb3", "9p"}
)
_SERVER = re.compile(r"(?:^|[,=@])(\d{1,3}(?:\.\d{1,3}){3})(?=[:@,/]|$)")
_MAX_BYTES = 1 << 16


class FrontendNics(NamedTuple):
    default: frozenset[str] | None
    """Those that carry a default route, whatever is built on them; None: no table can be read."""
    storage: frozenset[str]
    """Those by which network file systems are mounted."""


def frontend_nics(root: Path) -> FrontendNics:
    """Front-end NICs of the host below `root`."""
    table = text_of(root / "proc/net/route", _MAX_BYTES)
    table_6 = text_of(root / "proc/net/ipv6_route", _MAX_BYTES)
    mounts = text_of(root / "proc/mounts", _MAX_BYTES) or ""
    storage = _below(root, storage_routes(table or "", mounts))
    if table is None and table_6 is None:
        return FrontendNics(None, storage)
    default = {*default_routes_4(table or ""), *default_routes_6(table_6 or "")}
    return FrontendNics(_below(root, frozenset(default)), storage)


def storage_routes(table: str, mounts: str) -> frozenset[str]:
    """Interfaces whose own routes (not a default one) lead to servers of mounted file systems."""
    servers = [
        server
        for line in mounts.splitlines()
        if (cells := line.split()) and len(cells) > 3 and cells[2] in _NETWORK_FILE_SYSTEMS
        for text in (cells[0], cells[3])
        for server in _SERVER.findall(text)
    ]
    routes = [route for line in table.splitlines()[1:] if (route := _route(line)) is not None]
    found = set()
    for server in dict.fromkeys(servers):
        try:
            address = ipaddress.IPv4Address(server)
        except ValueError:
            continue
        fitting = [(net.prefixlen, name) for net, name in routes if address in net]
        if fitting:
            found.add(max(fitting)[1])
    return frozenset(found)


def _route(line: str) -> tuple[ipaddress.IPv4Network, str] | None:
    """(destination, interface) of a row; None for a default route and for what makes no sense."""
    cells = line.split()
    if len(cells) < 8 or not all(re.fullmatch(r"[0-9A-Fa-f]{8}", cells[at]) for at in (1, 7)):
        return None
    # In the machine's byte order, little-endian on all that run accelerators.
    to, mask = (int.from_bytes(bytes.fromhex(cells[at]), "little") for at in (1, 7))
    length = mask.bit_count()
    if not mask or mask != (0xFFFFFFFF << (32 - length)) & 0xFFFFFFFF or to & ~mask:
        return None
    return ipaddress.IPv4Network((to, length)), cells[0]


def _below(root: Path, names: frozenset[str]) -> frozenset[str]:
    """The interfaces, all that they are built on, and the physical functions of these."""
    legs: dict[str, list[str]] = {}
    # A recorder may have kept only the link from a leg to its bond.
    for each in _names(root / "sys/class/net") if names else ():
        legs.setdefault(_target(root / "sys/class/net" / each / "master"), []).append(each)
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found or "/" in name:
            continue
        found.add(name)
        base = root / "sys/class/net" / name
        waiting += [each[6:] for each in _names(base) if each.startswith("lower_")]
        waiting += [*legs.get(name, ()), *_names(base / "device/physfn/net")]
    return frozenset(found)


def _target(link: Path) -> str:
    try:
        return link.readlink().name
    except OSError:
        return ""


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []

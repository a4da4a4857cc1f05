"""What rtnetlink says of links and addresses, parsed (linux/rtnetlink.h, linux/if_link.h)."""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import NamedTuple

from syntony.errors import WireError
from syntony.io.netlink import attributes

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR = 0x1, 0x10, 0x100
LINK_HEADER = struct.Struct("=BxHiII")
"""ifinfomsg: family, device type, ifindex, flags, change mask."""
_ADDRESS_HEADER = struct.Struct("=BBBBI")
"""ifaddrmsg: family, prefix length, flags, scope, ifindex."""
_U32 = struct.Struct("=I")
_IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000
_IFLA_IFNAME, _IFLA_LINK, _IFLA_DOWN_COUNT, _IFLA_CHANGES = 3, 5, 48, 35
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_SCOPE_GLOBAL = 0


class LinkInfo(NamedTuple):
    """One link as the kernel describes it."""

    ifindex: int
    name: str
    admin_up: bool
    carrier: bool
    carrier_changes: int
    carrier_down_count: int
    throttled: bool
    """Linkwatch delays this device's events, up to a second (net/core/link_watch.c treats as urgent
    only those whose lower device is another one)."""


class AddressInfo(NamedTuple):
    ifindex: int
    text: str
    is_global: bool


def parse_link(payload: bytes) -> LinkInfo | None:
    """Parse RTM_NEWLINK or RTM_DELLINK; None if it is about a bridge port or the like. Raises
    `WireError`: not such a message."""
    if len(payload) < LINK_HEADER.size:
        raise WireError("link message cut short")
    family, _, ifindex, flags, _ = LINK_HEADER.unpack_from(payload)
    if family != socket.AF_UNSPEC:
        return None
    found = attributes(payload, LINK_HEADER.size)
    lower = _u32(found, _IFLA_LINK, ifindex)
    return LinkInfo(
        ifindex=ifindex,
        name=found.get(_IFLA_IFNAME, b"").rstrip(b"\0").decode(errors="replace"),
        admin_up=bool(flags & _IFF_UP),
        carrier=bool(flags & _IFF_LOWER_UP),
        carrier_changes=_u32(found, _IFLA_CHANGES, 0),
        carrier_down_count=_u32(found, _IFLA_DOWN_COUNT, 0),
        throttled=lower == ifindex,
    )


def parse_address(payload: bytes) -> AddressInfo | None:
    """Parse RTM_NEWADDR or RTM_DELADDR; None for other families than IP. Raises `WireError`: not
    such a message."""
    if len(payload) < _ADDRESS_HEADER.size:
        raise WireError("address message cut short")
    family, _, _, scope, ifindex = _ADDRESS_HEADER.unpack_from(payload)
    found = attributes(payload, _ADDRESS_HEADER.size)
    raw = found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS, b"")
    if family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    if len(raw) != (4 if family == socket.AF_INET else 16):
        raise WireError("address of a wrong length")
    return AddressInfo(ifindex, str(ipaddress.ip_address(raw)), scope == _SCOPE_GLOBAL)


def _u32(found: dict[int, bytes], kind: int, missing: int) -> int:
    raw = found.get(kind)
    if raw is None:
        return missing
    if len(raw) != _U32.size:
        raise WireError("32-bit attribute of a wrong length")
    return int(_U32.unpack(raw)[0])

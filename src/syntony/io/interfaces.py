"""Network interfaces and their addresses, without netlink: an agent asks once, at its start."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from syntony.errors import MissingError

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_GLOBAL_SCOPE = 0x00  # net/ipv6.h, as printed in if_inet6


def addresses(name: str) -> tuple[str, ...]:
    """The interface's primary IPv4 address, if any, then its global IPv6 addresses. Raises
    `MissingError`: there is no such interface."""
    known = sorted(interface for _, interface in socket.if_nameindex())
    if name not in known:
        raise MissingError(f"no interface {name!r} here; this host has {', '.join(known)}")
    ipv4 = _ipv4(name)
    return ((ipv4,) if ipv4 else ()) + _ipv6(name)


def address(name: str, family: str) -> str:
    """The address of one family (``ipv4`` or ``ipv6``). Raises `MissingError`: there is no such
    interface, or it has no such address."""
    wanted = 6 if family == "ipv6" else 4
    for text in addresses(name):
        if ipaddress.ip_address(text).version == wanted:
            return text
    raise MissingError(f"interface {name!r} has no {family} address; give it one or change family")


def _ipv4(name: str) -> str | None:
    request = struct.pack("16sH14s", name.encode()[:15], socket.AF_INET, b"")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, _SIOCGIFADDR, request)
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _ipv6(name: str) -> tuple[str, ...]:
    table = Path("/proc/net/if_inet6")
    if not table.exists():
        return ()
    found = []
    for line in table.read_text(encoding="ascii").splitlines():
        digits, _, _, scope, _, interface = line.split()
        if interface == name and int(scope, 16) == _GLOBAL_SCOPE:
            found.append(str(ipaddress.IPv6Address(bytes.fromhex(digits))))
    return tuple(found)

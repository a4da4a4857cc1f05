"""Saves addresses, routes and rules of NICs, and restores those that vanished.

An administrative flap makes the kernel drop a NIC's routes (and its IPv6 addresses) without
notifying the program that installed them. Messages are kept as the kernel gave them, so nothing
about a route is lost in translation (linux/rtnetlink.h, rtnetlink(7)).
"""

from __future__ import annotations

import errno
import logging
import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

from syntony.errors import WireError
from syntony.io.netlink import NLM_F_DUMP, NetlinkMessage, attribute, attribute_list, attributes
from syntony.io.netlink_socket import CREATE, NetlinkSocket

_log = logging.getLogger(__name__)

NETLINK_ROUTE = 0
_NEWADDR, _GETADDR, NEWROUTE, GETROUTE, NEWRULE, _GETRULE = 20, 22, 24, 26, 32, 34
RTMSG = struct.Struct("=BBBBBBBBI")
"""Family, destination and source lengths, TOS, table, protocol, scope, type, flags."""
_ADDR = struct.Struct("=BBBBi")
"""Family, prefix length, flags, scope, interface."""
_NEXT_HOP = struct.Struct("=HBBi")
RTA_OIF, _RTA_MULTIPATH, _RTA_CACHEINFO, _RTA_PREF = 4, 9, 12, 20
_IFA_CACHEINFO = 6
UNICAST = 1
_PROTO_KERNEL = 2
"""Routes that the kernel makes by itself from addresses."""
_SCOPE_LINK = 253
_F_CLONED = 0x200
_SCOPE_GLOBAL = 0


class SavedRoute(NamedTuple):
    """One message that can be sent back as it is."""

    kind: int
    body: bytes
    indexes: frozenset[int]
    """Interfaces it belongs to; empty: to none (a rule)."""


class Routes:
    """Saves addresses, routes and rules of NICs, and restores those that vanished.

    Works in the network namespace of the thread that made it. Not thread-safe.
    """

    def __init__(self) -> None:
        self._socket = NetlinkSocket(NETLINK_ROUTE)
        self._kept: dict[SavedRoute, None] = {}

    def close(self) -> None:
        self._socket.close()

    def note(self, indexes: Collection[int]) -> None:
        """Save what these interfaces have now, replacing what was saved before."""
        wanted = frozenset(indexes)
        stays = [kept for kept in self._kept if kept.indexes and not kept.indexes & wanted]
        self._kept = dict.fromkeys([*self._present(wanted), *stays])

    def restore(self, index: int) -> int:
        """Restore what an interface has lost; return how many items.

        What the kernel refuses is logged: the next carrier event tries again.
        """
        present = set(self._present({index}))
        missing = [
            kept
            for kept in self._kept
            if kept not in present and (index in kept.indexes or not kept.indexes)
        ]
        # Addresses first, then routes of link scope: the others need them.
        for kept in sorted(missing, key=_rank):
            self._put(kept)
        return len(missing)

    def _put(self, kept: SavedRoute) -> None:
        try:
            self._socket.ask(kept.kind, kept.body, CREATE)
        except OSError as error:
            if error.errno != errno.EEXIST:
                _log.warning("route or address not restored reason=%s", error.strerror)

    def _present(self, indexes: Collection[int]) -> Iterator[SavedRoute]:
        for message in self._socket.ask(_GETADDR, bytes(_ADDR.size), NLM_F_DUMP):
            yield from _address(message, indexes)
        for message in self._socket.ask(GETROUTE, bytes(RTMSG.size), NLM_F_DUMP):
            yield from _route(message, indexes)
        for message in self._socket.ask(_GETRULE, bytes(RTMSG.size), NLM_F_DUMP):
            yield SavedRoute(NEWRULE, message.payload, frozenset())


def _rank(kept: SavedRoute) -> tuple[int, bool]:
    far = kept.kind == NEWROUTE and RTMSG.unpack_from(kept.body)[6] != _SCOPE_LINK
    return kept.kind, far


def _address(message: NetlinkMessage, indexes: Collection[int]) -> Iterator[SavedRoute]:
    """Permanent global addresses; link-local ones come by themselves."""
    if message.type != _NEWADDR or len(message.payload) < _ADDR.size:
        return
    family, prefix, _, scope, index = _ADDR.unpack_from(message.payload)
    if index in indexes and scope == _SCOPE_GLOBAL:
        head = _ADDR.pack(family, prefix, 0, scope, index)
        body = head + _without(message.payload, _ADDR.size, {_IFA_CACHEINFO, 8})
        yield SavedRoute(_NEWADDR, body, frozenset({index}))


def _route(message: NetlinkMessage, indexes: Collection[int]) -> Iterator[SavedRoute]:
    """Routes that someone has installed, in any table."""
    if message.type != NEWROUTE or len(message.payload) < RTMSG.size:
        return
    *head, protocol, scope, kind, flags = RTMSG.unpack_from(message.payload)
    if kind != UNICAST or protocol == _PROTO_KERNEL or flags & _F_CLONED:
        return
    found = attributes(message.payload, RTMSG.size)
    own = _interfaces(found)
    if own & frozenset(indexes):
        body = RTMSG.pack(*head, protocol, scope, kind, 0)
        rest = _without(message.payload, RTMSG.size, {_RTA_CACHEINFO, _RTA_PREF})
        yield SavedRoute(NEWROUTE, body + rest, own)


def _without(body: bytes, head: int, unwanted: Collection[int]) -> bytes:
    """The attributes without those of the momentary state; next hops without their state."""
    return b"".join(
        attribute(kind, _plain_hops(data) if kind == _RTA_MULTIPATH and head == RTMSG.size
                       else data)
        for kind, data in attribute_list(body[head:])
        if kind not in unwanted
    )  # fmt: skip


def _interfaces(found: dict[int, bytes]) -> frozenset[int]:
    if RTA_OIF in found and len(found[RTA_OIF]) == 4:
        return frozenset({int.from_bytes(found[RTA_OIF], "little")})
    hops = found.get(_RTA_MULTIPATH, b"")
    return frozenset(index for _, _, index in _hops(hops))


def _plain_hops(data: bytes) -> bytes:
    out = bytearray(data)
    for at, _, _ in _hops(data):
        out[at + 2] = 0
    return bytes(out)


def _hops(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Offset, length and interface of each struct rtnexthop. Raises `WireError`."""
    at = 0
    while at + _NEXT_HOP.size <= len(data):
        length, _, _, index = _NEXT_HOP.unpack_from(data, at)
        if length < _NEXT_HOP.size or at + length > len(data):
            raise WireError(f"next hop of {length} bytes where {len(data) - at} are left")
        yield at, length, index
        at += (length + 3) & ~3

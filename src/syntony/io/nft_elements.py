"""Elements of nftables sets and maps, changed without a process.

The kernel's own protocol (linux/netfilter/nf_tables.h): a batch is one transaction. To run `nft`
takes 6 ms on an idle machine and most of a second on a starved one, which is when it counts.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from syntony.io.netlink import attribute
from syntony.io.netlink_socket import CREATE, NESTED, NetlinkSocket

_NETLINK_NETFILTER, _NF_TABLES = 12, 10
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW, _DELETE = _NF_TABLES << 8 | 12, _NF_TABLES << 8 | 14
"""NFT_MSG_NEWSETELEM and NFT_MSG_DELSETELEM."""
_NFPROTO_INET = 1
_LIST_TABLE, _LIST_SET, _LIST_ELEMENTS, _LIST_ELEMENT = 1, 2, 3, 1
_KEY, _DATA, _TIMEOUT, _VALUE = 1, 2, 4, 1
_REGISTER = 4
AT_ONCE = 200
"""Elements in one message: its list is an attribute, which has 64 KiB at most."""


class Element(NamedTuple):
    """One element of an nftables set or map."""

    place: str
    """Name of the set or map."""
    key: bytes
    value: bytes = b""
    """Of a map."""
    timeout_ms: int = 0


def concatenated(parts: Iterable[bytes]) -> bytes:
    """A key of several fields: each begins in a register of its own."""
    return b"".join(part + bytes(-len(part) % _REGISTER) for part in parts)


class NftElements:
    """Adds and deletes elements of nftables sets and maps.

    For one table of family inet, in the network namespace of the thread that made it. Not
    thread-safe.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._socket = NetlinkSocket(_NETLINK_NETFILTER)

    def close(self) -> None:
        self._socket.close()

    def change(self, steps: Iterable[tuple[bool, Iterable[Element]]]) -> None:
        """All of it in this order, or nothing.

        Args:
            steps: whether to add (else to delete), and what.

        Raises:
            OSError: the kernel refuses.
        """
        parts = [
            (_NEW if add else _DELETE, CREATE if add else 0, self._body(place, some))
            for add, elements in steps
            for place, mine in _by_place(elements).items()
            for some in (mine[at : at + AT_ONCE] for at in range(0, len(mine), AT_ONCE))
        ]
        if parts:
            edge = struct.pack("!BBH", socket.AF_UNSPEC, 0, _NF_TABLES)
            self._socket.transact((_BATCH_BEGIN, edge), parts, (_BATCH_END, edge))

    def _body(self, place: str, elements: Iterable[Element]) -> bytes:
        listed = b"".join(attribute(_LIST_ELEMENT | NESTED, _element(each)) for each in elements)
        return (
            struct.pack("!BBH", _NFPROTO_INET, 0, 0)
            + attribute(_LIST_TABLE, self._table.encode() + b"\0")
            + attribute(_LIST_SET, place.encode() + b"\0")
            + attribute(_LIST_ELEMENTS | NESTED, listed)
        )


def _by_place(elements: Iterable[Element]) -> dict[str, list[Element]]:
    found: dict[str, list[Element]] = {}
    for each in elements:
        found.setdefault(each.place, []).append(each)
    return found


def _element(each: Element) -> bytes:
    body = attribute(_KEY | NESTED, attribute(_VALUE, each.key))
    if each.value:
        body += attribute(_DATA | NESTED, attribute(_VALUE, each.value))
    if each.timeout_ms:
        body += attribute(_TIMEOUT, struct.pack("!Q", each.timeout_ms))
    return body

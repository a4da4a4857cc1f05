"""Netlink messages and attributes as bytes, nothing more (linux/netlink.h)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from syntony.errors import WireError

NLMSG_ERROR = 2
NLMSG_DONE = 3
NLM_F_REQUEST = 0x1
NLM_F_ACK = 0x4
NLM_F_DUMP = 0x300
NLM_F_REPLACE = 0x100
HEADER = struct.Struct("=IHHII")
"""Length (with this header), type, flags, sequence number, port id."""
_ATTRIBUTE = struct.Struct("=HH")
_ERROR = struct.Struct("=i")
_TYPE_MASK = 0x3FFF
"""Without NLA_F_NESTED and NLA_F_NET_BYTEORDER."""


class NetlinkMessage(NamedTuple):
    """One netlink message without its header."""

    type: int
    flags: int
    seq: int
    payload: bytes


def request(kind: int, flags: int, seq: int, payload: bytes) -> bytes:
    return HEADER.pack(HEADER.size + len(payload), kind, NLM_F_REQUEST | flags, seq, 0) + payload


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded."""
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(-length % 4)


def messages(data: bytes) -> Iterator[NetlinkMessage]:
    """The messages of one datagram. Raises `WireError`: a length that does not fit."""
    at = 0
    while at < len(data):
        if at + HEADER.size > len(data):
            raise WireError("netlink message cut short")
        length, kind, flags, seq, _ = HEADER.unpack_from(data, at)
        if length < HEADER.size or at + length > len(data):
            raise WireError("netlink message with a wrong length")
        yield NetlinkMessage(kind, flags, seq, data[at + HEADER.size : at + length])
        at += (length + 3) & ~3


def attributes(payload: bytes, start: int) -> dict[int, bytes]:
    """Attribute type to value, the last of each type; `start` is where the attributes begin. Raises
    `WireError`: a length that does not fit."""
    return dict(attribute_list(payload[start:]))


def attribute_list(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Attributes in their order, repeated ones too. Raises `WireError`: a length that leads out of
    the data."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size or at + length > len(data):
            raise WireError(f"netlink attribute of {length} bytes where {len(data) - at} are left")
        yield kind & _TYPE_MASK, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3


def error_of(message: NetlinkMessage) -> int:
    """The errno that an NLMSG_ERROR carries, positive; 0 is an acknowledgement. Raises `WireError`:
    it is too short for one."""
    if len(message.payload) < _ERROR.size:
        raise WireError("netlink error cut short")
    return -int(_ERROR.unpack_from(message.payload)[0])

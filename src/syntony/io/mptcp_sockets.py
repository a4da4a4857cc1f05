"""The host's MPTCP sockets (sock_diag(7)): which connection is which inode, and who listens."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from syntony.errors import WireError
from syntony.io.interposer import IPPROTO_MPTCP
from syntony.io.netlink import NLM_F_DUMP, NetlinkMessage, attribute, attributes
from syntony.io.netlink_socket import NetlinkSocket

_NETLINK_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST = struct.Struct("=BBBBI48x")
"""Family, protocol, extensions, padding, states, socket id (inet_diag_req_v2)."""
_EXT_INFO, _ATTR_INFO, _ATTR_PROTOCOL = 1 << 1, 2, 3
"""linux/inet_diag.h: INET_DIAG_INFO, INET_DIAG_REQ_PROTOCOL."""
_PROTOCOL_BY_ATTRIBUTE = 255
_ALL_STATES = 0xFFF
_PORT_AT, _SOURCE_AT = 4, 8
"""Of `idiag_sport` and `idiag_src`."""
_INODE_AT = 68
"""Of `idiag_inode` within struct inet_diag_msg, its last member."""
_TOKEN_AT = 12
"""Of `mptcpi_token` within struct mptcp_info (linux/mptcp.h): six u8, two of padding, flags."""
_MAPPED = bytes(10) + b"\xff\xff"
_ANY = {bytes(16), _MAPPED + bytes(4)}


class MptcpSocket(NamedTuple):
    """A connection, or a listener."""

    token: int
    """0 of a listener."""
    inode: int
    """0 while a connection has not been accepted."""
    address: bytes
    """Local; IPv4 as IPv4-mapped IPv6, 16 zeros (or mapped ones): any."""
    port: int


def listed() -> list[MptcpSocket]:
    """All of this network namespace.

    Raises:
        MissingError: no sock_diag here.
        OSError: the kernel has no MPTCP diagnosis.
    """
    found: list[MptcpSocket] = []
    with NetlinkSocket(_NETLINK_SOCK_DIAG) as sock:
        for family in (socket.AF_INET, socket.AF_INET6):
            head = _REQUEST.pack(family, _PROTOCOL_BY_ATTRIBUTE, _EXT_INFO, 0, _ALL_STATES)
            protocol = attribute(_ATTR_PROTOCOL, struct.pack("=I", IPPROTO_MPTCP))
            found += map(parse, sock.ask(_BY_FAMILY, head + protocol, NLM_F_DUMP))
    return found


def owners(sockets: Iterable[MptcpSocket]) -> dict[int, frozenset[int]]:
    """Connection's token to the inodes whose holder has it, or will: its own, or, until it is
    accepted, those of the listeners that it came to. None where no such listener is left."""
    sockets = list(sockets)
    listeners = [each for each in sockets if not each.token and each.inode]
    return {
        each.token: frozenset([each.inode] if each.inode else _listening(each, listeners))
        for each in sockets
        if each.token
    }


def _listening(conn: MptcpSocket, listeners: Iterable[MptcpSocket]) -> set[int]:
    """Those at its very address come before those at any."""
    at_port = [each for each in listeners if each.port == conn.port]
    exact = {each.inode for each in at_port if each.address == conn.address}
    return exact or {each.inode for each in at_port if each.address in _ANY}


def parse(message: NetlinkMessage) -> MptcpSocket:
    """One socket. Raises `WireError`: too short."""
    body = message.payload
    if len(body) < _INODE_AT + 4:
        raise WireError(f"socket diagnosis of {len(body)} bytes")
    (inode,) = struct.unpack_from("=I", body, _INODE_AT)
    (port,) = struct.unpack_from("!H", body, _PORT_AT)
    info = attributes(body, _INODE_AT + 4).get(_ATTR_INFO, b"")
    token = struct.unpack_from("=I", info, _TOKEN_AT)[0] if len(info) >= _TOKEN_AT + 4 else 0
    source = body[_SOURCE_AT : _SOURCE_AT + 16]
    if body[0] == socket.AF_INET:
        source = _MAPPED + source[:4]
    return MptcpSocket(token, inode, source, port)

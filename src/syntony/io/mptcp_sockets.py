"""The host's MPTCP connections by their sockets (sock_diag(7)): which token is which inode."""

from __future__ import annotations

import socket
import struct

from syntony.errors import WireError
from syntony.io.netlink import NLM_F_DUMP, Message, attribute, attributes
from syntony.io.netlink_socket import NetlinkSocket

_NETLINK_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST = struct.Struct("=BBBBI48x")
"""Family, protocol, extensions, padding, states, socket id (inet_diag_req_v2)."""
_EXT_INFO, _ATTR_INFO, _ATTR_PROTOCOL = 1 << 1, 2, 3
"""linux/inet_diag.h: INET_DIAG_INFO, INET_DIAG_REQ_PROTOCOL."""
_IPPROTO_MPTCP, _PROTOCOL_BY_ATTRIBUTE = 262, 255
_ALL_STATES = 0xFFF
_INODE_AT = 68
"""Of `idiag_inode` within struct inet_diag_msg, its last member."""
_TOKEN_AT = 12
"""Of `mptcpi_token` within struct mptcp_info (linux/mptcp.h): six u8, two of padding, flags."""


def inodes() -> dict[int, int]:
    """MPTCP token to the inode of its socket; 0 while it has not been accepted.

    Raises:
        MissingError: no sock_diag here.
        OSError: the kernel has no MPTCP diagnosis.
    """
    found: dict[int, int] = {}
    with NetlinkSocket(_NETLINK_SOCK_DIAG) as sock:
        for family in (socket.AF_INET, socket.AF_INET6):
            head = _REQUEST.pack(family, _PROTOCOL_BY_ATTRIBUTE, _EXT_INFO, 0, _ALL_STATES)
            protocol = attribute(_ATTR_PROTOCOL, struct.pack("=I", _IPPROTO_MPTCP))
            for message in sock.ask(_BY_FAMILY, head + protocol, NLM_F_DUMP):
                found |= parse(message)
    return found


def parse(message: Message) -> dict[int, int]:
    """One socket's token and inode; nothing for one without a token (a listener).

    Raises:
        WireError: too short.
    """
    body = message.payload
    if len(body) < _INODE_AT + 4:
        raise WireError(f"socket diagnosis of {len(body)} bytes")
    (inode,) = struct.unpack_from("=I", body, _INODE_AT)
    info = attributes(body, _INODE_AT + 4).get(_ATTR_INFO, b"")
    if len(info) < _TOKEN_AT + 4:
        return {}
    (token,) = struct.unpack_from("=I", info, _TOKEN_AT)
    return {token: inode} if token else {}

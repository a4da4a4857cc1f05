"""A netlink socket for requests and multicast events, and generic netlink's families
(linux/netlink.h, linux/genetlink.h).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

from syntony.errors import MissingError, WireError
from syntony.io.closing import Closing
from syntony.io.netlink import (
    HEADER,
    NLM_F_ACK,
    NLMSG_DONE,
    NLMSG_ERROR,
    NetlinkMessage,
    attribute,
    attribute_list,
    attributes,
    error_of,
    messages,
    request,
)

_GENERIC = struct.Struct("=BBH")
_INT_BYTES = 4

CREATE = 0x400
"""NLM_F_CREATE."""
NESTED = 0x8000
_CAPPED, _EXTENDED = 0x100, 0x200
"""Flags of an error message: the request is not repeated in it; attributes follow."""
_ERROR_TEXT = 1
_SOL_NETLINK, _ADD_MEMBERSHIP, _CAP_ACK, _EXT_ACK = 270, 1, 10, 11
_CTRL, _CTRL_GETFAMILY, _CTRL_FAMILY_ID, _CTRL_FAMILY_NAME, _CTRL_GROUPS = 16, 3, 1, 2, 7
_GROUP_NAME, _GROUP_ID = 1, 2
_RECEIVE_BYTES = 1 << 17
_PATIENCE_S = 2.0
"""Timeout of a request: the kernel answers while we send."""


class Family(NamedTuple):
    """A generic netlink family and its multicast groups by name."""

    number: int
    groups: dict[str, int]


def refusal(message: NetlinkMessage) -> OSError | None:
    """What an NLMSG_ERROR says; None for a mere acknowledgement. Raises `WireError`."""
    number = error_of(message)
    return OSError(number, _reason(message) or os.strerror(number)) if number else None


def _reason(message: NetlinkMessage) -> str:
    """The kernel's own words, if it gave any."""
    if not message.flags & _EXTENDED:
        return ""
    skip = _INT_BYTES + HEADER.size
    if not message.flags & _CAPPED and len(message.payload) >= skip:
        (length, *_) = HEADER.unpack_from(message.payload, _INT_BYTES)
        skip = _INT_BYTES + max(HEADER.size, int(length))
    text = attributes(message.payload, (skip + 3) & ~3).get(_ERROR_TEXT, b"")
    return text.rstrip(b"\0").decode(errors="replace")


class NetlinkSocket(Closing):
    """Requests and their answers, one at a time, in the network namespace of its maker. Raises
    `MissingError`: the kernel has no such protocol, or refuses it to us."""

    def __init__(self, protocol: int) -> None:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        except OSError as error:
            raise MissingError(f"netlink protocol {protocol}: {error.strerror}") from error
        self._socket.bind((0, 0))
        self._socket.settimeout(_PATIENCE_S)
        for option in (_CAP_ACK, _EXT_ACK):
            self._socket.setsockopt(_SOL_NETLINK, option, 1)
        self._seq = 0

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """File descriptor, for epoll."""
        return self._socket.fileno()

    def join(self, group: int, receive_bytes: int = 1 << 20) -> None:
        """Listen to a multicast group from now on, without ever waiting in `received`."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
        self.unblock()

    def unblock(self) -> None:
        """From now on `received` never waits, and nothing is to be asked."""
        self._socket.setblocking(False)

    def received(self) -> list[NetlinkMessage]:
        """What has been multicast since the last call. Raises `OSError`: ENOBUFS when the kernel
        had to leave something out."""
        found: list[NetlinkMessage] = []
        while True:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return found
            found += messages(data)

    def ask(self, kind: int, body: bytes, flags: int = 0) -> list[NetlinkMessage]:
        """One request, and everything the kernel answers to it. Raises `OSError`: the kernel
        refuses; with its own words where it has any."""
        self._seq = self._seq % 0xFFFFFFFF + 1
        self._socket.send(request(kind, NLM_F_ACK | flags, self._seq, body))
        found: list[NetlinkMessage] = []
        while True:
            for message in messages(self._socket.recv(_RECEIVE_BYTES)):
                if message.seq != self._seq:
                    continue
                if message.type == NLMSG_ERROR:
                    error = refusal(message)
                    if error is not None:
                        raise error
                    return found
                if message.type == NLMSG_DONE:
                    return found
                found.append(message)

    def transact(
        self,
        begin: tuple[int, bytes],
        parts: Sequence[tuple[int, int, bytes]],
        end: tuple[int, bytes],
    ) -> None:
        """Several requests that the kernel carries out together or not at all (nfnetlink batches).

        Args:
            begin: type and body of the message before them.
            parts: type, flags and body of each.
            end: type and body of the message after them.

        Raises:
            OSError: the kernel refuses one, and so all.
        """
        first = self._seq + 1
        self._seq += len(parts) + 2
        data = request(begin[0], 0, first, begin[1])
        for at, (kind, flags, body) in enumerate(parts):
            data += request(kind, NLM_F_ACK | flags, first + 1 + at, body)
        self._socket.send(data + request(end[0], 0, self._seq, end[1]))
        waiting = set(range(first + 1, self._seq))
        while waiting:
            for message in messages(self._socket.recv(_RECEIVE_BYTES)):
                if first <= message.seq <= self._seq and message.type == NLMSG_ERROR:
                    error = refusal(message)
                    if error is not None:
                        raise error
                    waiting.discard(message.seq)


def generic(command: int, version: int, body: bytes) -> bytes:
    """The body of a generic netlink request."""
    return _GENERIC.pack(command, version, 0) + body


def opened(message: NetlinkMessage) -> tuple[int, dict[int, bytes]]:
    """Command and attributes of a generic netlink message. Raises `WireError`."""
    if len(message.payload) < _GENERIC.size:
        raise WireError("generic netlink message without a command")
    return message.payload[0], attributes(message.payload, _GENERIC.size)


def find_family(sock: NetlinkSocket, name: str) -> Family:
    """Number and groups of a generic netlink family. Raises `MissingError`: the kernel has no such
    family."""
    wanted = attribute(_CTRL_FAMILY_NAME, name.encode() + b"\0")
    try:
        answers = sock.ask(_CTRL, generic(_CTRL_GETFAMILY, 1, wanted))
    except OSError as error:
        raise MissingError(f"this kernel has no netlink family {name}: {error.strerror}") from error
    for message in answers:
        _, found = opened(message)
        groups = [attributes(group, 0) for _, group in attribute_list(found[_CTRL_GROUPS])]
        return Family(
            int.from_bytes(found[_CTRL_FAMILY_ID][:2], "little"),
            {
                group[_GROUP_NAME].rstrip(b"\0").decode(): int.from_bytes(
                    group[_GROUP_ID], "little"
                )
                for group in groups
            },
        )
    raise MissingError(f"this kernel has no netlink family {name}")

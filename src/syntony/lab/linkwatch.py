"""Link state of a namespace from its kernel's events (rtnetlink(7)), without polling."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from syntony.lab import netns

if TYPE_CHECKING:
    from collections.abc import Iterator

_NETLINK_ROUTE = 0
_RTMGRP_LINK = 1
_NLM_F_REQUEST, _NLM_F_DUMP = 0x1, 0x300
_RTM_NEWLINK, _RTM_DELLINK, _RTM_GETLINK = 16, 17, 18
_IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000
_HEADER = struct.Struct("=IHHII")
_INFO = struct.Struct("=BxHiII")
_BUFFER = 1 << 18


class LinkState(NamedTuple):
    """One interface: `up` means administratively up, and with carrier."""

    ifindex: int
    up: bool


class LinkWatch:
    """The link events of one namespace; `fileno` is readable when there are some."""

    def __init__(self, node: str) -> None:
        self.node = node
        with netns.entered(node):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket.bind((0, _RTMGRP_LINK))
        self.refresh()

    def fileno(self) -> int:
        return self._socket.fileno()

    def refresh(self) -> None:
        """Asks for the state of every interface: it arrives as if all had just changed."""
        body = _INFO.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        flags = _NLM_F_REQUEST | _NLM_F_DUMP
        header = _HEADER.pack(_HEADER.size + len(body), _RTM_GETLINK, flags, 1, 0)
        self._socket.send(header + body)

    def read(self) -> list[LinkState]:
        """Every state waiting; events lost to a full buffer are asked for again."""
        states: list[LinkState] = []
        while True:
            try:
                data = self._socket.recv(_BUFFER)
            except BlockingIOError:
                return states
            except OSError:  # ENOBUFS: events were lost, so ask for everything
                self.refresh()
                continue
            states.extend(parse(data))

    def close(self) -> None:
        self._socket.close()


def parse(data: bytes) -> Iterator[LinkState]:
    """The link messages in what a NETLINK_ROUTE socket received; anything malformed ends it."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            return
        if kind in {_RTM_NEWLINK, _RTM_DELLINK} and length >= _HEADER.size + _INFO.size:
            _, _, index, flags, _ = _INFO.unpack_from(data, at + _HEADER.size)
            up = kind == _RTM_NEWLINK and bool(flags & _IFF_UP) and bool(flags & _IFF_LOWER_UP)
            yield LinkState(index, up)
        at += (length + 3) & ~3

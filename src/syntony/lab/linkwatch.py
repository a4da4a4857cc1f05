"""Link state of a namespace from its kernel's events (rtnetlink(7)), without polling."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import NamedTuple

from syntony.errors import WireError
from syntony.io import netlink, rtnetlink
from syntony.lab import netns

_BUFFER = 1 << 18


class LinkState(NamedTuple):
    """One interface: `up` means administratively up, and with carrier."""

    ifindex: int
    up: bool


class NamespaceLinkWatch:
    """The link events of one namespace; `fileno` is readable when there are some."""

    def __init__(self, node: str) -> None:
        self.node = node
        with netns.entered(node):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket.bind((0, rtnetlink.RTMGRP_LINK))
        self.refresh()

    def fileno(self) -> int:
        return self._socket.fileno()

    def refresh(self) -> None:
        """Asks for the state of every interface: it arrives as if all had just changed."""
        everything = bytes(rtnetlink.LINK_HEADER.size)
        kind, flags = rtnetlink.RTM_GETLINK, netlink.NLM_F_DUMP
        self._socket.send(netlink.request(kind, flags, 1, everything))

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
    with contextlib.suppress(WireError):
        for message in netlink.messages(data):
            if message.type not in {rtnetlink.RTM_NEWLINK, rtnetlink.RTM_DELLINK}:
                continue
            link = rtnetlink.parse_link(message.payload)
            if link is not None:
                there = message.type == rtnetlink.RTM_NEWLINK
                yield LinkState(link.ifindex, there and link.admin_up and link.carrier)

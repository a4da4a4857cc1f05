"""One TCP connection between every two ranks, as collective libraries make them.

Ordinary sockets and nothing else: no timeouts, no retries, no source address chosen. A network
failure affects this job as it does any program.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Self

_HELLO = struct.Struct("!I")
CONNECT_TIMEOUT_S = 300.0
"""How long to wait for all ranks (PyTorch waits for minutes): in emulated machines with agents, at
a load of 25, one started more than 30 s after the other."""
_RETRY_S = 0.05


class RankMesh:
    """Connections of one rank to all others, and lock-step exchanges over them."""

    def __init__(self, rank: int, peers: Mapping[int, socket.socket]) -> None:
        self.rank = rank
        self._peers = dict(peers)
        self._poll = selectors.DefaultSelector()
        for peer in self._peers.values():
            peer.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._poll.close()
        for peer in self._peers.values():
            peer.close()

    def exchange(self, out: Mapping[int, memoryview], into: Mapping[int, memoryview]) -> None:
        """Sends all of `out` and fills all of `into`, both by peer rank, at the same time. Raises
        `OSError`: a connection is lost; `ConnectionError` when the peer has closed it."""
        left_out = {rank: view for rank, view in out.items() if len(view)}
        left_in = {rank: view for rank, view in into.items() if len(view)}
        for rank in left_out.keys() | left_in.keys():
            self._poll.register(self._peers[rank], _wanted(rank, left_out, left_in), rank)
        while left_out or left_in:
            for key, events in self._poll.select():
                if events & selectors.EVENT_READ and key.data in left_in:
                    self._receive(key.data, left_in)
                if events & selectors.EVENT_WRITE and key.data in left_out:
                    self._send(key.data, left_out)
                self._watch(key.data, key.events, left_out, left_in)

    def _watch(
        self,
        rank: int,
        watched: int,
        out: Mapping[int, memoryview],
        into: Mapping[int, memoryview],
    ) -> None:
        wanted = _wanted(rank, out, into)
        if not wanted:
            self._poll.unregister(self._peers[rank])
        elif wanted != watched:
            self._poll.modify(self._peers[rank], wanted, rank)

    def _receive(self, rank: int, left: dict[int, memoryview]) -> None:
        try:
            got = self._peers[rank].recv_into(left[rank])
        except BlockingIOError:
            return
        if got == 0:
            raise ConnectionError(f"rank {rank} closed the connection")
        _advance(rank, left, got)

    def _send(self, rank: int, left: dict[int, memoryview]) -> None:
        try:
            sent = self._peers[rank].send(left[rank])
        except BlockingIOError:
            return
        _advance(rank, left, sent)


def _wanted(rank: int, out: Mapping[int, memoryview], into: Mapping[int, memoryview]) -> int:
    return (selectors.EVENT_WRITE if rank in out else 0) | (
        selectors.EVENT_READ if rank in into else 0
    )


def _advance(rank: int, left: dict[int, memoryview], by: int) -> None:
    left[rank] = left[rank][by:]
    if not len(left[rank]):
        del left[rank]


def connect_all(rank: int, addresses: Sequence[str], port: int) -> RankMesh:
    """Connects to every lower rank and accepts every higher one.

    Args:
        rank: of this process; it listens on ``addresses[rank]``.
        addresses: of all ranks.
        port: the same on every host.

    Raises:
        OSError: an address cannot be used, or a rank was not there within `CONNECT_TIMEOUT_S`.
    """
    family = socket.AF_INET6 if ":" in addresses[rank] else socket.AF_INET
    peers: dict[int, socket.socket] = {}
    with socket.socket(family, socket.SOCK_STREAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((addresses[rank], port))
        door.listen(len(addresses))
        door.settimeout(CONNECT_TIMEOUT_S)
        for lower in range(rank):
            own = _connect_until_timeout(family, (addresses[lower], port))
            own.sendall(_HELLO.pack(rank))
            peers[lower] = own
        while len(peers) < len(addresses) - 1:
            own, _ = door.accept()
            own.settimeout(CONNECT_TIMEOUT_S)
            (higher,) = _HELLO.unpack(own.recv(_HELLO.size, socket.MSG_WAITALL))
            peers[higher] = own
    for own in peers.values():
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return RankMesh(rank, peers)


def _connect_until_timeout(family: int, where: tuple[str, int]) -> socket.socket:
    end_s = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        own = socket.socket(family, socket.SOCK_STREAM)
        try:
            own.connect(where)
        except OSError:
            own.close()
            if time.monotonic() > end_s:
                raise
            time.sleep(_RETRY_S)
        else:
            return own

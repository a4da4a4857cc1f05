"""The agent's end of a page with figures of queue pairs, which a job's process has made."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time

from syntony.traffic.queue_pair_page import (
    PAGE_BYTES,
    RINGS_BYTES,
    SLOTS_BYTES,
    Owner,
    PageReader,
    ring_offset,
)
from syntony.wire.queue_pairs import QueuePairFigures

HELLO = b"\x01"
"""SYN_QP_PAGE_VERSION: the one byte that comes with the page."""
_INT = struct.Struct("=i")
_SEALS = 0x1 | 0x2 | 0x4
"""F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW. Only memfds have any: reading one neither waits nor ends
before its end."""


class QueuePairPage:
    """Not thread-safe. It is read by pread and never mapped, so that a hole costs no memory and
    nothing that the process does to it is a signal here.

    Args:
        connection: of the process, non-blocking.
        owner: who that is.
    """

    def __init__(self, connection: socket.socket, owner: Owner) -> None:
        self._connection = connection
        self._fd = -1
        self._refused = False
        self._reader = PageReader(owner)

    @property
    def malformed(self) -> int:
        """Records that could not be used, a page that is none included."""
        return self._reader.malformed + self._refused

    @property
    def left_out(self) -> int:
        """Queue pairs for which there is no place, by the process's word."""
        return self._reader.left_out

    def read(self) -> list[QueuePairFigures]:
        """What the process tells now; nothing as long as it has sent no page."""
        if self._fd < 0 and not self._refused:
            self._receive()
        if self._fd < 0:
            return []
        before = os.pread(self._fd, SLOTS_BYTES, 0)
        rings = {
            slot: os.pread(self._fd, RINGS_BYTES, ring_offset(slot))
            for slot in self._reader.in_use(before)
        }
        after = os.pread(self._fd, SLOTS_BYTES, 0)
        return self._reader.read(before, rings, after, time.monotonic_ns())

    def close(self) -> None:
        """Idempotent. The connection is its owner's."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._refused = -1, True

    def _receive(self) -> None:
        """Take the page, if it has come. Anything else is refused for good."""
        try:
            # Not `socket.recv_fds`: it takes flags and does not use them.
            data, rights, _, _ = self._connection.recvmsg(
                len(HELLO),
                socket.CMSG_LEN(_INT.size),
                socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC,
            )
        except BlockingIOError:
            return
        except OSError:
            self._refused = True
            return
        fds = [
            _INT.unpack(content)[0]
            for level, kind, content in rights
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS
        ]
        if data == HELLO and len(fds) == 1 and _is_page(fds[0]):
            self._fd = fds[0]
            return
        self._refused = True
        for fd in fds:
            os.close(fd)


def _is_page(fd: int) -> bool:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return False
    return seals & _SEALS == _SEALS and os.fstat(fd).st_size == PAGE_BYTES

"""Memory that a job's process hands over for its host's agent to read (native/door)."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

_INT = struct.Struct("=i")
_SEALS = 0x1 | 0x2 | 0x4
"""F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW. Only memfds have any: reading one neither waits nor ends
before its end."""


class HandedPage:
    """Base class of the agent's end of each kind of page; not thread-safe.

    It is read by pread and never mapped, so that a hole costs no memory and nothing that the
    process does to it is a signal here.

    Args:
        connection: of the process, non-blocking.
        version: of the page: the one byte that comes with it.
        size: of the page, bytes.
    """

    def __init__(self, connection: socket.socket, version: int, size: int) -> None:
        self._connection = connection
        self._hello = bytes([version])
        self._size = size
        self._fd = -1
        self.refused = False
        """What came is no such page, or it was closed."""

    def is_there(self) -> bool:
        """Whether it has come; anything else is refused for good."""
        if self._fd < 0 and not self.refused:
            self._receive()
        return self._fd >= 0

    @property
    def number(self) -> int:
        """A number unique among all pages since this machine's boot, once the page is there."""
        return os.fstat(self._fd).st_ino

    def bytes_at(self, size: int, offset: int = 0) -> bytes:
        """Bytes of the page, once it is there."""
        return os.pread(self._fd, size, offset)

    def close(self) -> None:
        """Idempotent. The connection is its owner's."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self.refused = -1, True

    def _receive(self) -> None:
        try:
            # Not `socket.recv_fds`: it takes flags and does not use them.
            data, rights, _, _ = self._connection.recvmsg(
                len(self._hello),
                socket.CMSG_LEN(_INT.size),
                socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC,
            )
        except BlockingIOError:
            return
        except OSError:
            self.refused = True
            return
        fds = [
            _INT.unpack(content)[0]
            for level, kind, content in rights
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS
        ]
        if data == self._hello and len(fds) == 1 and self._is_page(fds[0]):
            self._fd = fds[0]
            return
        self.refused = True
        for fd in fds:
            os.close(fd)

    def _is_page(self, fd: int) -> bool:
        try:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        except OSError:
            return False
        return seals & _SEALS == _SEALS and os.fstat(fd).st_size == self._size

"""Memory that a job's process has made and handed over at a socket, for the agent to read."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

HELLO = b"\x01"
"""The one byte that comes with a page."""
_INT = struct.Struct("=i")
_SEALS = 0x1 | 0x2 | 0x4
"""F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW. Only memfds have any: reading one neither waits nor ends
before its end."""


class HandedPage:
    """Not thread-safe. It is read by pread and never mapped, so that a hole costs no memory and
    nothing that the process does to it is a signal here.

    Args:
        connection: of the process, non-blocking; its owner's.
        size: of the page, bytes.
    """

    def __init__(self, connection: socket.socket, size: int) -> None:
        self._connection, self._size = connection, size
        self._fd = -1
        self.refused = False
        """What came is no such page."""

    def there(self) -> bool:
        """Whether the page has come."""
        if self._fd < 0 and not self.refused:
            self._receive()
        return self._fd >= 0

    def read(self, size: int, offset: int) -> bytes:
        """As much of it, once it is there."""
        return os.pread(self._fd, size, offset)

    def close(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self.refused = -1, True

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
            self.refused = True
            return
        fds = [
            _INT.unpack(content)[0]
            for level, kind, content in rights
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS
        ]
        if data == HELLO and len(fds) == 1 and self._is_page(fds[0]):
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

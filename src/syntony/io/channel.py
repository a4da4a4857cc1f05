"""Messages between two processes of one user on one host, over a Unix socket.

Each message is four bytes of length and that many bytes. A peer that does not read or write in time
is disconnected: neither end waits for the other.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Self

from syntony.errors import MissingError, WireError
from syntony.io.job_socket import credentials
from syntony.model import S

MAX_BYTES = 64 << 20
"""Of one message."""
_LENGTH = struct.Struct("=I")


class Channel:
    """One end of a connection. Not thread-safe; any error closes it.

    Args:
        connected: a stream socket, owned from now on.
        timeout_ns: for one message to be sent or received as a whole.
    """

    def __init__(self, connected: socket.socket, timeout_ns: int) -> None:
        self._socket = connected
        self._socket.settimeout(timeout_ns / S)

    @classmethod
    def connect(cls, path: Path, timeout_ns: int) -> Self:
        """Raises `MissingError`: nobody answers there."""
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connecting.settimeout(timeout_ns / S)
            connecting.connect(str(path))
        except OSError as error:
            connecting.close()
            raise MissingError(f"{path}: {error.strerror or error}") from error
        return cls(connecting, timeout_ns)

    @classmethod
    def accept(cls, listener: socket.socket, timeout_ns: int) -> Self | None:
        """Accept a waiting connection; None: there is none, or it is of another user."""
        try:
            connected, _ = listener.accept()
        except OSError:
            return None
        if credentials(connected).uid not in {0, os.geteuid()}:
            connected.close()
            return None
        return cls(connected, timeout_ns)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()

    def send(self, message: bytes) -> None:
        """Raises `MissingError`: the other end has closed the connection or does not read."""
        if len(message) > MAX_BYTES:
            raise MissingError(f"a message of {len(message)} bytes is not sent")
        try:
            self._socket.sendall(_LENGTH.pack(len(message)) + message)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self) -> bytes:
        """The next message. Raises `MissingError`: the other end has closed or does not write."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > MAX_BYTES:
            self.close()
            raise WireError(f"a message of {length} bytes is refused")
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        parts = []
        while length:
            try:
                part = self._socket.recv(min(length, 1 << 20))
            except OSError as error:
                raise self._lost(error) from error
            if not part:
                raise self._lost(ConnectionResetError("the other end has closed the connection"))
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _lost(self, error: OSError) -> MissingError:
        self.close()
        late = isinstance(error, TimeoutError)
        return MissingError(
            "no answer in time: stopped or hung" if late else error.strerror or str(error)
        )

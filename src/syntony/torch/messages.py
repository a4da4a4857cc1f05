"""Frames between the coordinator, keepers and workers of a job: a JSON object and a byte string."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import struct
import threading
from typing import Any

HEADER = struct.Struct(">II")
"""Length of the JSON text, length of the bytes that follow it."""
MAX_TEXT, MAX_RECORD = 1 << 20, 1 << 26
"""A larger frame is refused: its sender is not part of the job."""
VARIABLE = "SYNTONY_RESILIENCE"
"""`ADDRESS:PORT:TOKEN` of the coordinator, in the environment of the ranks' launcher."""
NAME_VARIABLE = "SYNTONY_WORKER"
"""A worker's name, from its keeper."""
SPARE_VARIABLE = "SYNTONY_SPARE"
"""Set in the environment of a spare's keeper."""
_IPPROTO_MPTCP = 262
"""From linux/in.h; Python defines it from 3.12 on."""


class FrameError(Exception):
    """The received bytes are not a valid frame."""


def encode(message: dict[str, Any], record: bytes = b"") -> bytes:
    text = json.dumps(message, separators=(",", ":")).encode()
    return HEADER.pack(len(text), len(record)) + text + record


def sizes(header: bytes) -> tuple[int, int]:
    """Of text and record. Raises `FrameError`: one is beyond its limit."""
    text, record = HEADER.unpack(header)
    if text > MAX_TEXT or record > MAX_RECORD:
        raise FrameError(f"a frame of {text} and {record} bytes")
    return text, record


def decode(text: bytes) -> dict[str, Any]:
    """The message of a frame. Raises `FrameError`: it is not a JSON object with a kind."""
    try:
        message = json.loads(text)
    except ValueError as error:
        raise FrameError(str(error)) from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise FrameError("a message without a kind")
    return message


def make_socket(address: str) -> socket.socket:
    """A TCP socket over IPv4, multi-path if the kernel has MPTCP, so that the death of a NIC does
    not make a host's ranks silent."""
    with contextlib.suppress(OSError, ValueError):
        if not ipaddress.ip_address(address).is_loopback:
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM, _IPPROTO_MPTCP)
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


CONNECT_TIMEOUT_S = 10.0


class CoordinatorConnection:
    """A blocking connection to the coordinator; any thread may send, one receives."""

    def __init__(self, target: str, hello: dict[str, Any]) -> None:
        """Connect to `ADDRESS:PORT:TOKEN` and introduce this process. Raises `OSError`: nothing
        answers there."""
        address, port, token = target.rsplit(":", 2)
        self._socket = make_socket(address)
        self._socket.settimeout(CONNECT_TIMEOUT_S)
        try:
            self._socket.connect((address, int(port)))
        except OSError:
            self._socket.close()
            raise
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        self.send({"kind": "hello", "token": token} | hello)

    def send(self, message: dict[str, Any], record: bytes = b"") -> None:
        data = encode(message, record)
        with self._lock:
            self._socket.sendall(data)

    def receive(self) -> tuple[dict[str, Any], bytes] | None:
        """The next message and its bytes; None: the coordinator is gone."""
        try:
            header = self._exactly(HEADER.size)
            if header is None:
                return None
            text_size, record_size = sizes(header)
            text = self._exactly(text_size)
            record = self._exactly(record_size)
        except OSError:
            return None
        if text is None or record is None:
            return None
        return decode(text), record

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                return None
            data += part
        return bytes(data)

    @property
    def local_address(self) -> str:
        """This host's address, as used to reach the coordinator."""
        return str(self._socket.getsockname()[0])

    def fileno(self) -> int:
        return self._socket.fileno()

    def leave(self) -> None:
        """For a forked child: the connection belongs to its parent and stays open."""
        self._socket.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the receiving thread must notice it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

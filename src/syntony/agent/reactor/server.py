"""Answers the telemetry process, one request after the other, without waiting for it."""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from syntony.agent.reactor.messages import Answer, Failed, Records, Request
from syntony.errors import MissingError, WireError
from syntony.io import job_socket
from syntony.io.channel import Channel
from syntony.io.probe_records import RECORD
from syntony.model import MS

_log = logging.getLogger(__name__)
TIMEOUT_NS = 500 * MS
"""Timeout of one message; a peer that is stopped in the middle of it is disconnected."""


class Server:
    """Used by one thread. Only the newest connection is served: the previous peer is gone, or
    hangs."""

    def __init__(self, path: Path, answer: Callable[[Request], Answer]) -> None:
        self._path = path
        self._answer = answer
        self._listener: socket.socket | None = None
        self._bound: job_socket.SocketFile | None = None
        self._channel: Channel | None = None
        self.connections = 0
        self.unsent = 0
        """Probe records that could not be delivered."""

    def start(self) -> None:
        """Begin to listen, or restart. Raises `MissingError`: the socket cannot be made."""
        self.close()
        self._listener = job_socket.listen(self._path, socket.SOCK_STREAM, 0o600)
        self._bound = job_socket.file_of(self._path)

    def close(self) -> None:
        """Idempotent."""
        self._let_go()
        if self._listener is not None:
            self._listener.close()
            job_socket.remove(self._path, self._bound)
        self._listener = None

    @property
    def fault(self) -> MissingError | None:
        """Why no process can connect any more."""
        return None if self._listener is None else job_socket.missing(self._path, self._bound)

    def serve(self, timeout_ns: int) -> None:
        """Wait for a request for at most this time, and answer it."""
        poll = select.poll()
        for each in (self._channel, self._listener):
            if each is not None:
                poll.register(each.fileno(), select.POLLIN)
        ready = {fd for fd, _ in poll.poll(timeout_ns / MS)}
        if self._channel is not None and self._channel.fileno() in ready:
            self._serve(self._channel)
        if self._listener is not None and self._listener.fileno() in ready:
            self._accept(self._listener)

    def _accept(self, listener: socket.socket) -> None:
        fresh = Channel.accept(listener, TIMEOUT_NS)
        if fresh is None:
            return
        self._let_go()
        self._channel = fresh
        self.connections += 1

    def _serve(self, channel: Channel) -> None:
        answer: Answer | None = None
        try:
            answer = self._answered(channel.receive())
            channel.send(msgspec.msgpack.encode(answer))
        except (MissingError, WireError) as error:
            if isinstance(answer, Records):
                self.unsent += len(answer.records) // RECORD.itemsize
            _log.info("telemetry process disconnected reason=%s", error)
            self._let_go()

    def _answered(self, data: bytes) -> Answer:
        try:
            return self._answer(msgspec.msgpack.decode(data, type=Request))
        except msgspec.DecodeError as error:
            return Failed(reason=f"a request of another version: {error}")
        except Exception as error:  # noqa: BLE001 - supervisor: one request must not end failover
            _log.exception("request failed, continuing")
            return Failed(reason=f"{type(error).__name__}: {error}")

    def _let_go(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None

"""Accepts the API's connections: limits their number and the time of their TLS handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Collection

from syntony.io.descriptors import Share, note_refused
from syntony.model import S

_log = logging.getLogger(__name__)

HANDSHAKE_S = 5.0
"""Maximum time of a TLS handshake. Until it ends, a connection may be part of a flood."""
PAUSE_S = 0.5
"""Pause after a connection that could not be accepted, for example for lack of descriptors."""
BATCH = 64
"""Maximum number accepted in one turn of the loop, so that open connections are served too."""
LOG_INTERVAL_NS = 60 * S
"""Minimum time between two log lines about refusals."""


class Gate:
    """Accepts connections of one listening socket, in the thread of a running event loop.

    Args:
        listening: becomes non-blocking; the caller closes it.
        protocol: makes the protocol of a connection.
        tls: None: without TLS.
        opened: connections whose handshake is complete.
        most: maximum number of connections, open or in their handshakes; further ones are closed.
    """

    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        opened: Collection[object],
        most: int,
    ) -> None:
        self._socket, self._protocol, self._tls = listening, protocol, tls
        self._opened, self._most = opened, most
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._logged_ns: int | None = None
        listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Stop accepting, and end handshakes. Idempotent."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        for task in self._handshakes:
            task.cancel()

    def _resume(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(BATCH):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("API cannot accept connections reason=%s", error.strerror)
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(PAUSE_S, self._resume)
                return
            if len(self._opened) + len(self._handshakes) >= self._most:
                connection.close()
                self._refuse()
                continue
            task = self._loop.create_task(self._serve(connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _serve(self, connection: socket.socket) -> None:
        """Do the handshake; the protocol takes over from there."""
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                self._protocol, connection, ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_S if self._tls else None,
            )  # fmt: skip
        except (OSError, ssl.SSLError, TimeoutError) as error:
            _log.debug("API connection ended in its handshake reason=%s", error)
            with contextlib.suppress(OSError):
                connection.close()

    def _refuse(self) -> None:
        refused = note_refused(Share.API)
        now_ns = round(self._loop.time() * S)
        if self._logged_ns is None or now_ns - self._logged_ns >= LOG_INTERVAL_NS:
            self._logged_ns = now_ns
            _log.warning(
                "API connections refused open=%d refused=%d reason=the limit of open connections",
                len(self._opened) + len(self._handshakes), refused,
            )  # fmt: skip

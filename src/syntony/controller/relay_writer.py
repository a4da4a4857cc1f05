"""Writes the messages of many agents to one stream, at the rate at which the peer reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from syntony.wire.coding import encode
from syntony.wire.messages import bundles

MAX_QUEUED_BYTES = 64 << 20


class RelayWriter:
    """Writes the messages of many agents to one stream, as fast as the peer reads.

    One per stream, on its event loop. Messages posted while the stream is busy are sent
    together.

    Args:
        write: sends to the peer; waits while it does not read.
    """

    def __init__(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._write = write
        self._waiting: list[bytes] = []
        self._posted = asyncio.Event()
        self._sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queued_bytes = 0
        self.overfull = asyncio.Event()
        """Set once too much waits: the peer does not read, so reconnect."""

    def post(self, message: msgspec.Struct) -> asyncio.Future[None]:
        """Queue a message. The result is done once it has been sent, and cancelled if the stream
        ends before."""
        data = encode(message)
        self._waiting.append(data)
        self._queued_bytes += len(data)
        self._posted.set()
        if self._queued_bytes > MAX_QUEUED_BYTES:
            self.overfull.set()
        return self._sent

    async def run(self) -> None:
        """Write until cancelled, or until the stream fails."""
        try:
            while True:
                await self._posted.wait()
                self._posted.clear()
                waiting, self._waiting = self._waiting, []
                sent, self._sent = self._sent, asyncio.get_running_loop().create_future()
                try:
                    for data in bundles(waiting):
                        await self._write(data)
                except BaseException:
                    sent.cancel()
                    raise
                self._queued_bytes -= sum(map(len, waiting))
                sent.set_result(None)
        finally:
            self._sent.cancel()

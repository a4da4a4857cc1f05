"""One attached agent: what waits to be sent to it, and who it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from syntony.wire.messages import ControllerMessage


class Outbox:
    """The newest message of each kind. An older plan, timeline or ack is of no use to anyone, nor
    is an order that waited until the next one (audits are not ordered while one is under way), so
    the box is bounded by the number of kinds however slowly an agent reads.
    """

    def __init__(self) -> None:
        self._waiting: dict[type[ControllerMessage], ControllerMessage] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, message: ControllerMessage) -> None:
        """Replace what waits of this kind."""
        self._waiting[type(message)] = message
        self._changed.set()

    def close(self) -> None:
        """What waits is still delivered, then iteration ends."""
        self._closed = True
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[ControllerMessage]:
        while True:
            await self._changed.wait()
            self._changed.clear()
            waiting, self._waiting = self._waiting, {}
            for message in waiting.values():
                yield message
            if self._closed and not self._waiting:
                return


class Session:
    """One stream of one agent."""

    def __init__(self, host: str, stream: str) -> None:
        self.host = host
        self.stream = stream
        self.outbox = Outbox()

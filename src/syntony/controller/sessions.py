"""One attached agent: what waits to be sent to it, and who it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from syntony.controller.ingest import Source
from syntony.wire.messages import ControllerMessage, Refuse
from syntony.wire.x509 import Certificate

END_GRACE_S = 2.0
"""For an agent to take the reason why its stream ends."""


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

    def refuse(self, reason: str) -> None:
        """Say why, then end; nothing else is delivered any more."""
        self._waiting.clear()
        self.put(Refuse(reason=reason))
        self.close()

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

    source: Source
    """What it delivers, since it was attached."""

    def __init__(self, host: str, certificate: Certificate) -> None:
        self.host = host
        self.certificate = certificate
        self.unknown = ""
        """The first kind of its messages that was skipped."""
        self.tasks: tuple[asyncio.Task[object], ...] = ()
        """What serves the stream: first what receives."""
        self.outbox = Outbox()

    def end(self, reason: str) -> None:
        """Take nothing more from this agent, tell it why, and close its stream: also where it does
        not read what it is reported."""
        self.outbox.refuse(reason)
        for task in self.tasks[:1]:
            task.cancel()
        for task in self.tasks[1:]:
            asyncio.get_running_loop().call_later(END_GRACE_S, task.cancel)

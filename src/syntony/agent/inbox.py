"""Messages of other threads that wait for the agent's loop."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from syntony.agent.metrics import Scrape
from syntony.model import S
from syntony.wire.failover import Switch
from syntony.wire.messages import ControllerMessage
from syntony.wire.traffic import Moves, Paces

Urgent = Moves | Paces | Switch
"""Orders that expire, and the stop switch."""


class ClockSet(NamedTuple):
    """The host's clock was set."""


Message = ControllerMessage | Scrape | ClockSet


class Inbox:
    """Any thread puts messages, the agent's loop takes them in their order."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._postponed: deque[Message] = deque()
        """Taken from the queue before something urgent."""

    def put(self, message: Message) -> None:
        """From any thread."""
        self._queue.put(message)

    def take(self, pause_ns: int) -> Iterator[Message]:
        """Everything that is there; waits for the first for up to `pause_ns`."""
        wait_s: float | None = pause_ns / S
        while True:
            if self._postponed:
                yield self._postponed.popleft()
            else:
                try:
                    yield self._queue.get(block=wait_s is not None, timeout=wait_s)
                except queue.Empty:
                    return
            wait_s = None

    def take_urgent(self) -> Iterator[Urgent]:
        """Only urgent messages that are there; the others are taken later, in their order."""
        while not self._queue.empty():
            message = self._queue.get()
            if isinstance(message, Urgent):
                yield message
            else:
                self._postponed.append(message)

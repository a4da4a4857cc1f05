"""Server-sent events: computed once, sent to every viewer, kept for those that come back.

An event's id is ``EPOCH-NUMBER``, the epoch being of this process. A viewer that names the last one
it got is sent what it missed; one that is new, or whose epoch or number is not known any more, gets
the newest event of each topic.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from syntony.api.observed import MAX_NAMED, Observed, changed
from syntony.model import S

_log = logging.getLogger(__name__)
LOOK_NS = 1 * S
KEPT = 1024
"""Events that a viewer which comes back can be sent."""
MAX_QUEUED = 256
"""Events that wait for one slow viewer; it is hung up on, and comes back with its last id."""


class Event(NamedTuple):
    """One event, as it is sent."""

    number: int
    topic: str
    data: bytes


class Viewer:
    """One open stream."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_QUEUED + 1)
        """None: the end."""
        self.ended = False

    def put(self, data: bytes) -> None:
        """Queue an event, or the end if it is too slow."""
        if self.ended:
            return
        if self.queue.qsize() >= MAX_QUEUED:
            self.end()
        else:
            self.queue.put_nowait(data)

    def end(self) -> None:
        """The stream ends once what is queued has been sent."""
        if not self.ended:
            self.ended = True
            self.queue.put_nowait(None)


class EventHub:
    """All viewers of one controller; on the API's event loop.

    Args:
        observe: every topic now. It is asked once a second while there are viewers.
    """

    def __init__(self, observe: Callable[[], Awaitable[dict[str, Observed]]]) -> None:
        self._observe = observe
        self._epoch = secrets.token_hex(6)
        self._last: dict[str, Observed] = {}
        self._revisions: dict[str, int] = {}
        self._newest: dict[str, Event] = {}
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._number = 0
        self._viewers: set[Viewer] = set()
        self._wanted = asyncio.Event()

    @property
    def viewers(self) -> int:
        """Open streams."""
        return len(self._viewers)

    def join(self, last_id: str) -> Viewer:
        """A new viewer, with what it missed since `last_id` queued."""
        viewer = Viewer()
        for event in self._missed(last_id):
            viewer.put(event.data)
        self._viewers.add(viewer)
        self._wanted.set()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """It hangs up."""
        self._viewers.discard(viewer)
        if not self._viewers:
            self._wanted.clear()

    def close(self) -> None:
        """Every stream ends."""
        for viewer in self._viewers:
            viewer.end()

    async def run(self) -> None:
        """Look, and tell, until cancelled."""
        while True:
            await self._wanted.wait()
            try:
                self.take(await self._observe())
            except (RuntimeError, TimeoutError) as error:  # the controller's loop is ending
                _log.warning("live events paused reason=%s", error)
            await asyncio.sleep(LOOK_NS / S)

    def take(self, observed: dict[str, Observed]) -> None:
        """Send an event for each topic that changed."""
        for topic, now in observed.items():
            before = self._last.get(topic)
            names = changed(before.things if before else {}, now.things)
            if before is not None and not names and before.summary == now.summary:
                continue
            self._last[topic] = now
            event = self._event(topic, names, now)
            self._newest[topic] = event
            self._kept.append(event)
            for viewer in self._viewers:
                viewer.put(event.data)

    def _event(self, topic: str, names: list[str], now: Observed) -> Event:
        self._number += 1
        revision = self._revisions[topic] = self._revisions.get(topic, 0) + 1
        payload = {
            "revision": revision,
            **now.summary,
            "changed": names[:MAX_NAMED],
            "changed_count": len(names),
        }
        lines = (
            f"id: {self._epoch}-{self._number}",
            f"event: {topic}",
            f"data: {msgspec.json.encode(payload).decode()}",
        )
        return Event(self._number, topic, ("\n".join(lines) + "\n\n").encode())

    def _missed(self, last_id: str) -> list[Event]:
        epoch, _, text = last_id.partition("-")
        if epoch == self._epoch and text.isascii() and text.isdecimal() and len(text) < 16:
            number = int(text)
            if self._kept and self._kept[0].number <= number + 1 <= self._number + 1:
                return [event for event in self._kept if event.number > number]
        return sorted(self._newest.values())

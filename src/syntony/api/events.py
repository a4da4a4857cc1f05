"""Server-sent events: computed once, sent to every viewer, stored for viewers that reconnect.

An event's id is ``EPOCH-NUMBER``; the epoch identifies the process. A viewer that reconnects with
its last id gets the events that it missed. A new viewer, or one with an unknown id, gets the newest
event of each topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from syntony.api.topics import MAX_NAMED, TopicState, changed
from syntony.errors import SyntonyError
from syntony.model import S
from syntony.wire.gateways import LiveEvent

_log = logging.getLogger(__name__)
INTERVAL_NS = 1 * S
MAX_EVENTS = 1024
"""Number of past events stored for viewers that reconnect."""
WAIT_S = 10.0
"""Longest time for which a gateway's request waits for events."""
MAX_QUEUED = 256
"""Maximum events queued for one viewer; a slower one is disconnected and can reconnect."""


class Event(NamedTuple):
    """One event in the format sent to viewers."""

    number: int
    topic: str
    data: bytes


class Viewer:
    """One open stream.

    Args:
        last_id: id of the last event that it received on an earlier connection.
    """

    def __init__(self, last_id: str) -> None:
        self.last_id = last_id
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_QUEUED + 1)
        """None: the end."""
        self.ended = False
        self.got = 0
        """Number of that event, if it is of this epoch: only later ones are sent."""
        self.some = asyncio.Event()
        """Set once there is an event, or the end."""

    def put(self, data: bytes) -> None:
        """Queue an event; end the stream if the viewer is too slow."""
        if self.ended:
            return
        self.some.set()
        if self.queue.qsize() >= MAX_QUEUED:
            self.end()
        else:
            self.queue.put_nowait(data)

    def end(self) -> None:
        """End the stream once the queue has been sent."""
        if not self.ended:
            self.ended = True
            self.some.set()
            self.queue.put_nowait(None)


class Events(ABC):
    """All viewers of one API, on its event loop.

    Args:
        epoch: identifies the process that numbers the events.
    """

    def __init__(self, epoch: str) -> None:
        self._epoch = epoch
        self._newest: dict[str, Event] = {}
        self._recent: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._number = 0
        self._viewers: set[Viewer] = set()
        self._has_viewers = asyncio.Event()

    @abstractmethod
    async def run(self) -> None:
        """Send events to viewers, until cancelled."""

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def join(self, last_id: str) -> Viewer:
        """Add a viewer, with the events since `last_id` queued."""
        missed = self._missed(last_id)
        viewer = self._enter(last_id)
        for event in missed:
            viewer.put(event.data)
        return viewer

    def _enter(self, last_id: str) -> Viewer:
        viewer = Viewer(last_id)
        self._viewers.add(viewer)
        self._has_viewers.set()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)
        if not self._viewers:
            self._has_viewers.clear()

    def close(self) -> None:
        for viewer in self._viewers:
            viewer.end()

    def _publish(self, event: Event) -> None:
        """Send an event to every viewer, and store it."""
        self._newest[event.topic] = event
        self._recent.append(event)
        for viewer in self._viewers:
            if event.number > viewer.got:
                viewer.put(event.data)

    def _missed(self, last_id: str) -> list[Event]:
        number = _number_of(last_id, self._epoch)
        if (
            self._recent
            and number >= 0
            and self._recent[0].number <= number + 1 <= self._number + 1
        ):
            return [event for event in self._recent if event.number > number]
        return sorted(self._newest.values())


def _number_of(event_id: str, epoch: str) -> int:
    """Number of an event of this epoch; -1: of another epoch, or invalid."""
    of, _, text = event_id.partition("-")
    known = of == epoch and text.isascii() and text.isdecimal() and len(text) < 16
    return int(text) if known else -1


class EventHub(Events):
    """Events of a controller that leads.

    Args:
        observe: returns the state of every topic; called once a second while there are viewers.
    """

    def __init__(self, observe: Callable[[], Awaitable[dict[str, TopicState]]]) -> None:
        super().__init__(secrets.token_hex(6))
        self._observe = observe
        self._last: dict[str, TopicState] = {}
        self._revisions: dict[str, int] = {}

    async def after(self, last_id: str) -> list[LiveEvent]:
        """Events since `last_id`, for a gateway; waits for one for up to `WAIT_S`."""
        viewer = self.join(last_id)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await viewer.some.wait()
        finally:
            self.leave(viewer)
        return [
            LiveEvent(epoch=self._epoch, number=each.number, topic=each.topic, data=each.data)
            for each in self._missed(last_id)
        ]

    async def run(self) -> None:
        """Collect and send changes, until cancelled."""
        while True:
            await self._has_viewers.wait()
            try:
                self.take(await self._observe())
            except (RuntimeError, TimeoutError) as error:  # the controller's loop is ending
                _log.warning("live events paused reason=%s", error)
            await asyncio.sleep(INTERVAL_NS / S)

    def take(self, observed: dict[str, TopicState]) -> None:
        """Send an event for each topic that changed."""
        for topic, now in observed.items():
            before = self._last.get(topic)
            names = changed(before.items if before else {}, now.items)
            if before is not None and not names and before.summary == now.summary:
                continue
            self._last[topic] = now
            self._publish(self._event(topic, names, now))

    def _event(self, topic: str, names: list[str], now: TopicState) -> Event:
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


class FollowedEvents(Events):
    """Events of a gateway: its leader's, fetched once for all viewers, with the leader's numbers,
    so that a viewer can continue at any gateway.

    Args:
        after: returns the leader's events after an id, as soon as there are any; called while
            there are viewers. Raises `BusyError`: there is no leader now.
    """

    def __init__(self, after: Callable[[str], Awaitable[list[LiveEvent]]]) -> None:
        super().__init__("")
        self._after = after

    def join(self, last_id: str) -> Viewer:
        """As for a leader; a viewer from the leader or another gateway may be ahead."""
        number = _number_of(last_id, self._epoch)
        if number <= self._number:
            return super().join(last_id)
        viewer = self._enter(last_id)
        viewer.got = number
        return viewer

    async def run(self) -> None:
        """Fetch and send events, until cancelled."""
        while True:
            await self._has_viewers.wait()
            last_id = f"{self._epoch}-{self._number}" if self._epoch else ""
            try:
                if self.take(await self._after(last_id)):
                    continue
            except SyntonyError as error:
                _log.info("live events end reason=%s", error)
                self.close()
            await asyncio.sleep(INTERVAL_NS / S)

    def take(self, events: list[LiveEvent]) -> bool:
        """Send events, each once; returns whether any was new."""
        before = self._epoch, self._number
        for each in events:
            if each.epoch != self._epoch:  # another leader
                self._epoch, self._number = each.epoch, 0
                for viewer in self._viewers:
                    viewer.got = max(0, _number_of(viewer.last_id, self._epoch))
                self._newest.clear()
                self._recent.clear()
            if each.number > self._number:
                self._number = each.number
                self._publish(Event(each.number, each.topic, each.data))
        return before != (self._epoch, self._number)

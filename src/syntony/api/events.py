"""Server-sent events: computed once, sent to every viewer, kept for those that come back.

An event's id is ``EPOCH-NUMBER``, the epoch being of this process. A viewer that names the last one
it got is sent what it missed; one that is new, or whose epoch or number is not known any more, gets
the newest event of each topic.
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

from syntony.api.observed import MAX_NAMED, Observed, changed
from syntony.errors import SyntonyError
from syntony.model import S
from syntony.wire.gateways import LiveEvent

_log = logging.getLogger(__name__)
LOOK_NS = 1 * S
KEPT = 1024
"""Events that a viewer which comes back can be sent."""
AFTER_S = 10.0
"""For which a gateway waits for events at most."""
MAX_QUEUED = 256
"""Events that wait for one slow viewer; it is hung up on, and comes back with its last id."""


class Event(NamedTuple):
    """One event, as it is sent."""

    number: int
    topic: str
    data: bytes


class Viewer:
    """One open stream.

    Args:
        last_id: of the last event that it was sent elsewhere.
    """

    def __init__(self, last_id: str) -> None:
        self.last_id = last_id
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_QUEUED + 1)
        """None: the end."""
        self.ended = False
        self.got = 0
        """The number of that one, if it is of this epoch: it needs later ones only."""
        self.some = asyncio.Event()
        """Set once there was anything."""

    def put(self, data: bytes) -> None:
        """Queue an event, or the end if it is too slow."""
        if self.ended:
            return
        self.some.set()
        if self.queue.qsize() >= MAX_QUEUED:
            self.end()
        else:
            self.queue.put_nowait(data)

    def end(self) -> None:
        """The stream ends once what is queued has been sent."""
        if not self.ended:
            self.ended = True
            self.some.set()
            self.queue.put_nowait(None)


class Events(ABC):
    """All viewers of one API, on its event loop.

    Args:
        epoch: whose numbers they are.
    """

    def __init__(self, epoch: str) -> None:
        self._epoch = epoch
        self._newest: dict[str, Event] = {}
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._number = 0
        self._viewers: set[Viewer] = set()
        self._wanted = asyncio.Event()

    @abstractmethod
    async def run(self) -> None:
        """Tell viewers, until cancelled."""

    @property
    def viewers(self) -> int:
        """Open streams."""
        return len(self._viewers)

    def join(self, last_id: str) -> Viewer:
        """A new viewer, with what it missed since `last_id` queued."""
        missed = self._missed(last_id)
        viewer = self._enter(last_id)
        for event in missed:
            viewer.put(event.data)
        return viewer

    def _enter(self, last_id: str) -> Viewer:
        viewer = Viewer(last_id)
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

    def _publish(self, event: Event) -> None:
        """Send it to every viewer, and keep it."""
        self._newest[event.topic] = event
        self._kept.append(event)
        for viewer in self._viewers:
            if event.number > viewer.got:
                viewer.put(event.data)

    def _missed(self, last_id: str) -> list[Event]:
        number = _number_of(last_id, self._epoch)
        if self._kept and number >= 0 and self._kept[0].number <= number + 1 <= self._number + 1:
            return [event for event in self._kept if event.number > number]
        return sorted(self._newest.values())


def _number_of(event_id: str, epoch: str) -> int:
    """Of an event of this epoch; -1: none of it."""
    of, _, text = event_id.partition("-")
    known = of == epoch and text.isascii() and text.isdecimal() and len(text) < 16
    return int(text) if known else -1


class EventHub(Events):
    """Of a controller that leads.

    Args:
        observe: every topic now. It is asked once a second while there are viewers.
    """

    def __init__(self, observe: Callable[[], Awaitable[dict[str, Observed]]]) -> None:
        super().__init__(secrets.token_hex(6))
        self._observe = observe
        self._last: dict[str, Observed] = {}
        self._revisions: dict[str, int] = {}

    async def after(self, last_id: str) -> list[LiveEvent]:
        """What a gateway's viewers have missed since `last_id`, as soon as there is something;
        nothing after `AFTER_S`."""
        viewer = self.join(last_id)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AFTER_S):
                    await viewer.some.wait()
        finally:
            self.leave(viewer)
        return [
            LiveEvent(epoch=self._epoch, number=each.number, topic=each.topic, data=each.data)
            for each in self._missed(last_id)
        ]

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
            self._publish(self._event(topic, names, now))

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


class FollowedEvents(Events):
    """Of a gateway: its leader's, fetched once for all viewers, under the leader's numbers, so that
    a viewer goes on at any gateway.

    Args:
        after: the leader's events after an id, as soon as there are any. It is asked while there
            are viewers. Raises `BusyError`: there is no leader now.
    """

    def __init__(self, after: Callable[[str], Awaitable[list[LiveEvent]]]) -> None:
        super().__init__("")
        self._after = after

    def join(self, last_id: str) -> Viewer:
        """As at a leader; whoever comes from there or from another gateway may be ahead."""
        number = _number_of(last_id, self._epoch)
        if number <= self._number:
            return super().join(last_id)
        viewer = self._enter(last_id)
        viewer.got = number
        return viewer

    async def run(self) -> None:
        """Fetch, and tell, until cancelled."""
        while True:
            await self._wanted.wait()
            last_id = f"{self._epoch}-{self._number}" if self._epoch else ""
            try:
                if self.take(await self._after(last_id)):
                    continue
            except SyntonyError as error:
                _log.info("live events end reason=%s", error)
                self.close()
            await asyncio.sleep(LOOK_NS / S)

    def take(self, events: list[LiveEvent]) -> bool:
        """Hand them on, each once; whether there were any."""
        before = self._epoch, self._number
        for each in events:
            if each.epoch != self._epoch:  # another leader
                self._epoch, self._number = each.epoch, 0
                for viewer in self._viewers:
                    viewer.got = max(0, _number_of(viewer.last_id, self._epoch))
                self._newest.clear()
                self._kept.clear()
            if each.number > self._number:
                self._number = each.number
                self._publish(Event(each.number, each.topic, each.data))
        return before != (self._epoch, self._number)

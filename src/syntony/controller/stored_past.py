"""The newest instant of the store, for requests about the past before the first agent is back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from syntony.controller.fleet_time import FleetTime
from syntony.errors import StoreError
from syntony.model import S
from syntony.store import Store

_log = logging.getLogger(__name__)
WAIT_NS, AGAIN_NS = 1 * S, 10 * S
"""A new leader waits so long for the store's newest instant: the lease is not renewed meanwhile.
After that it asks at this interval until the store answers."""


class StoredPast:
    """Asks the store until it answers.

    One per controller; on its event loop.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._time = FleetTime()
        self._known = False

    def now(self, now_ns: int) -> int | None:
        """Fleet time at a monotonic instant as if the newest row were of the moment at which it was
        read; None: nothing is stored, or the store has not answered."""
        return self._time.now(now_ns)

    async def begin(self) -> None:
        """Ask once, and do not wait for long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_NS / S):
                await self.learn_past()

    async def learn_past(self) -> None:
        """Ask, unless it is known."""
        if self._known:
            return
        try:
            latest_ns = await asyncio.to_thread(self._store.latest_ns)
        except StoreError as error:
            _log.error("newest time of the store unknown, asking again reason=%s", error)
            return
        self._known = True
        if latest_ns:
            self._time.remember(latest_ns, time.monotonic_ns())

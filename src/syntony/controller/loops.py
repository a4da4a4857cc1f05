"""The controller's periodic loops: each has its interval and counters, and survives errors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from syntony.controller.batches import BatchPiece
from syntony.model import S

_log = logging.getLogger(__name__)
Work = Callable[[], Coroutine[Any, Any, None]]


class LoopCount:
    def __init__(self) -> None:
        self.runs = 0
        self.failures = 0
        self.spent_ns = 0


def storing(
    name: str,
    fleet_now: Callable[[], int | None],
    step: Callable[[int], BatchPiece | None],
    put_local: Callable[[BatchPiece], None],
) -> Work:
    """Work of a loop: once there is fleet time, queue what a step makes of it for the store."""

    async def store() -> None:
        now_ns = fleet_now()
        if now_ns is not None and (rows := step(now_ns)) is not None:
            put_local(rows)

    store.__name__ = name
    return store


class Loops:
    def __init__(self) -> None:
        self.counts: dict[str, LoopCount] = {}

    async def every(self, interval_ns: int, work: Work, rest: int = 0) -> None:
        """Run periodically until cancelled; after a late round the next begins at once.

        Args:
            interval_ns: from the beginning of a round to that of the next.
            work: one round.
            rest: after a round, wait at least this many times its duration.
        """
        name = work.__name__.removeprefix("_")
        count = self.counts.setdefault(name, LoopCount())
        while True:
            started_ns = time.monotonic_ns()
            try:
                await work()
            except Exception:  # noqa: BLE001 — supervisor: one loop's fault must not stop ingest
                count.failures += 1
                _log.exception("controller loop failed, continuing loop=%s", name)
            spent_ns = time.monotonic_ns() - started_ns
            count.runs += 1
            count.spent_ns += spent_ns
            await asyncio.sleep(max(0, interval_ns - spent_ns, rest * spent_ns) / S)

"""A spool that is drained in virtual time: the agent's stream and the controller's ingest are real,
the network and the store are delays.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple, cast
from unittest import mock

from tests.link import hello, open_spool
from tests.world.agent import _row_of
from tests.world.loop import Loop
from tests.world.network import Arrivals

from syntony.agent.fence import Fence
from syntony.agent.spool import Spool
from syntony.agent.stream import Stream
from syntony.controller.ingest import Ingest
from syntony.controller.sessions import NewestMessages
from syntony.model import S
from syntony.store import Store, StoredPart
from syntony.store.schema import partition_ns
from syntony.wire.coding import encode
from syntony.wire.messages import Batch, decode_bundle
from syntony.wire.tables import AGENT, Table

if TYPE_CHECKING:
    import pyarrow as pa

T0_S = 1_700_000_000
HOST = "h1"
SPOOL_BYTES = 1 << 28


class Backlog(NamedTuple):
    """What waits, and what it has to pass."""

    batches: int
    rtt_ns: int
    insert_ns: int
    """Of one insert."""
    batch_ns: int
    """… and of each batch in it."""
    restarted: bool = False
    """Another process of the agent spooled it."""


class Drained(NamedTuple):
    """What became of it."""

    seconds: float
    inserts: int
    looked_up: int
    """Batches that were looked up."""
    most_in_flight: int
    stored: Counter[int]
    """How often each number was stored."""


class _SlowStore:
    """Takes rows, and its time."""

    def __init__(self, spend: Callable[[int], None], backlog: Backlog) -> None:
        self._spend, self._backlog = spend, backlog
        self.stored: Counter[int] = Counter()
        self.inserts = self.lookups = 0
        self._parts: set[StoredPart] = set()

    def insert(self, table: Table, rows: pa.Table) -> None:
        names = ("host", "stream", "seq", "ts_ns")
        columns = (rows.column(name).to_numpy().tolist() for name in names)
        for host, stream, seq, ts_ns in zip(*columns, strict=True):
            self.stored[seq] += 1
            self._parts.add(StoredPart(host, stream, seq, ts_ns // partition_ns(table)))
        self.inserts += 1
        self._spend(self._backlog.insert_ns + rows.num_rows * self._backlog.batch_ns)

    def recorded(self, *_: object) -> frozenset[StoredPart]:
        self.lookups += 1
        self._spend(self._backlog.insert_ns)
        return cast("frozenset[StoredPart]", self._parts)  # it is read before more is inserted


def drain(directory: Path, backlog: Backlog) -> Drained:
    """Until everything is acknowledged."""
    loop = Loop(Random(1))

    def monotonic_ns() -> int:
        return loop.now_ns + 1_000 * S

    with contextlib.closing(loop), mock.patch.object(time, "monotonic_ns", monotonic_ns):
        spool = _filled(directory, backlog)
        try:
            return loop.run_until_complete(_Link(loop, spool, directory, backlog).run())
        finally:
            spool.close()


def _filled(directory: Path, backlog: Backlog) -> Spool:
    spool = open_spool(directory / "spool", SPOOL_BYTES)
    before, after = _row_of(HOST)
    for number in range(backlog.batches):
        instant = ((T0_S + number // 8) * S).to_bytes(8, "little")
        spool.append(AGENT.name, 1, before + instant + after)
    if backlog.restarted:
        spool.close()
        spool = open_spool(directory / "spool", SPOOL_BYTES)
    return spool


class _Link:
    """One connection."""

    def __init__(self, loop: Loop, spool: Spool, directory: Path, backlog: Backlog) -> None:
        self._loop, self._spool, self._rtt_s = loop, spool, backlog.rtt_ns / S
        self._stream = Stream(spool, Fence(directory))
        self._up, self._down = Arrivals(loop), Arrivals(loop)
        self._store = _SlowStore(loop.spend, backlog)
        self._ingest = Ingest(cast("Store", self._store), lambda: None, self._stored)
        self._source = self._ingest.greet(
            HOST, self._stream.delivery.stream, backlog=self._stream.delivery.backlog
        )
        self._outbox = NewestMessages(patient=not self._stream.delivery.backlog)
        self._wake = asyncio.Event()
        self._looked_up = self._most = 0
        self._last_s = 0.0

    async def run(self) -> Drained:
        work = [self._send(), self._serve(), self._answer(), self._ingest.run()]
        tasks = [asyncio.create_task(each) for each in work]
        last = self._spool.last_seq
        async for data in self._down:
            self._stream.take(data)
            self._wake.set()
            if self._spool.acknowledged == last:
                break
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        store = self._store
        return Drained(self._loop.time(), store.inserts, self._looked_up, self._most, store.stored)

    def _pass(self, to: Arrivals, data: bytes) -> None:
        """In order: calls at one instant have none."""
        self._last_s = max(self._last_s + 1e-6, self._loop.time() + self._rtt_s / 2)
        self._loop.call_at(self._last_s, to.put, data)

    async def _send(self) -> None:
        stream = self._stream
        stream.opening(hello(HOST, stream.delivery.stream))
        while True:
            for data in stream.outgoing(()):
                self._pass(self._up, data)
            if not stream.delivery.ready:
                self._wake.clear()
                await self._wake.wait()

    async def _serve(self) -> None:
        """As `service._receive` and `agent_hub.batch`."""
        self._outbox.acknowledge(0)
        async for data in self._up:
            for message in decode_bundle(data):
                assert isinstance(message, Batch)
                assert await self._ingest.put(self._source, message)
                self._looked_up += self._ingest._items[-1].check
                self._most = max(self._most, message.seq - self._spool.acknowledged)

    async def _answer(self) -> None:
        async for message, _ in self._outbox:
            self._pass(self._down, encode(message))

    def _stored(self, *_: object) -> None:
        self._outbox.acknowledge(self._source.stored, self._source.window)

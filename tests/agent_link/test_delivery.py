"""From spool to store through seeded histories of crashes on both sides.

One agent (a real spool on disk, real deliveries) and one controller (a real ingest over a store in
memory) live through process kills, restored snapshots, power cuts, full disks, failing and torn
inserts, and acknowledgements that are late, repeated and out of order. What the store must hold is
kept by the history itself, row by row.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.link import open_spool

from syntony.agent import delivery as delivery_module
from syntony.agent.delivery import Delivery
from syntony.agent.spool import Spool
from syntony.controller import ingest as ingest_module
from syntony.controller.ingest import Ingest, RowStream
from syntony.errors import StoreError
from syntony.model import S
from syntony.store import Store, StoredPart
from syntony.store.schema import partition_ns
from syntony.wire.arrow import encode_columns
from syntony.wire.messages import Batch
from syntony.wire.tables import HEARD, Table

if TYPE_CHECKING:
    import pyarrow as pa

T0 = 1_700_002_700 * S
"""100 s before an hour, where a partition ends."""
HOST = "h1"


class KilledError(BaseException):
    """The controller's process is gone in the middle of an insert."""


class MemoryStore:
    """Rows by their instant, which is each row's own; inserts fail and die by partition."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.stored: Counter[int] = Counter()
        self._instants: dict[StoredPart, list[int]] = {}
        self.trouble = 0.0
        self.deadly = 0.0

    def insert(self, table: Table, rows: pa.Table) -> None:
        parts: dict[int, list[tuple[StoredPart, int]]] = {}
        columns = (rows.column(name).to_pylist() for name in ("host", "stream", "seq", "ts_ns"))
        for host, stream, seq, ts_ns in zip(*columns, strict=True):
            part = ts_ns // partition_ns(table)
            parts.setdefault(part, []).append((StoredPart(host, stream, seq, part), ts_ns))
        for found in parts.values():
            self._fail()
            for origin, ts_ns in found:
                self.stored[ts_ns] += 1
                self._instants.setdefault(origin, []).append(ts_ns)
        self._fail()

    def _fail(self) -> None:
        if self._rng.random() < self.deadly:
            raise KilledError
        if self._rng.random() < self.trouble:
            raise StoreError("connection lost")

    def recorded(self, table: Table, first_ns: int, last_ns: int) -> frozenset[StoredPart]:
        return frozenset(
            origin
            for origin, instants in self._instants.items()
            if any(first_ns <= ts_ns < last_ns for ts_ns in instants)
        )


class World:
    """One history; every step is drawn from the seed."""

    def __init__(self, directory: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.rng = rng = random.Random(seed)
        self.place, self.snapshot = directory / "spool", directory / "snapshot"
        self.limit = rng.choice([16_000, 1 << 20])
        self.disk_full = False
        patch.setattr(os, "write", self._write(os.write))
        for module in (delivery_module, ingest_module):
            patch.setattr(module, "MAX_UNACKED", 4)
            patch.setattr(module, "MAX_WINDOW", 16)
        for name in ("UNCHECKED_NS", "ON_THE_WAY_NS"):  # nothing is held back: time stands still
            patch.setattr(delivery_module, name, 0)
        self.store = MemoryStore(rng)
        self.store.trouble, self.store.deadly = rng.choice([(0.0, 0.0), (0.3, 0.1)])
        self.appended: Counter[int] = Counter()
        self.waiting: dict[tuple[str, int], list[int]] = {}
        """Rows the spool holds, by batch."""
        self.acknowledged: set[int] = set()
        self.erased: set[int] = set()
        """Only in what a restore or a power cut destroyed: nobody can know of them."""
        self.counted = self.counted_at_snapshot = 0
        self.went_back = self.shed_in_flight = False
        self._known_dropped = 0
        self._number = 0
        self.source: RowStream
        self.under_way: list[Batch] = []
        self.late: list[tuple[Ingest, RowStream, Batch]] = []
        self.spool: Spool = open_spool(self.place, self.limit)
        self.delivery = Delivery(self.spool)
        self.start_controller()

    def _write(self, write: Callable[[int, Any], int]) -> Callable[[int, Any], int]:
        def partly(fd: int, data: Any) -> int:
            if not self.disk_full:
                return write(fd, data)
            if len(data) <= 8:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(fd, bytes(data)[:8])

        return partly

    # --- the agent ---

    def append(self) -> None:
        rows = []
        for _ in range(self.rng.randint(1, 3)):
            self._number += 1
            rows.append(T0 + self._number * S)
        self.appended.update(rows)
        columns: dict[str, Any] = {
            "ts_ns": rows, "src": ["h2/rail0"] * len(rows), "dst": ["h1/rail0"] * len(rows),
            "received": [1] * len(rows),
        }  # fmt: skip
        seq = self.spool.append(HEARD.name, len(rows), encode_columns(HEARD, columns))
        if seq is not None:
            self.waiting[self.spool.stream, seq] = rows

    def kill_agent(self) -> None:
        self.spool.close()
        self.start_agent()

    def start_agent(self) -> None:
        """What the directory no longer has is forgotten."""
        self.disk_full = False
        self.spool = open_spool(self.place, self.limit)
        self.connect(Delivery(self.spool))

    def take_snapshot(self) -> None:
        shutil.rmtree(self.snapshot, ignore_errors=True)
        shutil.copytree(self.place, self.snapshot)
        self.counted_at_snapshot = self.spool.dropped_rows
        self.waiting_at_snapshot = dict(self.waiting)

    def restore_snapshot(self) -> None:
        if not self.snapshot.exists():
            return
        self.went_back = True
        self._count()
        self.spool.close()
        shutil.rmtree(self.place)
        shutil.copytree(self.snapshot, self.place)
        lost = self.waiting.keys() - self.waiting_at_snapshot.keys()
        self.erased.update(row for key in lost for row in self.waiting[key])
        self.waiting = dict(self.waiting_at_snapshot)
        self._known_dropped = self.counted_at_snapshot
        self.start_agent()

    def cut_power(self) -> None:
        """The tail that was not synced is gone."""
        self.went_back = True
        self.spool.close()
        newest = max(self.place.glob("*.spool"), default=None)
        if newest is not None:
            os.truncate(newest, self.rng.randint(0, newest.stat().st_size))
        before = self.waiting
        self.start_agent()
        left = self._held()
        self.waiting = {key: rows for key, rows in before.items() if key in left}
        self.erased.update(row for key in before.keys() - left for row in before[key])

    def _held(self) -> set[tuple[str, int]]:
        found = set()
        for stream in {stream for stream, _ in self.waiting}:
            seq, frame = self.spool.read_after(0, stream)
            while frame is not None:
                found.add((stream, seq))
                seq, frame = self.spool.read_after(seq, stream)
        return found

    def _count(self) -> None:
        self.counted += self.spool.dropped_rows - self._known_dropped
        self._known_dropped = self.spool.dropped_rows

    # --- the link ---

    def connect(self, delivery: Delivery | None = None) -> None:
        self.late = [(self.ingest, self.source, batch) for batch in self.under_way]
        self.delivery = delivery or Delivery(self.spool, self.delivery)
        self.under_way = []
        self.source = self.ingest.greet(HOST, self.delivery.stream, backlog=self.delivery.backlog)
        self.acks = [(self.source.stored, 0)]

    def send(self) -> None:
        while self.rng.random() < 0.9 and (batch := self.delivery.next_batch()) is not None:
            self.under_way.append(batch)
        if self.delivery.over:
            self.connect()

    def hear(self) -> None:
        """An acknowledgement: mostly the newest, sometimes any that was given on this link."""
        self.acknowledge(*self.rng.choice([self.acks[-1], self.rng.choice(self.acks)]))

    def acknowledge(self, seq: int, window: int) -> None:
        held = self._held()
        self.delivery.acknowledge(seq)
        self.delivery.allow(window)
        for key in [key for key in self.waiting if key[0] == self.delivery.stream]:
            if key[1] <= seq:
                rows = self.waiting.pop(key)
                if key in held:
                    self.acknowledged.update(rows)
        if self.delivery.over:
            self.connect()

    # --- the controller ---

    def start_controller(self) -> None:
        self.ingest = Ingest(cast("Store", self.store), lambda: None, lambda *_: None)
        self.source = self.ingest.greet(HOST, "nothing")
        self.connect()

    async def receive_late(self) -> None:
        """A batch of the connection before, which waited for room in the queue."""
        if self.late:
            ingest, source, batch = self.late.pop(0)
            if ingest is self.ingest:
                await ingest.put(source, batch)

    async def receive(self) -> None:
        count = self.rng.randint(0, len(self.under_way))
        arrived, self.under_way = self.under_way[:count], self.under_way[count:]
        for batch in arrived:
            if not await self.ingest.put(self.source, batch):
                self._told()

    def _told(self) -> None:
        self.acks.append((self.source.stored, self.source.window))

    async def flush(self) -> None:
        try:
            await self.ingest.flush()
        except KilledError:
            self.start_controller()
        self._told()

    # --- all together ---

    async def step(self) -> None:
        action = self.rng.choices(
            [
                self.append, self.send, self.receive, self.flush, self.hear, self.connect,
                self.kill_agent, self.take_snapshot, self.restore_snapshot, self.cut_power,
                self.start_controller, self.fill_disk, self.receive_late,
            ],
            [40, 30, 20, 15, 15, 2, 2, 1, 1, 0.5, 2, 1, 5],
        )[0]  # fmt: skip
        done = action()
        if done is not None:
            await done

    def fill_disk(self) -> None:
        self.disk_full = not self.disk_full

    async def settle(self) -> None:
        """Everything works from now on."""
        self.disk_full = False
        self.store.trouble = self.store.deadly = 0.0
        self.connect()
        for _ in range(2_000):
            if not self.delivery.backlog and self.spool.acknowledged >= self.spool.last_seq:
                return
            self.send()
            await self.receive()
            await self.flush()
            self.acknowledge(*self.acks[-1])
        raise AssertionError("not everything was delivered")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    async def inline(work: Callable[..., Any], *words: Any) -> Any:
        return work(*words)

    monkeypatch.setattr(ingest_module, "RETRY_NS", 0)
    monkeypatch.setattr(asyncio, "to_thread", inline)


@pytest.mark.parametrize("seed", range(40))
def test_no_row_is_lost_uncounted_or_stored_twice(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, seed, monkeypatch)

    async def live() -> None:
        for _ in range(400):
            await world.step()
        await world.settle()

    asyncio.run(live())
    world._count()
    stored = world.store.stored
    assert [row for row, times in stored.items() if times > 1] == [], f"doubled, seed {seed}"
    assert world.acknowledged - stored.keys() == set(), f"acknowledged and lost, seed {seed}"
    lost = world.appended.keys() - stored.keys() - world.erased
    assert len(lost) <= world.counted, f"lost uncounted, seed {seed}"
    if not world.went_back and world.limit == 1 << 20:
        assert len(lost) == world.counted, f"counted but not lost, seed {seed}"
    world.spool.close()


def test_an_acknowledgement_may_run_ahead_of_what_a_power_cut_left(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, 1 << 20)
    before = spool.stream
    for number in range(3):
        spool.append("t", 1, b"%d" % number)
    spool.close()
    spool = open_spool(tmp_path, 1 << 20)
    for _ in range(9):
        spool.append("t", 1, b"new")
    delivery = Delivery(spool)
    assert (delivery.stream, delivery.backlog, delivery.over) == (before, True, False)
    delivery.acknowledge(7)
    assert (spool.acknowledged, spool.dropped_rows, delivery.over) == (3, 0, True)
    delivery = Delivery(spool)
    assert (delivery.stream, delivery.backlog, delivery.over) == (spool.stream, False, False)
    spool.close()


def test_a_process_resumed_from_a_snapshot_begins_another_stream(tmp_path: Path) -> None:
    """The store has batches up to 9 of the very stream that this process has numbered to 3."""
    spool = open_spool(tmp_path, 1 << 20)
    delivery = Delivery(spool)
    for _ in range(3):
        spool.append("t", 5, b"x")
    delivery.acknowledge(9)
    assert delivery.over
    assert spool.dropped_rows == 15
    delivery.acknowledge(9)  # repeated
    assert spool.dropped_rows == 15
    left = Delivery(spool)
    assert (left.stream, left.backlog) == (delivery.stream, True)
    left.acknowledge(3)
    assert Delivery(spool).stream == spool.stream
    spool.close()


def test_every_record_of_a_backlog_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is asked whether there is more to do, as the uplink does at each turn."""
    spool = open_spool(tmp_path, 1 << 20)
    for number in range(6):
        spool.append("t", 1, b"%d" % number)
    spool.close()
    spool = open_spool(tmp_path, 1 << 20)
    read: list[int] = []
    plainly = Spool._read

    def counted(self: Spool, segment: Any, place: int) -> Any:
        read.append(segment.first_seq + place)
        return plainly(self, segment, place)

    monkeypatch.setattr(Spool, "_read", counted)
    delivery = Delivery(spool)
    sent = 0
    while not delivery.over:
        if (batch := delivery.next_batch()) is not None:
            sent = batch.seq
        assert not delivery.over
        delivery.acknowledge(sent)
    assert read == [1, 2, 3, 4, 5, 6]
    assert Delivery(spool).stream == spool.stream
    spool.close()


def test_a_backlog_that_the_medium_loses_meanwhile_ends_when_what_was_sent_is_stored(
    tmp_path: Path,
) -> None:
    spool = open_spool(tmp_path, 1 << 20)
    for _ in range(3):
        spool.append("t", 2, b"x" * 40)
    spool.close()
    spool = open_spool(tmp_path, 1 << 20)
    delivery = Delivery(spool)
    first = delivery.next_batch()
    assert first is not None
    (path,) = tmp_path.glob("*.spool")
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 2, len(data)):
        data[place] ^= 0xFF
    path.write_bytes(data)
    while (batch := delivery.next_batch()) is not None:
        first = batch
    # What is under way is not stored yet.
    assert (delivery.ready, delivery.over) == (False, False)
    delivery.acknowledge(first.seq)
    assert (delivery.ready, delivery.over) == (False, True)
    assert spool.dropped_rows == 2 * (3 - first.seq)
    spool.close()


def test_a_batch_that_cannot_be_read_for_want_of_descriptors_waits_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither lost nor asked for again and again."""
    spool = open_spool(tmp_path, 1 << 20)
    delivery = Delivery(spool)
    spool.append("t", 1, b"one")

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert (delivery.ready, delivery.next_batch(), delivery.ready) == (True, None, False)
    spool.append("t", 1, b"two")
    sent = [delivery.next_batch(), delivery.next_batch()]
    assert [each and each.arrow for each in sent] == [b"one", b"two"]
    assert spool.dropped_rows == 0
    spool.close()

"""Exactly once, whatever fails in between: ingest against a store that fails on command."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
from tests.link import T0

from syntony.controller import ingest as ingest_module
from syntony.controller.ingest import BatchOutcome, Ingest, RowStream
from syntony.controller.own_rows import OwnRows
from syntony.errors import StoreError
from syntony.model import DAY_NS, HOUR_NS, S
from syntony.store import Store, StoredPart
from syntony.store.schema import partition_ns
from syntony.wire.arrow import encode_columns
from syntony.wire.messages import MAX_UNACKED, MAX_WINDOW, Batch
from syntony.wire.tables import HEARD, PATH, PROBE, Table

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[str, str, int, int]
"""host, stream, seq, ts_ns"""


class FlakyStore:
    """As much of a store as ingest uses: rows in memory, by partition; fails on command."""

    def __init__(self) -> None:
        self.rows: Counter[Row] = Counter()
        self.inserts = 0
        self.looked_up = self.seen_ns = 0
        self.refuse = False
        self.fail_after_partitions: int | None = None

    def insert(self, table: Table, rows: pa.Table) -> None:
        if self.refuse:
            raise StoreError("no space left on device")
        self.inserts += 1
        width = partition_ns(table)
        columns = (rows.column(name).to_pylist() for name in ("host", "stream", "seq", "ts_ns"))
        found: list[Row] = list(zip(*columns, strict=True))
        for done, partition in enumerate(sorted({row[3] // width for row in found})):
            if done == self.fail_after_partitions:
                self.fail_after_partitions = None
                raise StoreError("connection lost")
            self.rows.update(row for row in found if row[3] // width == partition)
        if self.fail_after_partitions is not None:
            self.fail_after_partitions = None
            raise StoreError("connection lost after everything was written")

    def recorded(self, table: Table, first_ns: int, last_ns: int) -> frozenset[StoredPart]:
        self.looked_up += 1
        self.seen_ns += last_ns - first_ns
        width = partition_ns(table)
        return frozenset(
            StoredPart(host, stream, seq, ts_ns // width)
            for host, stream, seq, ts_ns in self.rows
            if first_ns <= ts_ns < last_ns
        )


def batch(seq: int, *ts_ns: int) -> Batch:
    count = len(ts_ns)
    rows: dict[str, list[str] | list[int]] = {
        "ts_ns": list(ts_ns),
        "src": ["h9/rail0"] * count,
        "dst": ["h1/rail0"] * count,
        "received": [1] * count,
    }
    data = encode_columns(HEARD, rows)
    return Batch(seq=seq, table=HEARD.name, rows=count, dropped=0, arrow=data)


def path_batch(seq: int, *ts_ns: int) -> Batch:
    count = len(ts_ns)
    rows: dict[str, list[str] | list[int]] = {
        "ts_ns": list(ts_ns),
        "src": ["h1/rail0"] * count,
        "dst": ["h2/rail0"] * count,
        "sport": [61_000 + each for each in range(count)],
        "dport": [8620] * count,
        "hops": ["leaf0"] * count,
        "proto": ["tcp"] * count,
    }
    arrow = encode_columns(PATH, rows)
    return Batch(seq=seq, table=PATH.name, rows=count, dropped=0, arrow=arrow)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "GATHER_NS", 0)
    monkeypatch.setattr(ingest_module, "LOCAL_GATHER_NS", 0)
    monkeypatch.setattr(ingest_module, "RETRY_NS", 0)
    monkeypatch.setattr(ingest_module, "LATE_NS", 0)


class Bench:
    """An ingest with what it told."""

    def __init__(self, store: FlakyStore) -> None:
        self.store = store
        self.reported: list[BatchOutcome] = []
        self.sources: dict[tuple[str, str], RowStream] = {}
        self.ingest = Ingest(
            cast("Store", store), lambda: T0, lambda told, _: self.reported.extend(told)
        )

    def greet(self, host: str, stream: str, *, backlog: bool = False) -> int:
        source = self.sources[host, stream] = self.ingest.greet(host, stream, backlog=backlog)
        return source.stored

    async def put(self, host: str, stream: str, batch: Batch) -> bool:
        return await self.ingest.put(self.sources[host, stream], batch)

    @property
    def acknowledged(self) -> list[int]:
        return [outcome.seq for outcome in self.reported]


def drive(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


def test_batches_of_many_agents_make_one_insert() -> None:
    async def work() -> None:
        bench = Bench(FlakyStore())
        bench.greet("h1", "s")
        for seq in range(1, 11):
            assert await bench.put("h1", "s", batch(seq, T0 + seq * S))
        await bench.ingest.flush()
        assert bench.store.inserts == 1
        assert bench.acknowledged == list(range(1, 11))

    drive(work)


@pytest.mark.parametrize(
    ("seq", "table", "local", "soon"),
    [(1, HEARD, 0, 0), (1, HEARD, 1, 1), (1, PROBE, 0, 1), (MAX_UNACKED // 2, PROBE, 0, 0)],
)
def test_what_localisation_waits_for_is_not_gathered_for_long(
    seq: int, table: Table, local: bool, soon: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_module, "GATHER_NS", 3600 * S)

    async def work() -> None:
        bench, stored = Bench(FlakyStore()), asyncio.Event()

        def on_stored(found: list[BatchOutcome], _: object) -> None:
            bench.reported.extend(found)
            stored.set()

        bench.ingest._on_stored = on_stored
        bench.greet("h1", "s")
        running = asyncio.create_task(bench.ingest.run())
        await bench.put("h1", "s", msgspec.structs.replace(batch(seq, T0), table=table.name))
        if local:
            await asyncio.sleep(0.01)
            assert bench.acknowledged == []
            own = [{"ts_ns": T0, "src": "h9/rail0", "dst": "h1/rail0", "received": 1}]
            piece = OwnRows(HEARD).piece(own)
            assert piece is not None
            bench.ingest.put_local(piece)
        if soon:
            await asyncio.wait_for(stored.wait(), 20)
        await asyncio.sleep(0.01)
        assert bench.acknowledged == ([seq] if soon else [])
        running.cancel()

    drive(work)


def test_a_table_that_cannot_be_stored_by_a_bug_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(FlakyStore):
        def insert(self, table: Table, rows: pa.Table) -> None:
            if table is PATH:
                raise KeyError("seq")
            super().insert(table, rows)

    async def work() -> None:
        bench = Bench(Broken())
        bench.greet("h1", "s")
        assert await bench.put("h1", "s", path_batch(1, T0))
        assert await bench.put("h1", "s", batch(2, T0 + S))
        with caplog.at_level(logging.ERROR):
            await bench.ingest.flush()
        assert [(each.seq, each.refused) for each in bench.reported] == [(1, True), (2, False)]
        assert bench.reported[0].paths_from_ns is None
        assert sum(bench.store.rows.values()) == 1
        assert bench.ingest.failures == 1

    drive(work)
    assert "rows refused, by a bug: table=path" in caplog.text
    assert "KeyError" in caplog.text, "with a traceback"


def test_a_repetition_is_not_queued() -> None:
    async def work() -> None:
        bench = Bench(FlakyStore())
        bench.greet("h1", "s")
        assert await bench.put("h1", "s", batch(1, T0))
        assert not await bench.put("h1", "s", batch(1, T0))
        await bench.ingest.flush()
        assert bench.greet("h1", "s") == 1
        assert not await bench.put("h1", "s", batch(1, T0))
        assert bench.greet("h1", "another") == 0
        assert not await bench.put("h1", "s", batch(2, T0))
        assert await bench.put("h1", "another", batch(1, T0))

    drive(work)


def test_the_oldest_path_of_a_batch_is_told_once_it_is_stored() -> None:
    async def work() -> None:
        bench = Bench(FlakyStore())
        bench.greet("h1", "s")
        await bench.put("h1", "s", batch(1, T0))
        await bench.put("h1", "s", path_batch(2, T0 - 40 * S, T0 - 90 * S))
        await bench.ingest.flush()
        assert [outcome.paths_from_ns for outcome in bench.reported] == [None, T0 - 90 * S]

    drive(work)


EDGE = (T0 // HOUR_NS + 1) * HOUR_NS


@pytest.mark.parametrize("partitions_done", [0, 1, 2])
def test_a_half_done_insert_is_completed_not_repeated(
    partitions_done: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        bench = Bench(FlakyStore())
        bench.greet("h1", "s")
        await bench.put("h1", "s", batch(1, EDGE - 2, EDGE - 1))
        await bench.put("h1", "s", batch(2, EDGE - 1, EDGE, EDGE + 1))
        await bench.put("h1", "s", batch(3, EDGE + 1))
        bench.store.fail_after_partitions = partitions_done
        await bench.ingest.flush()
        assert set(bench.store.rows.values()) == {1}
        assert len(bench.store.rows) == 6
        assert bench.acknowledged == [1, 2, 3]

    drive(work)
    assert [r.levelno for r in caplog.records] == [logging.ERROR, logging.WARNING]


@pytest.mark.parametrize("partitions_done", [0, 1, 2])
def test_a_successor_stores_the_rest_of_what_a_dead_controller_left(partitions_done: int) -> None:
    async def work() -> None:
        store = FlakyStore()
        first = Bench(store)
        first.greet("h1", "s")
        await first.put("h1", "s", batch(1, EDGE - 1, EDGE))
        store.fail_after_partitions = partitions_done
        with pytest.raises(StoreError):  # it dies here: no retry, no acknowledgement
            first.ingest._insert(_waiting_of(first), None)
        second = Bench(store)
        second.greet("h1", "s")
        await second.put("h1", "s", batch(1, EDGE - 1, EDGE))
        await second.put("h1", "s", batch(2, EDGE + 1))
        await second.ingest.flush()
        assert set(store.rows.values()) == {1}
        assert len(store.rows) == 3
        assert second.acknowledged == [1, 2]

    drive(work)


def _waiting_of(bench: Bench) -> dict[str, ingest_module._Waiting]:
    _, pieces = bench.ingest._open(bench.ingest._take())
    return ingest_module._by_table(pieces)


def test_a_backlog_of_yesterday_is_looked_up_beside_rows_of_now() -> None:
    """Not with all that lies between: any agent could make the store read a week."""
    store = FlakyStore()

    async def work() -> None:
        bench = Bench(store)
        bench.greet("h1", "s", backlog=True)
        for seq, ts_ns in enumerate((T0 - DAY_NS, T0 - DAY_NS + 9, T0 - 5 * HOUR_NS), 1):
            await bench.put("h1", "s", batch(seq, ts_ns))
        bench.greet("h1", "t")
        await bench.put("h1", "t", batch(1, T0, T0 + 7))
        await bench.ingest.flush()

    for _ in range(2):  # by a controller, and by its successor
        drive(work)
    assert set(store.rows.values()) == {1}
    assert len(store.rows) == 5
    assert store.looked_up == 2 * 3
    assert store.seen_ns < 100


def test_only_the_first_batches_after_a_hello_are_looked_up() -> None:
    async def work() -> None:
        bench = Bench(FlakyStore())
        bench.greet("h1", "s")
        for seq in range(1, MAX_UNACKED + 2):
            await bench.put("h1", "s", batch(seq, T0 + seq))
            await bench.ingest.flush()
        assert bench.store.looked_up == MAX_UNACKED
        bench.greet("h1", "s")
        await bench.put("h1", "s", batch(MAX_UNACKED + 2, T0))
        await bench.ingest.flush()
        assert bench.store.looked_up == MAX_UNACKED + 1

    drive(work)


def test_an_agent_with_a_backlog_may_send_twice_as_much_until_it_has_delivered_it() -> None:
    async def work() -> None:
        bench, seq, windows = Bench(FlakyStore()), 0, list[int]()
        bench.greet("h1", "s")
        source = bench.sources["h1", "s"]
        for count in (MAX_UNACKED, 2 * MAX_UNACKED, MAX_WINDOW, 3):
            for _ in range(count):
                seq += 1
                await bench.put("h1", "s", batch(seq, T0 + seq))
            await bench.ingest.flush()
            windows.append(source.window)
        assert windows == [2 * MAX_UNACKED, 4 * MAX_UNACKED, MAX_WINDOW, 0]
        # After a silence all that may be under way is looked up.
        source._last_received_ns = 0
        checked = [source.accept(seq + more, 10 * S) for more in range(1, MAX_WINDOW + 2)]
        assert checked == [True] * MAX_WINDOW + [False]
        # The next connection begins with the usual window.
        source.allow(MAX_WINDOW)
        bench.greet("h1", "s")
        assert source.window == 0

    drive(work)


def test_agents_with_a_backlog_share_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """One host in a hundred may not send more than its hundredth of half of the queue."""

    async def work() -> None:
        bench = Bench(FlakyStore())
        for host in range(100):
            bench.greet(f"h{host}", "s")
        for seq in range(1, MAX_UNACKED + 1):
            await bench.put("h1", "s", batch(seq, T0 + seq))
        size = bench.ingest.queued_bytes // MAX_UNACKED
        monkeypatch.setattr(ingest_module, "MAX_QUEUED_BYTES", 200 * 100 * size + 199)
        await bench.ingest.flush()
        assert bench.sources["h1", "s"].window == 100

    drive(work)


def test_a_stream_goes_on_after_its_backlog_without_look_ups() -> None:
    """An agent that sent more than the usual window delivers that again first, as a backlog."""

    async def work() -> None:
        bench = Bench(FlakyStore())
        bench.greet("h1", "s", backlog=True)
        await bench.put("h1", "s", batch(1, T0))
        await bench.ingest.flush()
        bench.greet("h1", "s")
        for seq in range(2, MAX_UNACKED + 4):
            await bench.put("h1", "s", batch(seq, T0 + seq))
            await bench.ingest.flush()
        assert bench.store.looked_up == 1 + MAX_UNACKED

    drive(work)


def test_a_store_that_refuses_stops_acknowledgement_and_then_streams(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        bench = Bench(FlakyStore())
        bench.store.refuse = True
        bench.greet("h1", "s")
        monkeypatch.setattr(
            ingest_module,
            "MAX_QUEUED_BYTES",
            3 * (len(batch(1, T0).arrow) + ingest_module.ITEM_BYTES),
        )
        running = asyncio.create_task(bench.ingest.run())
        accepted = 0

        async def send() -> None:
            nonlocal accepted
            for seq in range(1, 21):
                await bench.put("h1", "s", batch(seq, T0 + seq))
                accepted = seq

        sending = asyncio.create_task(send())
        await asyncio.sleep(0.3)
        assert accepted == 3
        assert bench.reported == []
        bench.store.refuse = False
        await sending
        while len(bench.reported) < 20:  # noqa: ASYNC110 — the ingest under test has no such event
            await asyncio.sleep(0.01)
        running.cancel()
        assert bench.acknowledged == list(range(1, 21))
        assert len(bench.store.rows) == 20

    drive(work)
    assert [r.levelno for r in caplog.records] == [logging.ERROR, logging.WARNING]
    assert "no space left" in caplog.records[0].getMessage()


def test_a_stream_cut_while_waiting_has_accepted_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        bench = Bench(FlakyStore())
        bench.greet("h1", "s")
        monkeypatch.setattr(ingest_module, "MAX_QUEUED_BYTES", 1)
        await bench.put("h1", "s", batch(1, T0))
        waiting = asyncio.create_task(bench.put("h1", "s", batch(2, T0 + 1)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await bench.ingest.flush()
        bench.greet("h1", "s")
        assert await bench.put("h1", "s", batch(2, T0 + 1))

    drive(work)


def test_what_is_refused_is_acknowledged_and_does_not_touch_the_rest() -> None:
    async def work() -> None:
        bench = Bench(FlakyStore())
        bench.greet("h1", "s")
        bad = Batch(seq=2, table=HEARD.name, rows=9, dropped=0, arrow=b"?")
        for each in (batch(1, T0), bad, batch(3, T0), batch(4, T0 + 2 * HOUR_NS), batch(5, 1)):
            await bench.put("h1", "s", each)
        await bench.ingest.flush()
        assert bench.acknowledged == [1, 2, 3, 4, 5]
        assert [outcome.refused for outcome in bench.reported] == [False, True, False, True, True]
        assert len(bench.store.rows) == 2

    drive(work)


@pytest.mark.parametrize(("waited_s", "silent_s", "times"), [(0, 0, 2), (3, 0, 1), (0, 3, 1)])
def test_what_has_waited_for_long_or_comes_after_a_silence_is_looked_up(
    monkeypatch: pytest.MonkeyPatch, waited_s: int, silent_s: int, times: int
) -> None:
    """A gateway that was paused wakes up with a batch that the next one has stored meanwhile: in
    its queue, or still in its socket."""

    async def work() -> None:
        store = FlakyStore()
        paused, other = Bench(store), Bench(store)
        for bench in (paused, other):
            bench.greet("h1", "s")
            source = bench.sources["h1", "s"]
            source.unchecked = 0  # the stream is under way for long
            source._last_received_ns = time.monotonic_ns() - silent_s * S
        await paused.put("h1", "s", batch(1, T0))
        await other.put("h1", "s", batch(1, T0))
        await other.ingest.flush()
        now = time.monotonic_ns
        monkeypatch.setattr(time, "monotonic_ns", lambda: now() + waited_s * S)
        await paused.ingest.flush()
        assert max(store.rows.values()) == times
        assert paused.acknowledged == [1]

    drive(work)


def test_what_waits_when_its_agent_leaves_is_left_to_the_next_controller() -> None:
    async def work() -> None:
        store = FlakyStore()
        bench = Bench(store)
        bench.greet("h1", "s")
        bench.greet("h2", "s")
        await bench.put("h1", "s", batch(1, T0))
        await bench.ingest.flush()
        for seq in (2, 3):
            await bench.put("h1", "s", batch(seq, T0 + seq))
        await bench.put("h2", "s", batch(1, T0))
        assert bench.ingest.waited_ns(time.monotonic_ns()) > 0
        bench.ingest.leave(bench.sources["h1", "s"])
        await bench.ingest.flush()
        assert {row[:3] for row in store.rows} == {("h1", "s", 1)}
        assert bench.acknowledged == [1, 1]  # of h1 and h2, whose batch is refused
        assert bench.ingest.queued_bytes == 0
        assert bench.ingest.waited_ns(time.monotonic_ns()) == 0
        assert bench.greet("h1", "s") == 1  # it comes back, and sends what was not acknowledged
        assert await bench.put("h1", "s", batch(2, T0 + 2))
        await bench.ingest.flush()
        assert bench.acknowledged == [1, 1, 2]

    drive(work)


def test_an_insert_that_the_store_carries_out_after_its_next_answer_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a server does that hung: it had received it."""
    sleep, late_s = asyncio.sleep, 7.0

    class Hung(FlakyStore):
        late: pa.Table | None = None
        timeouts, answers = 1, False

        def insert(self, table: Table, rows: pa.Table) -> None:
            if not self.inserts:
                self.inserts, self.late = 1, rows
                raise StoreError("timed out")
            super().insert(table, rows)

        def recorded(self, table: Table, first_ns: int, last_ns: int) -> frozenset[StoredPart]:
            if self.inserts and self.timeouts:
                self.timeouts -= 1
                raise StoreError("timed out")
            self.answers = self.inserts > 0
            return super().recorded(table, first_ns, last_ns)

        def carry_out(self) -> None:
            if self.late is not None and self.answers:
                late, self.late = self.late, None
                super().insert(PROBE, late)

    store = Hung()

    async def slept(seconds: float) -> None:
        if seconds == late_s:
            store.carry_out()
        await sleep(0)

    monkeypatch.setattr(ingest_module, "LATE_NS", round(late_s * S))
    monkeypatch.setattr(asyncio, "sleep", slept)

    async def work() -> None:
        bench = Bench(store)
        bench.greet("h1", "s")
        await bench.put("h1", "s", batch(1, T0, T0 + S))
        await bench.ingest.flush()
        store.carry_out()
        assert bench.acknowledged == [1]
        assert set(store.rows.values()) == {1}

    drive(work)

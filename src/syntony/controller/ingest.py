"""Stores batches of many streams in few large inserts, each row exactly once.

Batches of all agents are collected for a moment and inserted together, one insert per table; a
batch is acknowledged when the insert has returned. To avoid storing a row twice:

* a batch number at or below the newest accepted one of its stream is a repetition and is dropped;
* a batch is looked up in the store first if another process may have stored it: the first
  `MAX_UNACKED` batches after every Hello (a predecessor may have died before it acknowledged
  them), all batches of a stream that an earlier process of the agent left (its spool may have gone
  back in time), retries after a failed insert (it may have failed half done), and batches that
  have waited long or come after a silence (the agent may have been at another controller);
* batches that still wait when their agent's stream ends are dropped: they were not acknowledged,
  so the agent sends them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from syntony.controller.batches import (
    Arrival,
    BatchPiece,
    StoredKey,
    joined,
    open_batches,
    unrecorded,
    windows,
)
from syntony.errors import StoreError, WireError
from syntony.model import MS, S
from syntony.store import Store
from syntony.wire.messages import MAX_UNACKED, MAX_WINDOW, UNCHECKED_NS, Batch
from syntony.wire.tables import PATH, PROBE, Table

_log = logging.getLogger(__name__)

GATHER_NS = 500 * MS
"""Time for which batches are collected: even a small embedded insert costs milliseconds."""
LOCAL_GATHER_NS = 100 * MS
"""… while rows of the controller itself wait as well, which were collected before, or rows of
probes that are no backlog: all agents send these at the same time, and localisation waits."""
RETRY_NS = 1 * S
LATE_NS = 2 * S
"""An insert that failed may still be carried out: a server that hung does what it had received,
within this time of its first answer (20,000 rows: 0.5 s on a busy machine)."""
MAX_LOOKUPS = 3
"""Maximum lookups before one insert: if each takes `UNCHECKED_NS`, the last answer is used."""
MAX_QUEUED_BYTES = 64 << 20
"""Beyond this, streams are no longer read: agents keep the rest in their spools."""
ITEM_BYTES = 512
"""Approximate memory of a queued batch in addition to its payload."""
MAX_CYCLE_BYTES = 16 << 20
"""Maximum of one insert cycle; keeps each insert within one block of the engine."""
MAX_LOCAL = 64
"""Maximum waiting tables of the controller's own rows; beyond it the oldest are dropped, and
counted."""


class _Item(NamedTuple):
    batch: Batch
    source: RowStream
    check: bool
    arrived_ns: int
    """CLOCK_MONOTONIC."""
    size: int

    @property
    def key(self) -> StoredKey:
        """Unique for each batch."""
        return self.source.host, self.source.stream, self.batch.seq


class RowStream:
    """A stream of batches from a host, and the number of its last stored batch."""

    def __init__(self, host: str, stream: str, *, backlog: bool) -> None:
        self.host = host
        self.stream = stream
        self.backlog = backlog
        self.accepted = 0
        self.stored = 0
        """Everything up to this number is in the store, or was refused and counted."""
        self.window = 0
        """So many batches its agent may send before any is acknowledged; 0: `MAX_UNACKED`."""
        self.unchecked = self._widest = MAX_UNACKED
        self._last_received_ns = 0

    def accept(self, seq: int, now_ns: int) -> bool:
        """Accept a batch as the newest; returns whether it may be stored. `now_ns` is monotonic."""
        self.accepted = seq
        if now_ns - self._last_received_ns > UNCHECKED_NS:  # in flight for long, or we were paused
            self.unchecked = self._widest
        self._last_received_ns = now_ns
        check = self.backlog or self.unchecked > 0
        self.unchecked -= self.unchecked > 0
        return check

    def allow(self, window: int) -> None:
        """Its agent may send so many; no more than `MAX_UNACKED` are not mentioned to it."""
        self.window = min(window, MAX_WINDOW) if window > MAX_UNACKED else 0
        self._widest = max(self._widest, self.window)


class BatchOutcome(NamedTuple):
    """Result of one batch: stored or refused."""

    host: str
    stream: str
    seq: int
    rows: int
    dropped: int
    newest_ns: int
    """Fleet time of its newest row; 0 if the batch was refused."""
    probes_per_s: float | None
    """Requests per second it reports; None if it is not of `probe_1s`."""
    paths_from_ns: int | None
    """Fleet time of its oldest learnt path; None if it is not of `path_learnt`."""

    @property
    def key(self) -> StoredKey:
        return self.host, self.stream, self.seq

    def as_refused(self) -> BatchOutcome:
        return self._replace(newest_ns=0, probes_per_s=None, paths_from_ns=None)

    @property
    def refused(self) -> bool:
        return self.newest_ns == 0


class Ingest:
    """The only queue into the store.

    Args:
        store: stores the rows.
        fleet_now: fleet time, None while unknown; called from the inserting thread.
        on_stored: called on the event loop with the results of the batches of one cycle, and with
            their rows, after all of these are in the store.
    """

    def __init__(
        self,
        store: Store,
        fleet_now: Callable[[], int | None],
        on_stored: Callable[[list[BatchOutcome], list[BatchPiece]], None],
    ) -> None:
        self._store = store
        self._fleet_now = fleet_now
        self._on_stored = on_stored
        self._items: list[_Item] = []
        self._bytes = 0
        self.local_shed = 0
        """Tables of the controller's own rows that were dropped while the store accepted none."""
        self.inserts = 0
        """Completed insert cycles …"""
        self.insert_ns = 0
        """… and the time spent in them …"""
        self.failures = 0
        """… and the number of failed ones, which are retried."""
        self._local: list[BatchPiece] = []
        self._sources: dict[str, RowStream] = {}
        self._arrived, self._hurry = asyncio.Event(), asyncio.Event()
        self._drained = asyncio.Condition()
        self._failing = False
        self._under_way_ns: int | None = None
        """When the oldest batch of the current cycle arrived."""

    @property
    def queued_bytes(self) -> int:
        """Batches that wait for the store."""
        return self._bytes

    @property
    def failing(self) -> bool:
        """Whether the store refuses rows."""
        return self._failing

    def waited_ns(self, now_ns: int) -> int:
        """For how long the oldest batch that is not stored has waited; `now_ns` is monotonic."""
        oldest_ns = self._under_way_ns
        if oldest_ns is None and self._items:
            oldest_ns = self._items[0].arrived_ns
        return 0 if oldest_ns is None else now_ns - oldest_ns

    def greet(self, host: str, stream: str, *, backlog: bool = False) -> RowStream:
        """A host (re)appears with the stream that it delivers now.

        Args:
            host: the name in its certificate.
            stream: that it delivers now.
            backlog: whether an earlier process of the agent began it. Then only the store knows
                which batches are stored.
        """
        known = self._sources.get(host)
        if known is None or known.stream != stream or backlog or known.backlog:
            known = self._sources[host] = RowStream(host, stream, backlog=backlog)
        known.unchecked, known.window = MAX_UNACKED, 0
        return known

    def leave(self, source: RowStream) -> None:
        """Its agent has disconnected, and sends waiting batches again, perhaps to another
        controller."""
        if self._sources.get(source.host) is not source:
            return
        dropped = [item for item in self._items if item.source is source]
        if dropped:
            self._items = [item for item in self._items if item.source is not source]
            self._bytes -= sum(item.size for item in dropped)
            source.accepted = dropped[0].batch.seq - 1

    async def put(self, source: RowStream, batch: Batch) -> bool:
        """Queue a batch, waiting while the queue is full.

        Returns:
            False for a repetition, or if the host has changed to another stream meanwhile: it is
                not queued.
        """
        if self._bytes >= MAX_QUEUED_BYTES:
            async with self._drained:
                await self._drained.wait_for(lambda: self._bytes < MAX_QUEUED_BYTES)
        # No await from here on: a batch is accepted and queued, or neither.
        if self._sources[source.host] is not source or batch.seq <= source.accepted:
            return False
        now_ns = time.monotonic_ns()
        size = len(batch.arrow) + ITEM_BYTES
        item = _Item(batch, source, source.accept(batch.seq, now_ns), now_ns, size)
        self._items.append(item)
        self._bytes += size
        self._arrived.set()
        if batch.table == PROBE.name and batch.seq - source.stored < MAX_UNACKED // 2:
            self._hurry.set()
        return True

    def put_local(self, piece: BatchPiece) -> None:
        """Queue rows of the controller itself; never waits."""
        self._local.append(piece)
        if len(self._local) > MAX_LOCAL:
            del self._local[0]
            self.local_shed += 1
        self._arrived.set()
        self._hurry.set()

    async def run(self) -> None:
        """Insert until cancelled."""
        while True:
            await self._arrived.wait()
            if self._bytes < MAX_CYCLE_BYTES:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0, GATHER_NS - LOCAL_GATHER_NS) / S):
                        await self._hurry.wait()
                await asyncio.sleep(LOCAL_GATHER_NS / S)
            await self.flush()

    async def flush(self) -> None:
        """One cycle: store everything queued (up to a limit), then report the results."""
        items = self._take()
        self._under_way_ns = items[0].arrived_ns if items else None
        local, self._local = self._local, []
        self._hurry.clear()
        # A backlog that is delivered again while its first delivery waits is in the queue twice.
        single = {item.key: item for item in items}
        outcomes, pieces = await asyncio.to_thread(self._open, single.values())
        waiting, unstorable = _by_table([*pieces, *local]), set[StoredKey]()
        while waiting:
            began_ns = time.monotonic_ns()
            try:
                unstorable |= await asyncio.to_thread(self._insert, waiting, self._under_way_ns)
                self._recovered()
                self.inserts += 1
                self.insert_ns += time.monotonic_ns() - began_ns
            except StoreError as error:
                self.failures += 1
                self._complain(error)
                await self._settle(next(iter(waiting.values())).table)
        for item in items:
            item.source.stored = item.batch.seq
        self._under_way_ns = None
        size = sum(item.size for item in items)
        self._allow_more(items, size)
        async with self._drained:
            self._bytes -= size
            self._drained.notify_all()
        if unstorable:
            outcomes = [each.as_refused() if each.key in unstorable else each for each in outcomes]
            pieces = [each for each in pieces if each.key not in unstorable]
        self._on_stored(outcomes, pieces)

    async def _settle(self, table: Table) -> None:
        """Wait until the store answers, and has carried out what it received before."""
        answers = False
        while not answers:
            await asyncio.sleep(RETRY_NS / S)
            answers = await asyncio.to_thread(self._answers, table)
        await asyncio.sleep(LATE_NS / S)

    def _answers(self, table: Table) -> bool:
        try:
            self._store.recorded(table, 0, 1)
        except StoreError:
            return False
        return True

    def _allow_more(self, items: list[_Item], size: int) -> None:
        """Agents may send twice as many as were stored now, as a backlog is delivered; of half of
        the queue each agent has the same share."""
        if not items:
            return
        share = MAX_QUEUED_BYTES // 2 // len(self._sources) * len(items) // size
        for source, count in Counter(item.source for item in items).items():
            source.allow(min(2 * count, share))

    def _take(self) -> list[_Item]:
        taken = size = 0
        for item in self._items:
            size += item.size
            if taken and size > MAX_CYCLE_BYTES:
                break
            taken += 1
        items, self._items = self._items[:taken], self._items[taken:]
        if not self._items:
            self._arrived.clear()
        return items

    def _open(self, items: Collection[_Item]) -> tuple[list[BatchOutcome], list[BatchPiece]]:
        outcomes, pieces = [], []
        opened = open_batches(map(_arrival, items), self._fleet_now())
        for item, piece in zip(items, opened, strict=True):
            if isinstance(piece, WireError):
                _log.warning(
                    "batch refused host=%s seq=%d reason=%s",
                    item.source.host,
                    item.batch.seq,
                    piece,
                )
                outcomes.append(_outcome(item, None))
            else:
                pieces.append(piece)
                outcomes.append(_outcome(item, piece))
        return outcomes, pieces

    def _insert(self, waiting: dict[str, _Waiting], arrived_ns: int | None) -> set[StoredKey]:
        """Insert table by table; inserted rows leave `waiting`, so a retry continues with the rest.

        Args:
            arrived_ns: when the oldest batch arrived; None: there are only rows of this controller.

        Returns:
            Batches of tables that cannot be stored because of a bug: they are refused, so that
                other batches are not affected.
        """
        unstorable = set[StoredKey]()
        for name, work in list(waiting.items()):
            try:
                self._insert_table(work, arrived_ns)
            except StoreError:
                raise
            except Exception:  # noqa: BLE001 - one table's bug must not end ingest
                _log.exception("rows refused, by a bug: table=%s", name)
                self.failures += 1
                unstorable.update(piece.key for piece in work.pieces)
            del waiting[name]
        return unstorable

    def _insert_table(self, work: _Waiting, arrived_ns: int | None) -> None:
        pieces, known_ns = work.pieces, arrived_ns
        suspects = [piece for piece in pieces if piece.check or work.tried]
        work.tried = True
        for _ in range(MAX_LOOKUPS):
            if suspects:
                known_ns = time.monotonic_ns()
                pieces = self._new_of(work.table, pieces, suspects)
            rows = joined(pieces) if pieces else None
            if known_ns is None or time.monotonic_ns() - known_ns <= UNCHECKED_NS:
                break
            suspects = pieces
        if rows is not None:
            self._store.insert(work.table, rows)

    def _new_of(
        self, table: Table, pieces: list[BatchPiece], suspects: list[BatchPiece]
    ) -> list[BatchPiece]:
        recorded, *more = (
            self._store.recorded(table, first, last + 1) for first, last in windows(suspects)
        )
        if more:
            recorded = recorded.union(*more)
        return [new for piece in pieces if (new := unrecorded(piece, recorded)) is not None]

    def _complain(self, error: StoreError) -> None:
        if not self._failing:
            self._failing = True
            _log.error("store refuses rows, agents keep them meanwhile reason=%s", error)

    def _recovered(self) -> None:
        if self._failing:
            self._failing = False
            _log.warning(
                "store accepts rows again queued=%d own_tables_shed=%d",
                len(self._items),
                self.local_shed,
            )


class _Waiting:
    """Rows of one table that wait for one insert."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.pieces: list[BatchPiece] = []
        self.tried = False


def _arrival(item: _Item) -> Arrival:
    return Arrival(item.batch, item.source.host, item.source.stream, item.check)


def _outcome(item: _Item, piece: BatchPiece | None) -> BatchOutcome:
    batch = item.batch
    return BatchOutcome(
        item.source.host,
        item.source.stream,
        batch.seq,
        batch.rows,
        batch.dropped,
        newest_ns=piece.last_ns if piece else 0,
        probes_per_s=piece.probes_per_s if piece else None,
        paths_from_ns=piece.first_ns if piece and piece.table is PATH else None,
    )


def _by_table(pieces: Iterable[BatchPiece]) -> dict[str, _Waiting]:
    waiting: dict[str, _Waiting] = {}
    for piece in pieces:
        waiting.setdefault(piece.table.name, _Waiting(piece.table)).pieces.append(piece)
    return waiting

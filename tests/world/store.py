"""A telemetry store: it knows which batches it holds, can fail before, after and amid an insert."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, cast

from tests.world.loop import NODE, Loop, WaitsError
from tests.world.segments import LEAST_NS, MOST_NS

from syntony.errors import StoreError
from syntony.model import MS, S
from syntony.store import StoredPart
from syntony.store.schema import partition_ns
from syntony.wire.tables import JOB_DELAY, JOB_FLOW, PATH_EVENTS, Table

if TYPE_CHECKING:
    import pyarrow as pa


_MAPPINGS = {"modules", "by", "classes", "recording", "takeovers"}
_NONE = frozenset[StoredPart]()
TIMEOUT_NS = 30 * S
"""Of a request to a server that does not answer: `syntony.store.clickhouse`."""


class Nothing:
    """What controllers ask of links, paths, jobs: there are no such rows.

    Args:
        check: called before each answer; raises `StoreError` while the store is away.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(*_: object, **__: object) -> Any:
            self._check()
            return {} if name in _MAPPINGS else ()

        return ask


class WorldStore:
    """One cluster, used by every controller.

    Args:
        wrong: called with what is inserted a second time, or cannot be.
    """

    def __init__(self, loop: Loop, chance: Random, wrong: Callable[[str], None]) -> None:
        self._loop = loop
        self._chance = chance
        self._wrong = wrong
        self._recorded: dict[tuple[str, int], set[StoredPart]] = {}
        """By table and partition."""
        self.batches: set[tuple[str, str, int]] = set()
        """(host, stream, number)."""
        self.path_events: list[tuple[int, str, str]] = []
        """(fleet time, what was ordered, evidence), of operators."""
        self.flows: dict[tuple[int, str, int], tuple[str, int]] = {}
        """(fleet time, NIC, port) of jobs' flows: the batch that has the row."""
        self.delays: set[tuple[int, str]] = set()
        """(fleet time, NIC) of measured segments of jobs."""
        self.down = False
        self.silent = False
        """It is down, and nobody refuses connections: every request waits until it times out."""
        self.hangs_until_ns = 0
        """It receives what is sent, and answers then. What was given up by then it does as well."""
        self.full = False
        """Or read-only: it takes no rows, and answers."""
        self.lacks: set[str] = set()
        """Names of tables that it does not have."""
        self.unreachable: set[str] = set()
        """Processes that cannot reach it."""
        self.fails = 0.0
        """Probability that an insert fails, before or after it is done."""
        self.slow_ns = 0
        self.links = self.fabric = self.latency = self.incidents = self.jobs = self.minutes = (
            Nothing(self._answers)
        )

    def insert(self, table: Table, rows: pa.Table) -> None:
        """All rows of a partition, or none."""
        self._hang(partial(self._keep, table, rows, 1.0))
        self._spend(2 * MS)
        away = self.full or self._away(table)
        fails = away or self._chance.random() < self.fails
        done = self._chance.random() if fails and not away else 1.0 if not fails else 0.0
        self._keep(table, rows, done)
        if fails:
            raise StoreError("the store does not answer")

    def _keep(self, table: Table, rows: pa.Table, done: float) -> None:
        """So much of them, by partitions."""
        hosts, streams, numbers = (_values(rows, name) for name in ("host", "stream", "seq"))
        parts = (rows.column("ts_ns").to_numpy() // partition_ns(table)).tolist()
        found = dict.fromkeys(map(StoredPart, hosts, streams, numbers, parts))
        wanted = sorted({each.partition for each in found})
        kept = set(wanted[: round(done * len(wanted))])
        for each in found:
            if each.partition in kept:
                known = self._recorded.setdefault((table.name, each.partition), set())
                if each in known:
                    self._wrong(f"{table.name}: {each} is stored twice")
                known.add(each)
                self.batches.add((each.host, each.stream, each.seq))
        if table is PATH_EVENTS and kept:
            said = (rows.column(name).to_pylist() for name in ("ts_ns", "action", "evidence"))
            self.path_events += zip(*said, strict=True)
        if table is JOB_FLOW:
            self._note_flows(rows, kept)
        if table is JOB_DELAY:
            self._note_delays(rows, kept)

    def _note_flows(self, rows: pa.Table, kept: set[int]) -> None:
        """A second of a flow is one row: all that people see of it are sums."""
        width = partition_ns(JOB_FLOW)
        names = ("ts_ns", "src", "sport", "stream", "seq")
        for ts_ns, src, port, *batch in zip(*(_values(rows, name) for name in names), strict=True):
            if ts_ns // width in kept:
                stored = self.flows.setdefault((ts_ns, src, port), tuple(batch))
                if stored != tuple(batch):
                    self._wrong(f"flow {src}:{port} has two rows of {ts_ns}: {stored}, {batch}")

    def _note_delays(self, rows: pa.Table, kept: set[int]) -> None:
        """They are those of the segments, but for what clocks may be off."""
        width = partition_ns(JOB_DELAY)
        names = ("ts_ns", "src", "count", "owd_min_ns", "owd_max_ns", "bound_ns")
        for ts_ns, src, count, least, most, bound in zip(
            *(_values(rows, name) for name in names), strict=True
        ):
            if ts_ns // width in kept and count:
                self.delays.add((ts_ns, src))
                if least < LEAST_NS - bound or most > MOST_NS + bound:
                    self._wrong(f"{src} waits {least} to {most} ns, {bound} is the bound")

    def _away(self, table: Table) -> bool:
        return self._unreachable() or table.name in self.lacks

    def _unreachable(self) -> bool:
        return self.down or self._cut_off()

    def _cut_off(self) -> bool:
        node = NODE.get()
        return node is not None and node.name in self.unreachable

    def _hang(self, late: Callable[[], None] | None = None) -> None:
        """Wait until it goes on, which is too late for some: it does `late` then.

        Raises:
            StoreError: this request was given up.
        """
        until_ns = self.hangs_until_ns
        if until_ns <= self._loop.call_ns:
            return
        if until_ns <= self._loop.call_ns + TIMEOUT_NS:
            raise WaitsError(until_ns)
        if late is not None:
            at_ns = until_ns + self._chance.randrange(S // 2)
            self._loop.call_at(at_ns / S, late, context=Context())
        self._loop.spend(TIMEOUT_NS)
        raise StoreError("the store does not answer")

    def _spend(self, usual_ns: int) -> None:
        silent = (self.down and self.silent) or self._cut_off()
        self._loop.spend(TIMEOUT_NS if silent else self.slow_ns or usual_ns)

    def _answers(self) -> None:
        self._hang()
        self._spend(MS)
        if self._unreachable():
            raise StoreError("the store does not answer")

    def recorded(self, table: Table, first_ns: int, last_ns: int) -> frozenset[StoredPart]:
        """Which batches have rows in the window."""
        self._hang()
        self._spend(MS)
        if self._away(table) or self._chance.random() < self.fails:
            raise StoreError("the store does not answer")
        width = partition_ns(table)
        parts = range(first_ns // width, (last_ns - 1) // width + 1)
        found = [self._recorded.get((table.name, part), set()) for part in parts]
        # One partition is not copied: it is read before more is inserted.
        return cast("frozenset[StoredPart]", found[0]) if len(found) == 1 else _NONE.union(*found)

    def latest_ns(self, *_: object) -> int:
        self._answers()
        return 0

    def matrix(self, *_: object, **__: object) -> tuple[Any, ...]:
        self._answers()
        return ()

    def pair_latencies(self, *_: int) -> dict[str, Any]:
        self._answers()
        return {}

    def expire(self, now_ns: int, detail_ns: int) -> int:
        self._answers()
        return 0

    def close(self) -> None:
        pass


def _values(rows: pa.Table, name: str) -> list[Any]:
    """A column without nulls. `to_pylist` makes an object of Arrow for each value."""
    found: list[Any] = rows.column(name).to_numpy().tolist()
    return found

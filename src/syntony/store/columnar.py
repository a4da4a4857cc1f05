"""The store, on any ClickHouse engine: inserts of rows, and typed answers to queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from syntony.errors import StoreError, UsageError
from syntony.model import DAY_NS, S
from syntony.model.sla import Latency
from syntony.store import queries
from syntony.store.engine import Engine, Row, Scalar, integer, newest_ns, real, record
from syntony.store.fabric import FabricRows
from syntony.store.incidents import IncidentRows
from syntony.store.jobs import JobQueries
from syntony.store.latency import LatencyRows
from syntony.store.links import LinkRows
from syntony.store.loss import BrokenSecond, Correction, correct_directions, correct_seconds, summed
from syntony.store.migrations import migrate
from syntony.store.minutes import MinuteRows, spans
from syntony.store.queries import MAX_POINTS, MINUTE_NS, WindowPart
from syntony.store.schema import SHORT_RETENTION_DAYS, partition_ns, stored_columns
from syntony.wire.clocks import ClockSample
from syntony.wire.failover import PathEventRow
from syntony.wire.probes import MatrixCell, Plane, SeriesPoint
from syntony.wire.tables import (
    HEARD,
    PROBE,
    TABLES,
    VERBS,
    VERBS_HEARD,
    Table,
)

if TYPE_CHECKING:
    import pyarrow as pa

_NONE = Correction()
_TABLES = {Plane.UDP: (PROBE, HEARD), Plane.VERBS: (VERBS, VERBS_HEARD)}


class StoredPart(NamedTuple):
    """A stored part of a batch: all its rows within one partition."""

    host: str
    stream: str
    seq: int
    partition: int


class Store:
    """Inserts rows and answers queries. Thread-safe. Every method raises `StoreError` if the
    engine does. Opening migrates the schema to the newest version.

    Windows are half-open intervals ``[first_ns, last_ns)`` of fleet time.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.links = LinkRows(engine)
        self.fabric = FabricRows(engine)
        self.latency = LatencyRows(engine)
        self.incidents = IncidentRows(engine)
        self.jobs = JobQueries(engine)
        self.minutes = MinuteRows(engine)
        migrate(engine)

    def insert(self, table: Table, rows: pa.Table) -> None:
        """Add rows, with the columns of `schema.ORIGIN` followed by the table's.

        Rows of one call in one partition become visible together or not at all.
        """
        columns = stored_columns(table)
        missing = {column.name for column in columns} - set(rows.column_names)
        if missing:
            raise StoreError(f"{table.name}: rows lack {', '.join(sorted(missing))}")
        if rows.num_rows:
            wanted = rows.select([column.name for column in columns])
            self._engine.insert(table.name, columns, wanted)
            if table in {PROBE, HEARD}:
                times = wanted.column("ts_ns").to_numpy()
                self.minutes.rows_stored(int(times.min()), int(times.max()))

    def recorded(self, table: Table, first_ns: int, last_ns: int) -> frozenset[StoredPart]:
        """Batches with rows in the window."""
        rows = self._engine.select(queries.recorded(table, first_ns, last_ns))
        return frozenset(
            StoredPart(str(host), str(stream), integer(seq), integer(part))
            for host, stream, seq, part in rows
        )

    def matrix(
        self, first_ns: int, last_ns: int, over: Plane = Plane.UDP
    ) -> tuple[MatrixCell, ...]:
        """Each direction of each probed pair of NICs, sorted."""
        tables = _TABLES[over]
        broken = self._broken((WindowPart(first_ns, last_ns),), tables=tables)
        corrections = correct_directions(broken)
        rows = self._engine.select_since(
            tables[0], first_ns, queries.directions(first_ns, last_ns, tables[0])
        )
        cells = {(str(row[0]), str(row[1])): row for row in rows}
        found = {
            direction: _cell(row, corrections.pop(direction, _NONE))
            for direction, row in cells.items()
        }
        for (src, dst), correction in corrections.items():
            if correction.lost:
                # Not one reply came back: the way back may have no rows of its own.
                paths = found[dst, src].paths
                found[src, dst] = _unanswered_cell(src, dst, paths, correction.lost)
        return tuple(
            msgspec.structs.replace(found[direction], over=over) for direction in sorted(found)
        )

    def pair_latencies(self, first_ns: int, last_ns: int) -> dict[str, Latency]:
        """``a->b`` → latency of each direction of each probed pair of NICs, with probes sent and
        lost as in `matrix`."""
        corrections = correct_directions(self._broken((WindowPart(first_ns, last_ns),)))
        found = {}
        for direction, (known, doubtful) in self.latency.pairs(first_ns, last_ns).items():
            correction = corrections.pop(direction, _NONE)
            accounted = known.measured + known.lost
            found["->".join(direction)] = msgspec.structs.replace(
                known,
                sent=_sent(known.sent, doubtful, accounted, correction),
                lost=known.lost + correction.lost,
            )
        for direction, correction in corrections.items():
            if lost := correction.lost:
                found["->".join(direction)] = Latency(sent=lost, lost=lost, measured=0)
        return found

    def series(
        self, first_ns: int, last_ns: int, src: str = "", dst: str = "", step: int = 1
    ) -> tuple[SeriesPoint, ...]:
        """One point every `step` seconds, for one direction, or for all if `src` or `dst` is empty.
        Steps of whole minutes are read from the table of minutes if it has them. Raises
        `UsageError`: more than `MAX_POINTS` points."""
        of_minutes = step * S % MINUTE_NS == 0
        parts = (
            self.minutes.spans(first_ns, last_ns) if of_minutes else spans(first_ns, last_ns, ())
        )
        # A point of one minute is that minute's row: no percentiles of percentiles to be found.
        whole = [part for part in parts if part.minutes and step * S == MINUTE_NS]
        rest = [part for part in parts if part not in whole]
        rows, broken = self._minutes(whole, src, dst)
        if not of_minutes:
            broken = self._broken(rest, src, dst)
            rows = self._engine.select(queries.seconds(first_ns, last_ns, src, dst, step))
        elif rest:
            both = self._engine.select(queries.steps(rest, src, dst, step))
            rows += [row[:-1] for row in both if _matches(row, src, dst)]
            if any(row[-1] for row in both):
                broken += self._broken(rest, src, dst)
        corrections = summed(correct_seconds(broken), step)
        if len(rows) > MAX_POINTS or len(broken) > MAX_POINTS:
            raise UsageError(
                f"more than {MAX_POINTS} points of history; ask for a shorter window, longer "
                "steps or one pair"
            )
        seconds = {(str(row[0]), str(row[1]), integer(row[2])): row for row in rows}
        found = {key: _point(row, corrections.pop(key, _NONE)) for key, row in seconds.items()}
        for key, correction in corrections.items():
            requested = src in {"", key[0]} and dst in {"", key[1]}
            if correction.lost and requested:
                found[key] = _unanswered_point(*key, correction.lost)
        return tuple(found[key] for key in sorted(found))

    def clock_history(
        self, first_ns: int, last_ns: int, node: str = "", step_ns: int = 1
    ) -> tuple[ClockSample, ...]:
        """Past solutions of one clock or of all, at most one for each clock and `step_ns`."""
        rows = self._engine.select(queries.clock_history(first_ns, last_ns, node, step_ns))
        if len(rows) > MAX_POINTS:
            raise UsageError(f"more than {MAX_POINTS} samples; ask for longer steps or one clock")
        return tuple(_clock_sample(row) for row in rows)

    def path_events(
        self, first_ns: int, last_ns: int, *, job: str = "", host: str = "", limit: int = 1_000
    ) -> tuple[PathEventRow, ...]:
        """The newest `limit` actions on paths, oldest first."""
        rows = self._engine.select(queries.path_events(first_ns, last_ns, job, host, limit))
        return tuple(record(PathEventRow, row) for row in reversed(rows))

    def latest_ns(self, over: Plane = Plane.UDP) -> int:
        """Fleet time of the newest row of probes; 0: none is stored."""
        return newest_ns(self._engine, _TABLES[over][0])

    def rows(
        self, table: Table, first_ns: int, last_ns: int, columns: Sequence[str] = ()
    ) -> dict[str, list[Scalar]]:
        """All rows of a table in the window, by column (`columns`; empty: all), oldest first; for
        replays."""
        names = list(columns) or [column.name for column in table.columns]
        found = self._engine.select_since(
            table, first_ns, queries.rows(table, names, first_ns, last_ns)
        )
        values = zip(*found, strict=True) if found else [()] * len(names)
        return {
            name: [cast("Scalar", value) for value in column]
            for name, column in zip(names, values, strict=True)
        }

    def first_ns(self, table: Table, first_ns: int, last_ns: int, node: str = "") -> int:
        """The oldest instant of a table's rows in the window, of one clock's if it is named; 0: no
        rows."""
        return integer(self._engine.select(queries.oldest(table, first_ns, last_ns, node))[0][0])

    def count_rows(self) -> int:
        return integer(self._engine.select(queries.count_rows(self._engine.layout))[0][0])

    def expire(self, now_ns: int, detail_ns: int | None = None) -> int:
        """Drop partitions older than their table's retention; returns how many.

        Args:
            now_ns: fleet time.
            detail_ns: shorter retention of tables with a row for each second, if any.
        """
        dropped = 0
        for table in TABLES.values():
            kept_ns = table.retention_days * DAY_NS
            if detail_ns is not None and table.retention_days <= SHORT_RETENTION_DAYS:
                kept_ns = min(kept_ns, detail_ns)
            keep = (now_ns - kept_ns) // partition_ns(table)
            for partition in self._partitions(table):
                if partition < keep:
                    for each in self._engine.layout.drop_partition(table.name, partition):
                        self._engine.execute(each)
                    dropped += 1
        return dropped + self.minutes.expire(now_ns)

    def close(self) -> None:
        self._engine.close()

    def _partitions(self, table: Table) -> list[int]:
        return [
            integer(row[0])
            for row in self._engine.select(queries.partitions(table, self._engine.layout))
        ]

    def _minutes(
        self, parts: Sequence[WindowPart], src: str, dst: str
    ) -> tuple[list[Row], list[BrokenSecond]]:
        """One point for each minute, and the failed round trips of both directions."""
        rows: list[Row] = []
        broken = []
        for row in self._engine.select(queries.minutes(parts, src, dst)) if parts else ():
            *point, reports, there, back = row
            if there or back:
                lost = integer(there)
                second = str(row[0]), str(row[1]), integer(row[2])
                broken.append(BrokenSecond(*second, lost, 0, lost + integer(back), 0))
            if reports and _matches(row, src, dst):
                rows.append(point)
        return rows, broken

    def _broken(
        self,
        parts: Sequence[WindowPart],
        src: str = "",
        dst: str = "",
        tables: tuple[Table, Table] = (PROBE, HEARD),
    ) -> list[BrokenSecond]:
        if not parts:
            return []
        rows = self._engine.select_since(
            tables[0], parts[0].first_ns, queries.unresolved(parts, src, dst, tables)
        )
        return [
            BrokenSecond(str(row[0]), str(row[1]), *(integer(value) for value in row[2:]))
            for row in rows
        ]


def _cell(row: Row, correction: Correction) -> MatrixCell:
    src, dst, paths, sent, doubtful, lost, count, least, quantiles, clk_err, stalled = row
    arrived = integer(count)
    p50, p99 = cast("list[Scalar]", quantiles)
    return MatrixCell(
        src=str(src),
        dst=str(dst),
        paths=integer(paths),
        sent=_sent(integer(sent), integer(doubtful), arrived + integer(lost), correction),
        lost=integer(lost) + correction.lost,
        owd_min_ns=integer(least) if arrived else None,
        owd_p50_ns=integer(p50) if arrived else None,
        owd_p99_ns=integer(p99) if arrived else None,
        # An error that is not finite has no place in JSON and arrives as null: not known.
        clk_err_ns=round(real(clk_err)) if arrived and clk_err is not None else None,
        dropped=integer(stalled),
    )


def _unanswered_cell(src: str, dst: str, paths: int, lost: int) -> MatrixCell:
    return MatrixCell(
        src=src,
        dst=dst,
        paths=paths,
        sent=lost,
        lost=lost,
        owd_min_ns=None,
        owd_p50_ns=None,
        owd_p99_ns=None,
        clk_err_ns=None,
        dropped=0,
    )


def _unanswered_point(src: str, dst: str, second: int, lost: int) -> SeriesPoint:
    return SeriesPoint(
        ts_ns=second * S,
        src=src,
        dst=dst,
        sent=lost,
        lost=lost,
        owd_min_ns=None,
        owd_p50_ns=None,
        owd_p99_ns=None,
    )


def _matches(row: Row, src: str, dst: str) -> bool:
    return src in {"", row[0]} and dst in {"", row[1]}


def _point(row: Row, correction: Correction) -> SeriesPoint:
    src, dst, second, sent, doubtful, lost, count, least, quantiles = row
    arrived = integer(count)
    p50, p99 = cast("list[Scalar]", quantiles)
    return SeriesPoint(
        ts_ns=integer(second) * S,
        src=str(src),
        dst=str(dst),
        sent=_sent(integer(sent), integer(doubtful), arrived + integer(lost), correction),
        lost=integer(lost) + correction.lost,
        owd_min_ns=integer(least) if arrived else None,
        owd_p50_ns=integer(p50) if arrived else None,
        owd_p99_ns=integer(p99) if arrived else None,
    )


def _sent(counted: int, doubtful: int, accounted: int, correction: Correction) -> int:
    """Probes sent in one direction: corrected, but at least those accounted for.

    Args:
        counted: by the probers.
        doubtful: of these, replies to requests that may not have arrived.
        accounted: arrived, or known to be lost.
        correction: from the other end's counts.
    """
    return max(counted - min(doubtful, correction.unsent), accounted + correction.lost)


def _clock_sample(row: Row) -> ClockSample:
    node, ts_ns, ref_ns, offset_ns, drift_ppb, sigma_ns, drift_sigma_ppb, bound_ns, rank, why = row
    return ClockSample(
        ts_ns=integer(ts_ns),
        node=str(node),
        ref_ns=integer(ref_ns),
        offset_ns=real(offset_ns),
        drift_ppb=real(drift_ppb),
        sigma_ns=real(sigma_ns),
        # What is not finite arrives as null.
        drift_sigma_ppb=None if drift_sigma_ppb is None else real(drift_sigma_ppb),
        bound_ns=None if bound_ns is None else real(bound_ns),
        state=queries.STATES[integer(rank)],
        reason=str(why),
    )

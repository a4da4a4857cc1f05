"""The store over any ClickHouse engine: our SQL, our types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from syntony.errors import StoreError, UsageError
from syntony.model import ClockState, S, Timeline
from syntony.model.findings import Finding
from syntony.store import queries
from syntony.store.engine import Engine, Row, Scalar, Value
from syntony.store.interface import MAX_POINTS, ClockPoint, FlowSecond, PathRow, Recorded
from syntony.store.links import LinkRows
from syntony.store.loss import BrokenSecond, Correction, correct_directions, correct_seconds
from syntony.store.schema import (
    DAY_NS,
    capabilities,
    create_table,
    partition_ns,
    stored_columns,
)
from syntony.wire.messages import MatrixCell, PathEventRow, SeriesPoint, Switch
from syntony.wire.tables import PATH_EVENTS, PROBE, TABLES, Table

if TYPE_CHECKING:
    import pyarrow as pa

_NONE = Correction()


class ColumnarStore:
    """Implements `Store`. Opening it makes the tables that are not there yet."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._links = LinkRows(engine)
        can = capabilities(str(engine.select("SELECT version()")[0][0]))
        for table in TABLES.values():
            engine.execute(create_table(table, can))

    @property
    def links(self) -> LinkRows:
        return self._links

    def insert(self, table: Table, rows: pa.Table) -> None:
        columns = stored_columns(table)
        missing = {column.name for column in columns} - set(rows.column_names)
        if missing:
            raise StoreError(f"{table.name}: rows lack {', '.join(sorted(missing))}")
        if rows.num_rows:
            wanted = rows.select([column.name for column in columns])
            self._engine.insert(table.name, columns, wanted)

    def recorded(self, table: Table, first_ns: int, last_ns: int) -> frozenset[Recorded]:
        rows = self._engine.select(queries.recorded(table, first_ns, last_ns))
        return frozenset(
            Recorded(str(host), str(stream), _int(seq), _int(part))
            for host, stream, seq, part in rows
        )

    def matrix(self, first_ns: int, last_ns: int) -> tuple[MatrixCell, ...]:
        corrections = correct_directions(self._broken(first_ns, last_ns))
        rows = self._engine.select(queries.directions(first_ns, last_ns))
        cells = {(str(row[0]), str(row[1])): row for row in rows}
        found = {way: _cell(row, corrections.pop(way, _NONE)) for way, row in cells.items()}
        for (src, dst), correction in corrections.items():
            if correction.lost:
                # Not one reply came back: the way back may have no rows of its own.
                paths = found[dst, src].paths
                found[src, dst] = _dark_cell(src, dst, paths, correction.lost)
        return tuple(found[way] for way in sorted(found))

    def series(
        self, first_ns: int, last_ns: int, src: str = "", dst: str = ""
    ) -> tuple[SeriesPoint, ...]:
        broken = list(self._broken(first_ns, last_ns, src, dst))
        if src or dst:
            # The way back of a probe is known from the other end's probing: take that too.
            broken += self._broken(first_ns, last_ns, dst, src)
        corrections = correct_seconds(broken)
        rows = self._engine.select(queries.seconds(first_ns, last_ns, src, dst))
        if len(rows) > MAX_POINTS:
            raise UsageError(
                f"more than {MAX_POINTS} seconds of history; ask for a shorter window or one pair"
            )
        seconds = {(str(row[0]), str(row[1]), _int(row[2])): row for row in rows}
        found = {key: _point(row, corrections.pop(key, _NONE)) for key, row in seconds.items()}
        for key, correction in corrections.items():
            asked = src in {"", key[0]} and dst in {"", key[1]}
            if correction.lost and asked:
                found[key] = _dark_point(*key, correction.lost)
        return tuple(found[key] for key in sorted(found))

    def flow_seconds(self, first_ns: int, last_ns: int) -> tuple[FlowSecond, ...]:
        rows = self._engine.select(queries.flow_seconds(first_ns, last_ns))
        return tuple(
            FlowSecond(
                str(row[0]),
                str(row[1]),
                str(row[2]),
                _int(row[3]),
                _int(row[4]),
                _int(row[5]),
                _int(row[6]),
                _int(row[7]),
                _int(row[8]),
                _int(row[9]),
                # An error that is not finite arrives as null: not known.
                _float(0.0 if row[10] is None else row[10]),
            )
            for row in rows
        )

    def heard(self, first_ns: int, last_ns: int) -> dict[tuple[str, str, int], int]:
        rows = self._engine.select(queries.heard(first_ns, last_ns))
        return {(str(src), str(dst), _int(second)): _int(n) for src, dst, second, n in rows}

    def learnt_paths(self, first_ns: int, last_ns: int) -> tuple[PathRow, ...]:
        rows = self._engine.select(queries.learnt_paths(first_ns, last_ns))
        return tuple(
            PathRow(_int(ts_ns), str(src), str(dst), _int(sport), _int(dport), str(hops))
            for ts_ns, src, dst, sport, dport, hops in rows
        )

    def findings(self, first_ns: int, last_ns: int) -> tuple[tuple[int, Finding], ...]:
        rows = self._engine.select(queries.findings(first_ns, last_ns))
        return tuple((_int(row[0]), _finding(row)) for row in rows)

    def clock_history(self, first_ns: int, last_ns: int, node: str = "") -> tuple[ClockPoint, ...]:
        rows = self._engine.select(queries.clock_history(first_ns, last_ns, node))
        return tuple(_clock_point(row) for row in rows)

    def path_events(
        self, first_ns: int, last_ns: int, *, job: str = "", host: str = "", limit: int = 1_000
    ) -> tuple[PathEventRow, ...]:
        rows = self._engine.select(queries.path_events(first_ns, last_ns, job, host, limit))
        return tuple(_path_event(row) for row in reversed(rows))

    def last_switch(self) -> Switch | None:
        rows = self._engine.select(queries.last_switch())
        if not rows:
            return None
        ts_ns, evidence, action = rows[0]
        by, _, _ = str(evidence).partition(":")
        return Switch(stopped=action == "stop", at_ns=_int(ts_ns), by=by)

    def latest_ns(self) -> int:
        present = self._partitions(PROBE)
        if not present:
            return 0
        return _int(self._engine.select(queries.newest(PROBE, present[-1]))[0][0])

    def count_rows(self) -> int:
        return _int(self._engine.select(queries.count_rows())[0][0])

    def expire(self, now_ns: int) -> int:
        dropped = 0
        for table in TABLES.values():
            keep = (now_ns - table.retention_days * DAY_NS) // partition_ns(table)
            for partition in self._partitions(table):
                if partition < keep:
                    self._engine.execute(f"ALTER TABLE {table.name} DROP PARTITION {partition}")
                    dropped += 1
        return dropped

    def close(self) -> None:
        self._engine.close()

    def _partitions(self, table: Table) -> list[int]:
        return [_int(row[0]) for row in self._engine.select(queries.partitions(table))]

    def _broken(
        self, first_ns: int, last_ns: int, src: str = "", dst: str = ""
    ) -> Sequence[BrokenSecond]:
        rows = self._engine.select(queries.unresolved(first_ns, last_ns, src, dst))
        return [
            BrokenSecond(str(row[0]), str(row[1]), *(_int(value) for value in row[2:]))
            for row in rows
        ]


def _path_event(row: Row) -> PathEventRow:
    names = [column.name for column in PATH_EVENTS.columns]
    return msgspec.convert(dict(zip(names, row, strict=True)), PathEventRow, strict=False)


def _cell(row: Row, correction: Correction) -> MatrixCell:
    src, dst, paths, sent, doubtful, lost, count, least, quantiles, clk_err, stalled = row
    arrived = _int(count)
    p50, p99 = cast("list[Scalar]", quantiles)
    return MatrixCell(
        src=str(src),
        dst=str(dst),
        paths=_int(paths),
        sent=_sent(_int(sent), _int(doubtful), arrived + _int(lost), correction),
        lost=_int(lost) + correction.lost,
        owd_min_ns=_int(least) if arrived else None,
        owd_p50_ns=_int(p50) if arrived else None,
        owd_p99_ns=_int(p99) if arrived else None,
        # An error that is not finite has no place in JSON and arrives as null: not known.
        clk_err_ns=round(_float(clk_err)) if arrived and clk_err is not None else None,
        dropped=_int(stalled),
    )


def _dark_cell(src: str, dst: str, paths: int, lost: int) -> MatrixCell:
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


def _dark_point(src: str, dst: str, second: int, lost: int) -> SeriesPoint:
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


def _point(row: Row, correction: Correction) -> SeriesPoint:
    src, dst, second, sent, doubtful, lost, count, least, quantiles = row
    arrived = _int(count)
    p50, p99 = cast("list[Scalar]", quantiles)
    return SeriesPoint(
        ts_ns=_int(second) * S,
        src=str(src),
        dst=str(dst),
        sent=_sent(_int(sent), _int(doubtful), arrived + _int(lost), correction),
        lost=_int(lost) + correction.lost,
        owd_min_ns=_int(least) if arrived else None,
        owd_p50_ns=_int(p50) if arrived else None,
        owd_p99_ns=_int(p99) if arrived else None,
    )


def _sent(counted: int, doubtful: int, accounted: int, correction: Correction) -> int:
    """Sent in one direction: less what cannot have been, never fewer than are accounted for.

    Args:
        counted: as the probers say.
        doubtful: of these, replies to requests that may not have arrived.
        accounted: arrived, or known to be lost.
        correction: what the other end's counts say.
    """
    return max(counted - min(doubtful, correction.unsent), accounted + correction.lost)


def _finding(row: Row) -> Finding:
    _, component, kind, fault, loss, delay_ns, confidence, span, explains, paths, others = row
    return Finding(
        component=str(component),
        kind=str(kind),
        fault=str(fault),
        loss=_float(loss),
        delay_ns=_float(delay_ns),
        confidence=_float(confidence),
        window=str(span),
        explains=_float(explains),
        paths=_int(paths),
        alternatives=tuple(name for name in str(others).split(", ") if name),
    )


def _clock_point(row: Row) -> ClockPoint:
    ts_ns, node, ref_ns, offset_ns, drift_ppb, sigma_ns, state = row
    timeline = Timeline(
        node=str(node),
        ref_ns=_int(ref_ns),
        offset_ns=_float(offset_ns),
        drift_ppb=_float(drift_ppb),
        sigma_ns=_float(sigma_ns),
        state=ClockState(str(state)),
    )
    return ClockPoint(_int(ts_ns), timeline)


def _int(value: Value) -> int:
    if isinstance(value, int | float):
        return int(value)
    raise StoreError(f"the store's answer has {value!r} where a number belongs")


def _float(value: Value) -> float:
    if isinstance(value, int | float):
        return float(value)
    raise StoreError(f"the store's answer has {value!r} where a number belongs")

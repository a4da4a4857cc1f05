"""What an agent's batch must be before it may touch the store. Pure, vectorised with pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from syntony.errors import WireError
from syntony.model import S
from syntony.store import Recorded
from syntony.store.schema import DAY_NS, HOUR_NS, partition_ns
from syntony.wire.arrow import decode_columns
from syntony.wire.messages import Batch
from syntony.wire.tables import AGENT, HEARD, PROBE, TABLES, Table

if TYPE_CHECKING:
    import pyarrow as pa

MAX_SPAN_NS = HOUR_NS
"""Instants of one batch lie within this: a batch is seconds, and touches two partitions at most."""
MAX_AHEAD_NS = HOUR_NS
"""Rows this far in the fleet's future are a broken clock's."""


class Piece(NamedTuple):
    """One batch ready to be stored: its rows with their origin, and what is known of them."""

    table: Table
    host: str
    stream: str
    seq: int
    rows: pa.Table
    first_ns: int
    last_ns: int
    check: bool
    """Whether a predecessor may have stored it already."""


def open_batch(
    batch: Batch, host: str, stream: str, *, check: bool, fleet_now_ns: int | None
) -> Piece:
    """Decode one batch and hold it against its table, its sender and the present.

    Raises:
        WireError: it is not rows of an ingested table, speaks for another host, or its instants
            cannot be.
    """
    import pyarrow.compute as pc

    table = TABLES.get(batch.table)
    if table not in {PROBE, HEARD, AGENT}:
        raise WireError(f"{batch.table[:80]!r} is not a table agents write")
    rows = decode_columns(table, batch.arrow)
    if rows.num_rows != batch.rows or not rows.num_rows:
        raise WireError(f"{table.name}: {rows.num_rows} rows where {batch.rows} were announced")
    _check_owner(table, rows, host)
    span = pc.min_max(rows.column("ts_ns")).as_py()
    first_ns, last_ns = span["min"], span["max"]
    _check_instants(table, first_ns, last_ns, fleet_now_ns)
    return Piece(
        table,
        host,
        stream,
        batch.seq,
        with_origin(rows, host, stream, batch.seq),
        first_ns,
        last_ns,
        check,
    )


def with_origin(rows: pa.Table, host: str, stream: str, seq: int) -> pa.Table:
    """The rows with `host`, `stream` and `seq` in front (an own `host` column stays its own)."""
    import pyarrow as pa

    constants = {
        "host": pa.scalar(host),
        "stream": pa.scalar(stream),
        "seq": pa.scalar(seq, pa.uint64()),
    }
    columns: dict[str, Any] = {
        name: pa.repeat(value, rows.num_rows)
        for name, value in constants.items()
        if name not in rows.column_names
    }
    columns.update(zip(rows.column_names, rows.columns, strict=True))
    return pa.table(columns)


def unrecorded(piece: Piece, recorded: frozenset[Recorded]) -> Piece | None:
    """What of the piece is not in the store yet; None if all of it is."""
    import pyarrow as pa

    width = partition_ns(piece.table)

    def is_new(ts_ns: int) -> bool:
        return Recorded(piece.host, piece.stream, piece.seq, ts_ns // width) not in recorded

    ends = (is_new(piece.first_ns), is_new(piece.last_ns))
    if all(ends):
        return piece
    if not any(ends):
        return None
    keep = pa.array([is_new(ts_ns) for ts_ns in piece.rows.column("ts_ns").to_pylist()])
    return piece._replace(rows=piece.rows.filter(keep))


def probe_rate(piece: Piece) -> float:
    """Requests per second that a batch of `probe_1s` reports."""
    import pyarrow.compute as pc

    rows = piece.rows.filter(pc.equal(piece.rows.column("prober"), piece.rows.column("src")))
    sent = pc.sum(rows.column("sent")).as_py() or 0
    return float(sent) / ((piece.last_ns - piece.first_ns) // S + 1)


def _check_owner(table: Table, rows: pa.Table, host: str) -> None:
    """An agent speaks for its own NICs only."""
    import pyarrow.compute as pc

    if table is AGENT:
        own = pc.all(pc.equal(rows.column("host"), host))
    elif table is HEARD:
        own = pc.all(pc.starts_with(rows.column("dst"), f"{host}/"))
    else:
        prober = rows.column("prober")
        involved = pc.or_(
            pc.equal(prober, rows.column("src")), pc.equal(prober, rows.column("dst"))
        )
        own = pc.all(pc.and_(pc.starts_with(prober, f"{host}/"), involved))
    if not own.as_py():
        raise WireError(f"{table.name}: rows of other hosts than {host}")


def _check_instants(table: Table, first_ns: int, last_ns: int, fleet_now_ns: int | None) -> None:
    if first_ns <= 0 or last_ns - first_ns > MAX_SPAN_NS:
        raise WireError(f"{table.name}: instants from {first_ns} to {last_ns}")
    if fleet_now_ns is None:
        return
    oldest_ns = fleet_now_ns - table.retention_days * DAY_NS
    if last_ns > fleet_now_ns + MAX_AHEAD_NS or first_ns < oldest_ns:
        raise WireError(
            f"{table.name}: instants from {first_ns}, when fleet time is {fleet_now_ns}"
        )

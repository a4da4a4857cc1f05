"""What an agent's batch must be before it may touch the store. Pure, vectorised with pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from syntony.errors import WireError
from syntony.model import S
from syntony.store import Recorded
from syntony.store.schema import DAY_NS, HOUR_NS, partition_ns
from syntony.wire.arrow import decode_columns
from syntony.wire.messages import Batch
from syntony.wire.tables import PROBE, TABLES, Table

if TYPE_CHECKING:
    import pyarrow as pa

MAX_SPAN_NS = HOUR_NS
"""Instants of one batch lie within this: a batch is seconds, and touches two partitions at most."""
MAX_AHEAD_NS = HOUR_NS
"""Rows this far in the fleet's future are a broken clock's."""


class Piece(NamedTuple):
    """One batch ready to be stored, and what is known of it."""

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
    table = TABLES.get(batch.table)
    if table is None or not table.owner:
        raise WireError(f"{batch.table[:80]!r} is not a table agents write")
    rows = decode_columns(table, batch.arrow)
    if rows.num_rows != batch.rows or not rows.num_rows:
        raise WireError(f"{table.name}: {rows.num_rows} rows where {batch.rows} were announced")
    _check_owner(table, rows, host)
    instants = rows.column("ts_ns").to_numpy()
    first_ns, last_ns = int(instants.min()), int(instants.max())
    _check_instants(table, first_ns, last_ns, fleet_now_ns)
    return Piece(table, host, stream, batch.seq, rows, first_ns, last_ns, check)


def joined(pieces: Sequence[Piece]) -> pa.Table:
    """The rows of pieces of one table, with `host`, `stream` and `seq` (an own `host` column stays
    its own).
    """
    import pyarrow as pa

    lengths = [piece.rows.num_rows for piece in pieces]
    owner = np.repeat(np.arange(len(pieces)), lengths)
    rows = pa.concat_tables([piece.rows for piece in pieces])
    origin = {
        "host": pa.array([piece.host for piece in pieces]),
        "stream": pa.array([piece.stream for piece in pieces]),
        "seq": pa.array([piece.seq for piece in pieces], pa.uint64()),
    }
    for name, values in origin.items():
        if name not in rows.column_names:
            rows = rows.append_column(name, values.take(pa.array(owner)))
    return rows


def windows(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """From the first to the last instant of pieces that lie together: between a backlog of
    yesterday and rows of now there is a day of other rows."""
    found: list[tuple[int, int]] = []
    for first_ns, last_ns in sorted((piece.first_ns, piece.last_ns) for piece in pieces):
        if found and first_ns <= found[-1][1] + HOUR_NS:
            found[-1] = (found[-1][0], max(found[-1][1], last_ns))
        else:
            found.append((first_ns, last_ns))
    return found


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

    rows = piece.rows
    requests = rows.column("sent").filter(pc.equal(rows.column("prober"), rows.column("src")))
    return float(pc.sum(requests).as_py() or 0) / ((piece.last_ns - piece.first_ns) // S + 1)


def _check_owner(table: Table, rows: pa.Table, host: str) -> None:
    """An agent speaks for its own NICs only, and of paths they are an end of."""
    owners = rows.column(table.owner)
    own = _all_of_host(owners, host)
    if table is PROBE:
        own = own and _either(owners, rows.column("src"), rows.column("dst"))
    if not own:
        raise WireError(f"{table.name}: rows of other hosts than {host}")


def _all_of_host(names: pa.ChunkedArray, host: str) -> bool:
    # A host has a handful of NICs: each distinct name is looked at once.
    return all(name.split("/", 1)[0] == host for name in names.unique().to_pylist())


def _either(values: pa.ChunkedArray, one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    found = pc.or_(pc.equal(values, one), pc.equal(values, other))
    return bool(pc.all(found).as_py())


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

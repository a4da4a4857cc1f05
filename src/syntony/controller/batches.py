"""Checks agents' batches before they are stored. Pure.

Batches are checked together, table by table and column by column, which is cheaper than one by
one. If a check fails, each half is checked separately, and so on, so that only the wrong batches
are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.errors import WireError
from syntony.model import DAY_NS, HOUR_NS, S
from syntony.model.names import host_of
from syntony.store import StoredPart
from syntony.store.schema import batch_column, partition_ns
from syntony.wire.arrow import check_values, read_rows
from syntony.wire.arrow_blocks import read_block
from syntony.wire.messages import Batch
from syntony.wire.tables import PROBE, TABLES, Table

if TYPE_CHECKING:
    import pyarrow as pa

MAX_SPAN_NS = HOUR_NS
"""Maximum span of instants of one batch: a batch covers seconds, and at most two partitions."""
MAX_AHEAD_NS = HOUR_NS
"""Rows this far in the fleet's future come from a broken clock."""


StoredKey = tuple[str, str, int]
"""Host, stream and number of a batch."""


class BlockPart(NamedTuple):
    """Rows of a batch within the rows of several batches."""

    rows: pa.RecordBatch
    """Numbers of the batch's rows among all."""
    first: int


class BatchPiece(NamedTuple):
    """One checked batch, ready to be stored."""

    table: Table
    host: str
    stream: str
    seq: int
    rows: pa.RecordBatch
    first_ns: int
    last_ns: int
    check: bool
    """Whether a predecessor may have stored it already."""
    probes_per_s: float | None = None
    """Requests per second that it reports; None if it is not of `probe_1s`."""
    block: BlockPart | None = None
    """The block that contains `rows`, if they were read together with others."""

    @property
    def key(self) -> StoredKey:
        return self.host, self.stream, self.seq


class Arrival(NamedTuple):
    batch: Batch
    host: str
    stream: str
    check: bool
    """See `BatchPiece`."""


def open_batches(
    arrivals: Iterable[Arrival], fleet_now_ns: int | None
) -> list[BatchPiece | WireError]:
    """Decode batches and check each against its table, its sender and the present.

    Returns:
        For each in turn its contents, or why it is refused: it is not rows of an ingested table,
            has rows of another host, or has impossible instants.
    """
    arrivals = list(arrivals)
    found: list[BatchPiece | WireError | None] = [None] * len(arrivals)
    tables: dict[str, list[int]] = {}
    for place, arrival in enumerate(arrivals):
        tables.setdefault(arrival.batch.table, []).append(place)
    for name, places in tables.items():
        if (table := TABLES.get(name)) is None or not table.owner:
            continue
        read = _read(table, [arrivals[place] for place in places])
        pieces = [piece for piece in read if isinstance(piece, BatchPiece)]
        checked = iter(_all_checked(pieces, fleet_now_ns) if pieces else ())
        for place, each in zip(places, read, strict=True):
            found[place] = each if isinstance(each, WireError) else next(checked)
    return [
        WireError(f"{arrival.batch.table[:80]!r} is not a table that agents write")
        if each is None
        else each
        for arrival, each in zip(arrivals, found, strict=True)
    ]


def _read(table: Table, arrivals: Sequence[Arrival]) -> list[BatchPiece | WireError]:
    """Decode batches of one table; values and instants are not checked yet."""
    found: list[BatchPiece | WireError | None] = [None] * len(arrivals)
    if (block := read_block(table, [arrival.batch.arrow for arrival in arrivals])) is not None:
        for place, first, count in zip(block.indices, block.starts, block.counts, strict=True):
            part = BlockPart(block.rows, first)
            found[place] = _piece(table, arrivals[place], block.rows.slice(first, count), part)
    return [
        _read_alone(table, arrival) if each is None else each
        for arrival, each in zip(arrivals, found, strict=True)
    ]


def _read_alone(table: Table, arrival: Arrival) -> BatchPiece | WireError:
    try:
        return _piece(table, arrival, read_rows(table, arrival.batch.arrow))
    except WireError as error:
        return error


def _piece(
    table: Table, arrival: Arrival, rows: pa.RecordBatch, block: BlockPart | None = None
) -> BatchPiece | WireError:
    batch, host, stream, check = arrival
    if rows.num_rows != batch.rows or not rows.num_rows:
        return WireError(f"{table.name}: {rows.num_rows} rows, {batch.rows} were announced")
    return BatchPiece(table, host, stream, batch.seq, rows, 0, 0, check, block=block)


def together(pieces: Iterable[BatchPiece]) -> pa.Table:
    """The rows of pieces of one table, joined without a copy: pieces that were decoded together and
    follow each other stay one record batch."""
    import pyarrow as pa

    parts = list[tuple[pa.RecordBatch, int, int]]()
    for piece in pieces:
        rows, first = piece.block or (piece.rows, 0)
        count = piece.rows.num_rows
        if parts and parts[-1][0] is rows and parts[-1][2] == first:
            parts[-1] = (rows, parts[-1][1], first + count)
        else:
            parts.append((rows, first, first + count))
    return pa.Table.from_batches([rows.slice(first, end - first) for rows, first, end in parts])


def _all_checked(
    pieces: Sequence[BatchPiece], fleet_now_ns: int | None
) -> Sequence[BatchPiece | WireError]:
    try:
        return _checked(pieces, fleet_now_ns)
    except WireError as error:
        if len(pieces) == 1:
            return [error]
        half = len(pieces) // 2
        parts = pieces[:half], pieces[half:]
        return [each for part in parts for each in _all_checked(part, fleet_now_ns)]


def _checked(pieces: Sequence[BatchPiece], fleet_now_ns: int | None) -> list[BatchPiece]:
    """Check pieces of one table. Raises `WireError`: one of them is invalid."""
    table = pieces[0].table
    rows = together(pieces)
    check_values(table, rows)
    lengths = [piece.rows.num_rows for piece in pieces]
    starts = np.cumsum([0, *lengths[:-1]])
    _check_owners(table, rows, [piece.host for piece in pieces], lengths)
    instants = rows.column("ts_ns").to_numpy()
    first_ns = np.minimum.reduceat(instants, starts).tolist()
    last_ns = np.maximum.reduceat(instants, starts).tolist()
    _check_instants(table, first_ns, last_ns, fleet_now_ns)
    rates: list[float] | list[None] = [None] * len(pieces)
    if table is PROBE:
        rates = _probe_rates(rows, starts, first_ns, last_ns)
    return [
        piece._replace(first_ns=first, last_ns=last, probes_per_s=rate)
        for piece, first, last, rate in zip(pieces, first_ns, last_ns, rates, strict=True)
    ]


def joined(pieces: Sequence[BatchPiece]) -> pa.Table:
    """The rows of pieces of one table, with `schema.ORIGIN`'s columns; an existing `host` stays."""
    import pyarrow as pa

    lengths = [piece.rows.num_rows for piece in pieces]
    rows = together(pieces)
    if "host" not in rows.column_names:
        rows = rows.append_column("host", _repeated([piece.host for piece in pieces], lengths))
    rows = rows.append_column("stream", _repeated([piece.stream for piece in pieces], lengths))
    numbers = np.array([piece.seq for piece in pieces], np.uint64)
    return rows.append_column(batch_column(pieces[0].table), pa.array(np.repeat(numbers, lengths)))


def _repeated(names: list[str], lengths: list[int]) -> pa.DictionaryArray:
    import pyarrow as pa

    place = {name: number for number, name in enumerate(dict.fromkeys(names))}
    numbers = np.array([place[name] for name in names], np.int32)
    indices = pa.array(np.repeat(numbers, lengths))
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(place)))


def windows(pieces: Sequence[BatchPiece]) -> list[tuple[int, int]]:
    """First and last instant, fleet time, of groups of adjacent pieces.

    They are kept apart because between a backlog of yesterday and current rows there is a day of
    other rows.
    """
    found: list[tuple[int, int]] = []
    for first_ns, last_ns in sorted((piece.first_ns, piece.last_ns) for piece in pieces):
        if found and first_ns <= found[-1][1] + HOUR_NS:
            found[-1] = (found[-1][0], max(found[-1][1], last_ns))
        else:
            found.append((first_ns, last_ns))
    return found


def unrecorded(piece: BatchPiece, recorded: frozenset[StoredPart]) -> BatchPiece | None:
    """The rows of the piece that are not in the store yet; None if all are."""
    import pyarrow as pa

    width = partition_ns(piece.table)

    def is_new(ts_ns: int) -> bool:
        return StoredPart(piece.host, piece.stream, piece.seq, ts_ns // width) not in recorded

    ends = (is_new(piece.first_ns), is_new(piece.last_ns))
    if all(ends):
        return piece
    if not any(ends):
        return None
    keep = pa.array([is_new(ts_ns) for ts_ns in piece.rows.column("ts_ns").to_pylist()])
    return piece._replace(rows=piece.rows.filter(keep), block=None)


def _probe_rates(
    rows: pa.Table, starts: NDArray[np.int64], first_ns: list[int], last_ns: list[int]
) -> list[float]:
    """Requests per second that each batch of `probe_1s` reports."""
    import pyarrow.compute as pc

    own = pc.equal(rows.column("prober"), rows.column("src")).to_numpy()
    requests = np.where(own, rows.column("sent").to_numpy(), 0)
    sums = np.add.reduceat(requests, starts, dtype=np.float64).tolist()
    return [
        each / ((last - first) // S + 1)
        for each, first, last in zip(sums, first_ns, last_ns, strict=True)
    ]


def _check_owners(table: Table, rows: pa.Table, hosts: list[str], lengths: list[int]) -> None:
    """Check that an agent reports only its own NICs, and paths of which it is an end.

    Args:
        hosts: that sent the rows, one after the other …
        lengths: … and the number of rows of each.
    """
    owners = rows.column(table.owner)
    # A host has few NICs: each distinct name is checked once.
    names = owners.combine_chunks().dictionary_encode()
    numbers = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
    of_name = [numbers.get(host_of(name), -1) for name in names.dictionary.to_pylist()]
    owned = np.array(of_name)[names.indices.to_numpy()]
    own = bool((owned == np.repeat([numbers[host] for host in hosts], lengths)).all())
    if table is PROBE:
        own = own and _either(owners, rows.column("src"), rows.column("dst"))
    if not own:
        raise WireError(f"{table.name}: rows of other hosts than {hosts[0]}")


def _either(values: pa.ChunkedArray, one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    found = pc.or_(pc.equal(values, one), pc.equal(values, other))
    return bool(pc.all(found).as_py())


def _check_instants(
    table: Table, first_ns: list[int], last_ns: list[int], fleet_now_ns: int | None
) -> None:
    for first, last in zip(first_ns, last_ns, strict=True):
        if first <= 0 or last - first > MAX_SPAN_NS:
            raise WireError(f"{table.name}: instants from {first} to {last}")
    if fleet_now_ns is None:
        return
    oldest_ns = fleet_now_ns - table.retention_days * DAY_NS
    if max(last_ns) > fleet_now_ns + MAX_AHEAD_NS or min(first_ns) < oldest_ns:
        raise WireError(
            f"{table.name}: instants from {min(first_ns)}, but fleet time is {fleet_now_ns}"
        )

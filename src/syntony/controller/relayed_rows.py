"""Relays stored rows from a gateway to its leader: only the columns that the leader evaluates.

Rows of all agents travel in one message. Most are probe rows: their names (NICs, ports) are sent
once and again only when they change, their values as narrow integers that the leader uses as they
are. The rows of other tables are one Arrow stream, which the leader splits into the original
batches. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.controller.batches import BatchPiece
from syntony.controller.ingest import BatchOutcome
from syntony.controller.job_diagnosis import PROCESS_COLUMNS
from syntony.controller.probed_rows import NAMES, VALUES, Probed, by_second, copied
from syntony.errors import WireError
from syntony.model import S
from syntony.wire.arrow import arrow_errors, arrow_schema
from syntony.wire.gateways import ProbedColumns, RowsStored, StoredBatch
from syntony.wire.tables import JOB_PROCESS, PATH, TABLES, TAKEOVER

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {name: ("ts_ns", *NAMES[name], *VALUES[name]) for name in NAMES} | {
    JOB_PROCESS.name: PROCESS_COLUMNS,
    TAKEOVER.name: tuple(column.name for column in TAKEOVER.columns),
}
"""Table → columns that the leader needs."""
CODEC = "zstd"
MAX_COLUMN_BYTES = 8 << 20
"""Limit of a message's columns before compression; the whole message has at most 16 MiB."""
MAX_STREAM_BYTES = 4 * MAX_COLUMN_BYTES
"""Limit of one table's stream: more than one batch alone can need."""
_WIDTHS: tuple[type[np.integer[Any]], ...] = (np.uint8, np.uint16, np.int32, np.uint32)
_INSTANT = "ts_ns"

Names = dict[tuple[str, str], "pa.RecordBatch"]
"""Table and host → names of the rows of its last batch, as sent on one stream."""


class RelayedBatches(NamedTuple):
    """Batches that a gateway has stored, and the rows to evaluate."""

    outcomes: list[BatchOutcome]
    pieces: list[BatchPiece]
    probed: list[RelayedProbed]


class RelayedProbed(NamedTuple):
    """Probe rows, and for each of their batches the index of its outcome."""

    rows: Probed
    outcomes: list[int]


# --- at the gateway --------------------------------------------------------------------------


def rows_stored(
    outcomes: Sequence[BatchOutcome], pieces: Sequence[BatchPiece], known: Names | None
) -> Iterator[RowsStored]:
    """The messages to the leader for one cycle of a gateway's ingest, as few as possible; all of
    them must be sent.

    Args:
        outcomes: of every batch.
        pieces: of the stored batches.
        known: names already sent on this stream; updated. None: the leader does not read
            `RowsStored.probed`.
    """
    waiting = {piece.key: piece for piece in pieces}
    relayed = list[_RelayedBatch]()
    for outcome in outcomes:
        piece = waiting.get(outcome.key)
        fresh = known is not None and piece is not None and _is_fresh(piece, known)
        relayed.append(_RelayedBatch(_batch(outcome, piece), piece, fresh))
    yield from _messages(relayed, NAMES if known is not None else ())


class _RelayedBatch(NamedTuple):
    batch: StoredBatch
    piece: BatchPiece | None
    fresh: bool
    """See `ProbedColumns`."""


def _is_fresh(piece: BatchPiece, known: Names) -> bool:
    if piece.table.name not in NAMES:
        return False
    key, rows = (piece.table.name, piece.host), piece.rows.select(NAMES[piece.table.name])
    before = known.get(key)
    if before is not None and before.equals(rows):
        return False
    known[key] = copied(rows)
    return True


def _messages(relayed: list[_RelayedBatch], apart: Collection[str]) -> Iterator[RowsStored]:
    """Rows of the tables in `apart` go into `RowsStored.probed`."""
    by_table: dict[str, list[_RelayedBatch]] = {}
    for each in relayed:
        if each.piece is not None and each.batch.table in COLUMNS:
            by_table.setdefault(each.batch.table, []).append(each)
    columns, probed = dict[str, bytes](), dict[str, tuple[bytes, bytes]]()
    for name, found in by_table.items():
        if name in apart:
            probed[name] = _probed_streams(name, found)
        else:
            columns[name] = _stream(_joined(found, COLUMNS[name]))
    size = sum(map(len, columns.values())) + sum(sum(map(len, each)) for each in probed.values())
    if len(relayed) > 1 and size > MAX_COLUMN_BYTES:
        half = len(relayed) // 2
        for part in (relayed[:half], relayed[half:]):
            yield from _messages(part, apart)
        return
    yield RowsStored(
        batches=tuple(each.batch for each in relayed),
        columns={name: _compressed(data) for name, data in columns.items()},
        sizes={name: len(data) for name, data in columns.items()},
        probed={
            name: ProbedColumns(
                fresh=tuple(place for place, each in enumerate(by_table[name]) if each.fresh),
                names=_compressed(names) if names else b"",
                values=_compressed(values),
                names_size=len(names),
                values_size=len(values),
            )
            for name, (names, values) in probed.items()
        },
    )


def _probed_streams(name: str, relayed: Sequence[_RelayedBatch]) -> tuple[bytes, bytes]:
    """Names of the batches that are fresh, and values of all batches."""
    import pyarrow as pa

    fresh = [each for each in relayed if each.fresh]
    names = _stream(_joined(fresh, NAMES[name])) if fresh else b""
    one_second = all(each.batch.first_ns // S == each.batch.last_ns // S for each in relayed)
    rows = _joined(relayed, VALUES[name] if one_second else (_INSTANT, *VALUES[name]))
    values = [pa.array(_narrow(column.to_numpy())) for column in rows.columns]
    return names, _stream(pa.RecordBatch.from_arrays(values, names=rows.schema.names))


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """The same values; integers in the narrowest type that holds all of them."""
    if values.dtype.kind == "f" or not len(values):
        return values
    least, most = int(values.min()), int(values.max())
    for width in _WIDTHS:
        if np.iinfo(width).min <= least and most <= np.iinfo(width).max:
            return values.astype(width)
    return values


def _joined(relayed: Sequence[_RelayedBatch], columns: Sequence[str]) -> pa.RecordBatch:
    """Rows of all batches in one; text is dictionary-encoded, since few names occur many times."""
    import pyarrow as pa

    rows = pa.Table.from_batches(
        [each.piece.rows.select(columns) for each in relayed if each.piece is not None]
    )
    arrays = [column.combine_chunks() for column in rows.columns]
    arrays = [
        each.dictionary_encode() if pa.types.is_string(each.type) else each for each in arrays
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _stream(batch: pa.RecordBatch) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def _batch(outcome: BatchOutcome, piece: BatchPiece | None) -> StoredBatch:
    return StoredBatch(
        outcome.host,
        outcome.stream,
        outcome.seq,
        "" if piece is None else piece.table.name,
        outcome.rows,
        outcome.dropped,
        0 if piece is None else piece.first_ns,
        0 if piece is None else piece.last_ns,
        outcome.probes_per_s,
    )


def _compressed(data: bytes) -> bytes:
    import pyarrow as pa

    return bytes(pa.compress(data, codec=CODEC, asbytes=True))


# --- at the leader ---------------------------------------------------------------------------


def _decompressed(name: str, data: bytes, size: int) -> pa.Buffer:
    """Raises `WireError`: the data do not decompress to `size` bytes."""
    import pyarrow as pa

    if not 0 < size <= MAX_STREAM_BYTES:
        raise WireError(f"{name}: a stream of {size} bytes; up to {MAX_STREAM_BYTES} are taken")
    try:
        return pa.decompress(data, decompressed_size=size, codec=CODEC)
    except (OSError, pa.ArrowException) as error:
        raise WireError(f"{name}: columns that cannot be decompressed: {error}") from error


def opened(message: RowsStored, known: Names) -> RelayedBatches:
    """Decodes a gateway's message into outcomes and rows, in the form that `Ingest` produces.

    Args:
        message: from the gateway.
        known: names received on this stream so far; updated.

    Raises:
        WireError: the message is invalid; the stream must be closed.
    """
    outcomes = [_outcome(batch) for batch in message.batches]
    pieces: list[BatchPiece] = []
    for name, data in message.columns.items():
        if name not in COLUMNS:
            continue  # of a newer gateway
        size = message.sizes.get(name)
        stream = data if size is None else _decompressed(name, data, size)
        batches = [each for each in message.batches if each.table == name]
        pieces += _pieces(name, batches, stream)
    probed = [
        _probed(name, message.batches, columns, known)
        for name, columns in message.probed.items()
        if name in NAMES
    ]
    return RelayedBatches(outcomes, pieces, probed)


def _probed(
    name: str, batches: Sequence[StoredBatch], columns: ProbedColumns, known: Names
) -> RelayedProbed:
    places = [place for place, each in enumerate(batches) if each.table == name]
    mine = [batches[place] for place in places]
    names = _names(name, mine, columns, known)
    data = _decompressed(name, columns.values, columns.values_size)
    values = _values(name, data)
    if sum(each.rows for each in mine) != len(next(iter(values.values()))):
        raise WireError(f"{name}: rows that do not match its batches")
    instants = values.pop(_INSTANT, None)
    seconds = [each.first_ns // S for each in mine]
    rows = Probed(name, [each.host for each in mine], seconds, names, values)
    if instants is not None:
        rows, parts = by_second(rows, instants)
        places = [places[number] for number in parts]
    return RelayedProbed(rows, places)


def _names(
    name: str, batches: Sequence[StoredBatch], columns: ProbedColumns, known: Names
) -> list[pa.RecordBatch]:
    """Names of the rows of each batch. Raises `WireError`."""
    fresh, start = set(columns.fresh), 0
    found: list[pa.RecordBatch] = []
    rows: pa.RecordBatch | None = None
    if not fresh <= set(range(len(batches))):
        raise WireError(f"{name}: names of batches that it does not announce")
    if fresh:
        data = _decompressed(name, columns.names, columns.names_size)
        rows = _rows(name, data, NAMES[name])
    for place, batch in enumerate(batches):
        key = name, batch.host
        if rows is not None and place in fresh:
            known[key] = copied(rows.slice(start, batch.rows))
            start += batch.rows
        names = known.get(key)
        if names is None or names.num_rows != batch.rows:
            raise WireError(f"{name}: rows of {batch.host[:80]!r}, which are not announced")
        found.append(names)
    if rows is not None and start != rows.num_rows:
        raise WireError(f"{name}: {rows.num_rows} names, which is not the number of its batches")
    return found


def _values(name: str, data: pa.Buffer) -> dict[str, NDArray[Any]]:
    """Values by column; with instants if batches span several seconds. Raises `WireError`."""
    import pyarrow as pa

    found = _read(name, data, VALUES[name], (_INSTANT, *VALUES[name]))
    values = {}
    for column, field in zip(found.columns, found.schema, strict=True):
        whole = pa.types.is_integer(arrow_schema(TABLES[name]).field(field.name).type)
        fits = pa.types.is_integer(field.type) if whole else pa.types.is_floating(field.type)
        if column.null_count or not fits or field.type == pa.uint64():
            raise WireError(
                f"{name}: column {field.name} has type {field.type}, which is not allowed"
            )
        values[field.name] = column.to_numpy()
    return values


def _outcome(batch: StoredBatch) -> BatchOutcome:
    if batch.seq < 1 or batch.rows < 0 or not 0 <= batch.first_ns <= batch.last_ns:
        raise WireError(f"a batch of {batch.host[:80]!r} with an invalid number: {batch.seq}")
    return BatchOutcome(
        batch.host,
        batch.stream,
        batch.seq,
        batch.rows,
        batch.dropped,
        newest_ns=batch.last_ns,
        probes_per_s=batch.probes_per_s,
        paths_from_ns=batch.first_ns if batch.table == PATH.name else None,
    )


def _pieces(
    name: str, batches: Sequence[StoredBatch], data: bytes | pa.Buffer
) -> Iterator[BatchPiece]:
    rows, start = _rows(name, data, COLUMNS[name]), 0
    if sum(batch.rows for batch in batches) != rows.num_rows:
        raise WireError(f"{name}: {rows.num_rows} rows, which is not the number in its batches")
    for batch in batches:
        yield BatchPiece(
            TABLES[name], batch.host, batch.stream, batch.seq,
            rows.slice(start, batch.rows), batch.first_ns, batch.last_ns, check=False,
            probes_per_s=batch.probes_per_s,
        )  # fmt: skip
        start += batch.rows


def _rows(name: str, data: bytes | pa.Buffer, columns: Sequence[str]) -> pa.RecordBatch:
    """Rows with the table's types, like rows that are stored locally."""
    import pyarrow as pa

    table = arrow_schema(TABLES[name])
    schema = pa.schema([table.field(column) for column in columns])
    found = _read(name, data, tuple(columns))
    with arrow_errors(TABLES[name]):
        arrays = [
            column.combine_chunks().cast(field.type)
            for column, field in zip(found.columns, schema, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if any(column.null_count for column in rows.columns):
        raise WireError(f"{name}: values are missing")
    return rows


def _read(name: str, data: bytes | pa.Buffer, *forms: tuple[str, ...]) -> pa.Table:
    """Raises `WireError`: invalid, or its columns are none of these."""
    import pyarrow as pa

    with arrow_errors(TABLES[name]), pa.ipc.open_stream(data) as stream:
        found = stream.read_all()
        found.validate(full=True)
    if tuple(found.column_names) not in forms:
        raise WireError(f"{name}: columns {', '.join(found.column_names)[:200]}")
    return found

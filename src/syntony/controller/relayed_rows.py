"""What a gateway tells its leader of the rows that it has stored: the columns that are judged.

Rows of all agents travel together, one Arrow stream a table; the leader cuts them into the batches
that they came in, and hands these on as if it had stored them itself. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from syntony.controller import flow_seconds
from syntony.controller.batches import BatchPiece
from syntony.controller.ingest import Outcome
from syntony.controller.job_diagnosis import PROCESS_COLUMNS
from syntony.errors import WireError
from syntony.wire.arrow import arrow_errors, arrow_schema
from syntony.wire.gateways import RowsStored, StoredBatch
from syntony.wire.tables import JOB_PROCESS, PATH, TABLES, TAKEOVER

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = flow_seconds.COLUMNS | {
    JOB_PROCESS.name: PROCESS_COLUMNS,
    TAKEOVER.name: tuple(column.name for column in TAKEOVER.columns),
}
"""What the leader's readers need."""
CODEC = "zstd"
MAX_COLUMN_BYTES = 8 << 20
"""Of one message before it is compressed; with its list of batches it is 16 MiB at most."""
MAX_STREAM_BYTES = 4 * MAX_COLUMN_BYTES
"""Of one table's stream: what one batch alone can come to, with room."""


def rows_stored(outcomes: Sequence[Outcome], pieces: Sequence[BatchPiece]) -> Iterator[RowsStored]:
    """What to tell of one cycle of a gateway's ingest, in as few messages as may be."""
    waiting = {(piece.host, piece.stream, piece.seq): piece for piece in pieces}
    batches = [_batch(each, waiting.get((each.host, each.stream, each.seq))) for each in outcomes]
    yield from _messages(list(zip(batches, outcomes, strict=True)), waiting)


def _messages(
    told: list[tuple[StoredBatch, Outcome]], pieces: dict[tuple[str, str, int], BatchPiece]
) -> Iterator[RowsStored]:
    by_table: dict[str, list[BatchPiece]] = {}
    for batch, _ in told:
        piece = pieces.get((batch.host, batch.stream, batch.seq))
        if piece is not None and batch.table in COLUMNS:
            by_table.setdefault(batch.table, []).append(piece)
    columns = {name: _encoded(name, found) for name, found in by_table.items()}
    if len(told) > 1 and sum(map(len, columns.values())) > MAX_COLUMN_BYTES:
        half = len(told) // 2
        for part in (told[:half], told[half:]):
            yield from _messages(part, pieces)
        return
    yield RowsStored(
        batches=tuple(batch for batch, _ in told),
        columns={name: _compressed(data) for name, data in columns.items()},
        sizes={name: len(data) for name, data in columns.items()},
    )


def _batch(outcome: Outcome, piece: BatchPiece | None) -> StoredBatch:
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


def _encoded(name: str, pieces: Sequence[BatchPiece]) -> bytes:
    """Text as numbers of the names that occur: few, and each many times."""
    import pyarrow as pa

    rows = pa.Table.from_batches([piece.rows.select(COLUMNS[name]) for piece in pieces])
    rows = rows.combine_chunks()
    arrays = [
        column.combine_chunks().dictionary_encode() if pa.types.is_string(column.type)
        else column.combine_chunks()
        for column in rows.columns
    ]  # fmt: skip
    batch = pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS[name]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def _compressed(data: bytes) -> bytes:
    import pyarrow as pa

    return bytes(pa.compress(data, codec=CODEC, asbytes=True))


def _decompressed(name: str, data: bytes, size: int) -> bytes:
    """Raises `WireError`: it is not what `size` says."""
    import pyarrow as pa

    if not 0 < size <= MAX_STREAM_BYTES:
        raise WireError(f"{name}: a stream of {size} bytes; up to {MAX_STREAM_BYTES} are taken")
    try:
        found = bytes(pa.decompress(data, decompressed_size=size, codec=CODEC, asbytes=True))
    except (OSError, pa.ArrowException) as error:
        raise WireError(f"{name}: columns that are not compressed as they say: {error}") from error
    return found


def opened(message: RowsStored) -> tuple[list[Outcome], list[BatchPiece]]:
    """What a gateway has told, as `Ingest` would.

    Raises:
        WireError: it makes no sense.
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
    return outcomes, pieces


def _outcome(batch: StoredBatch) -> Outcome:
    if batch.seq < 1 or batch.rows < 0 or not 0 <= batch.first_ns <= batch.last_ns:
        raise WireError(f"a batch of {batch.host[:80]!r} that cannot be: number {batch.seq}")
    return Outcome(
        batch.host,
        batch.stream,
        batch.seq,
        batch.rows,
        batch.dropped,
        newest_ns=batch.last_ns,
        probes_per_s=batch.probes_per_s,
        paths_from_ns=batch.first_ns if batch.table == PATH.name else None,
    )


def _pieces(name: str, batches: Sequence[StoredBatch], data: bytes) -> Iterator[BatchPiece]:
    rows, start = _rows(name, data), 0
    if sum(batch.rows for batch in batches) != rows.num_rows:
        raise WireError(f"{name}: {rows.num_rows} rows, other than its batches have")
    for batch in batches:
        yield BatchPiece(
            TABLES[name], batch.host, batch.stream, batch.seq,
            rows.slice(start, batch.rows), batch.first_ns, batch.last_ns, check=False,
            probes_per_s=batch.probes_per_s,
        )  # fmt: skip
        start += batch.rows


def _rows(name: str, data: bytes) -> pa.RecordBatch:
    """With the types of the table, as rows have that were stored here."""
    import pyarrow as pa

    table = arrow_schema(TABLES[name])
    schema = pa.schema([table.field(column) for column in COLUMNS[name]])
    with arrow_errors(TABLES[name]):
        with pa.ipc.open_stream(data) as stream:
            found = stream.read_all()
        found.validate(full=True)
        if found.column_names != schema.names:
            raise WireError(f"{name}: columns {', '.join(found.column_names)[:200]}")
        arrays = [
            column.combine_chunks().cast(field.type)
            for column, field in zip(found.columns, schema, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if any(column.null_count for column in rows.columns):
        raise WireError(f"{name}: values are missing")
    return rows

"""Reads Arrow IPC streams of many senders together.

Reading each stream alone is slow: it makes an object for each column, and again when columns are
concatenated. All agents use the writer of `encode_columns`, whose headers differ only in a few
numbers: the number of rows, and the offsets of columns. These numbers are checked here, for all
streams at once, and the columns are joined as bytes. Streams with other headers are left to
`read_rows`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.wire.arrow import MAX_ROWS, MessageHeader, arrow_schema, encode_columns
from syntony.wire.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

Ints = NDArray[np.int64]
_PREFIX = 8
"""Bytes before each message of a stream: a marker, and the length of its metadata."""
_ALIGNED = 8
"""Each column begins at a multiple of this."""
_ENDS = (b"", b"\xff\xff\xff\xff\0\0\0\0")
"""Bytes that may follow a stream's last batch."""


class Block(NamedTuple):
    """Rows of several streams, concatenated. Values are unchecked: see `check_values`."""

    rows: pa.RecordBatch
    indices: list[int]
    """Indices of the streams in the argument."""
    starts: list[int]
    """First row of each stream."""
    counts: list[int]
    """Number of rows of each stream."""


def read_block(table: Table, streams: Sequence[bytes]) -> Block | None:
    """Read the rows of the streams that are in our own writer's format; None: none is.

    A stream in the block has rows, no nulls, columns within its bytes, and texts of the declared
    length.
    """
    import pyarrow as pa

    columns = _layout(table).columns(streams)
    if columns is None:
        return None
    schema, total = arrow_schema(table), int(columns.rows.sum())
    arrays = [
        pa.Array.from_buffers(field.type, total, [None, *map(pa.py_buffer, buffers)])
        for field, buffers in zip(schema, columns.joined(table), strict=True)
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    starts = (np.cumsum(columns.rows) - columns.rows).tolist()
    return Block(rows, columns.indices, starts, columns.rows.tolist())


class _Columns(NamedTuple):
    """Positions of the columns of several streams."""

    indices: list[int]
    bodies: list[memoryview]
    rows: Ints
    """Number of rows of each stream."""
    begins: Ints
    """(streams, buffers): offset of each buffer in its body."""
    lengths: Ints
    """(streams, buffers): length of each buffer in bytes."""

    def select(self, valid: NDArray[np.bool_]) -> _Columns:
        """Select some of the streams."""
        if valid.all():
            return self
        kept = np.flatnonzero(valid).tolist()
        return _Columns(
            [self.indices[each] for each in kept],
            [self.bodies[each] for each in kept],
            *(each[valid] for each in self[2:]),
        )

    def bytes_of(self, buffer: int, lengths: Ints) -> bytes:
        """One buffer of all streams, concatenated; `lengths` bytes of each."""
        begins = self.begins[:, buffer]
        ends = (begins + lengths).tolist()
        spans = zip(self.bodies, begins.tolist(), ends, strict=True)
        return b"".join([body[begin:end] for body, begin, end in spans])

    def offsets(self, buffer: int) -> Ints:
        """Offsets of the texts within each stream, and of its end: one more than rows."""
        return np.frombuffer(self.bytes_of(buffer, 4 * (self.rows + 1)), np.int32).astype(np.int64)

    def are_bounded(self, buffer: int) -> NDArray[np.bool_]:
        """Streams whose texts begin at the first and end at the last byte of their buffer."""
        offsets = self.offsets(buffer)
        ends = np.cumsum(self.rows + 1) - 1
        begin, end = offsets[ends - self.rows], offsets[ends]
        return np.asarray((begin == 0) & (end == self.lengths[:, buffer + 1]))

    def joined(self, table: Table) -> Iterator[list[Any]]:
        """The concatenated buffers of each column, without the validity map."""
        for column, buffer in _buffers(table):
            if column != "string":
                yield [self.bytes_of(buffer, self.rows * np.dtype(column).itemsize)]
                continue
            texts = self.lengths[:, buffer + 1]
            before = np.repeat(np.cumsum(texts) - texts, self.rows + 1)
            offsets = self.offsets(buffer) + before
            # Where one stream ends the next one begins. What is out of order stays so in 32 bits.
            last = np.cumsum(self.rows + 1)[:-1] - 1
            kept = np.ones(len(offsets), np.bool_)
            kept[last] = False
            yield [offsets[kept].astype(np.int32), self.bytes_of(buffer + 1, texts)]


class _Layout:
    """Our own writer's headers for streams of one table."""

    def __init__(self, table: Table) -> None:
        rows = {column.name: [""] if column.type == "string" else [0] for column in table.columns}
        example = encode_columns(table, rows)
        self._header = 2 * _PREFIX + int.from_bytes(example[4:_PREFIX], "little")
        self._body = self._header + int.from_bytes(
            example[self._header - 4 : self._header], "little"
        )
        self._schema = example[: self._header]
        metadata = example[self._header : self._body]
        header = MessageHeader(metadata)
        self._rows_at, self._body_at = header.rows_at, header.body_size_at
        self._nodes, self._buffers = header.nodes, header.buffers
        fixed = np.ones(len(metadata), np.bool_)
        for at in (self._rows_at, self._body_at):
            fixed[at : at + 8] = False
        for at, count in (self._nodes, self._buffers):
            fixed[at : at + 16 * count] = False
        self._fixed = fixed
        self._same = np.frombuffer(metadata, np.uint8)[fixed]
        self._table = table
        texts = [kind == "string" for kind, _ in _buffers(table)]
        widths = [4 if kind == "string" else np.dtype(kind).itemsize for kind, _ in _buffers(table)]
        self._first_buffers = [buffer for _, buffer in _buffers(table)]
        self._widths, self._more_rows = np.array(widths), np.array(texts, np.int64)
        """Of each column's first buffer: bytes per row, and entries beyond the rows."""

    def columns(self, streams: Sequence[bytes]) -> _Columns | None:
        """The columns of complete streams with these headers; None: there is none."""
        indices = [
            place
            for place, data in enumerate(streams)
            if len(data) > self._body and data.startswith(self._schema)
        ]
        if not indices:
            return None
        headers = b"".join([streams[place][self._header : self._body] for place in indices])
        metadata = np.frombuffer(headers, np.uint8).reshape(len(indices), -1)
        rows, body = (_int64(metadata, at, 1)[:, 0] for at in (self._rows_at, self._body_at))
        nodes, buffers = (
            _int64(metadata, at, 2 * count) for at, count in (self._nodes, self._buffers)
        )
        begins, lengths = buffers[:, ::2], buffers[:, 1::2]
        found = _Columns(
            indices,
            [memoryview(streams[place])[self._body :] for place in indices],
            rows,
            begins,
            lengths,
        )
        valid = (metadata[:, self._fixed] == self._same).all(axis=1)
        valid &= (rows > 0) & (rows <= MAX_ROWS)
        valid &= (nodes[:, ::2] == rows[:, None]).all(axis=1) & ~nodes[:, 1::2].any(axis=1)
        valid &= self._within(found, body)
        found = found.select(valid)
        for kind, buffer in _buffers(self._table):
            if kind == "string" and found.indices:
                found = found.select(found.are_bounded(buffer))
        return found if found.indices else None

    def _within(self, found: _Columns, body: Ints) -> NDArray[np.bool_]:
        """Streams whose columns are within their body, and without further messages."""
        sizes = zip(found.bodies, body.tolist(), strict=True)
        complete = [0 <= size <= len(each) and each[size:] in _ENDS for each, size in sizes]
        limit = body[:, None]
        begins, lengths = found.begins, found.lengths
        inside = (begins >= 0) & (begins <= limit) & (lengths >= 0) & (lengths <= limit - begins)
        valid = np.array(complete) & (inside & (begins % _ALIGNED == 0)).all(axis=1)
        # One after the other, or a few bytes could be copied for each column.
        valid &= (begins[:, 1:] >= (begins + lengths)[:, :-1]).all(axis=1)
        least = (found.rows[:, None] + self._more_rows) * self._widths
        valid &= (lengths[:, self._first_buffers] >= least).all(axis=1)
        return np.asarray(valid)


_layout = functools.cache(_Layout)


@functools.cache
def _buffers(table: Table) -> tuple[tuple[str, int], ...]:
    """Type of each column, and index of its first buffer after the validity map."""
    found, place = [], 1
    for column in table.columns:
        found.append((column.type, place))
        place += 3 if column.type == "string" else 2
    return tuple(found)


def _int64(metadata: NDArray[np.uint8], at: int, width: int) -> Ints:
    """Read `width` numbers of each stream from byte `at`."""
    return np.ascontiguousarray(metadata[:, at : at + 8 * width]).view(np.int64)

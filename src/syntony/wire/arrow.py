"""Columns ↔ Arrow IPC streams, checked against the tables of this protocol.

Agents write with nanoarrow, which is small. Readers (the controller and offline tools) use pyarrow,
which validates offsets and lengths.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from syntony.errors import WireError
from syntony.wire.coding import MAX_MESSAGE_BYTES
from syntony.wire.tables import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS = 1 << 18
"""Maximum rows of one batch: far above an agent's second, far below what would stall an insert."""

MAX_SCHEMA_BYTES = 64 << 10
"""Maximum size of a stream's schema, which is cached: far above any table's."""
_ENCAPSULATED = 0xFFFFFFFF
"""Marker before the length of each message of a stream."""

_UNKNOWN: Mapping[str, str | float] = {"string": "", "float32": math.nan, "float64": math.nan}
"""Values of a column that the sender does not have, by the column's type."""
Values = NDArray[Any] | Sequence[str] | Sequence[int] | Sequence[float]


def encode_columns(table: Table, columns: Mapping[str, Values]) -> bytes:
    """Encode one record batch as an Arrow IPC stream.

    Args:
        table: the schema; exactly its columns must be present.
        columns: name → values of shape (rows,); numbers that fit the column's type, or strings.

    Raises:
        WireError: missing or unknown columns, different lengths, or values that do not fit.
    """
    import nanoarrow as na
    from nanoarrow.ipc import StreamWriter

    rows = _common_length(table, columns)
    schema, types = _schemas(table)
    children = [
        na.c_array_from_buffers(kind, rows, _buffers(column, columns[column.name]))
        for column, kind in zip(table.columns, types, strict=True)
    ]
    out = io.BytesIO()
    with StreamWriter.from_writable(out) as writer:
        writer.write_array(na.c_array_from_buffers(schema, rows, [None], children=children))
    return out.getvalue()


@functools.cache
def _schemas(table: Table) -> tuple[Any, list[Any]]:
    """Schemas of the table and of its columns; cached, because agents write every second."""
    import nanoarrow as na

    types = {column.name: getattr(na, column.type)() for column in table.columns}
    return na.c_schema(na.struct(types)), [na.c_schema(kind) for kind in types.values()]


def read_rows(table: Table, data: bytes) -> pa.RecordBatch:
    """Read an Arrow IPC stream as rows with exactly the table's columns, in its order. Values are
    unchecked: `check_values` must pass before any is used.

    Additional columns of another version are dropped; a text or float column that the sender does
    not have is empty or NaN, as in old rows of the store.

    Raises:
        WireError: not Arrow, not this table, compressed, or too many rows.
    """
    import pyarrow as pa

    if len(data) > MAX_MESSAGE_BYTES:
        raise WireError(f"{table.name}: {len(data)} bytes of Arrow, over {MAX_MESSAGE_BYTES}")
    with arrow_errors(table):
        messages = iter(pa.ipc.MessageReader.open_stream(data))
        first = next(messages, None)
        if first is None or first.type != "schema":
            raise WireError(f"{table.name}: no schema")
        found = _schema(table, bytes(first.metadata))
        batches = [
            pa.ipc.read_record_batch(message, found) for message in _record_batches(table, messages)
        ]
        if len(batches) == 1 and found is arrow_schema(table):
            return batches[0]
        return _select_columns(table, pa.Table.from_batches(batches, found))


def check_values(table: Table, rows: pa.Table) -> None:
    """Check offsets, lengths and text of rows that were read from one or several streams. Raises
    `WireError`: a value is invalid or null."""
    with arrow_errors(table):
        rows.validate(full=True)
    for column, values in zip(table.columns, rows.itercolumns(), strict=True):
        if values.null_count:
            raise WireError(f"{table.name}: nulls in column {column.name}")


@contextlib.contextmanager
def arrow_errors(table: Table) -> Iterator[None]:
    """Convert errors of reading Arrow into `WireError`."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, EOFError, struct.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WireError(f"{table.name}: not a valid Arrow stream: {reason}") from error


def _select_columns(table: Table, rows: pa.Table) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [_column(column, rows) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(table))


def _column(column: Column, rows: pa.Table) -> Any:
    import pyarrow as pa

    if column.name in rows.column_names:
        return rows.column(column.name).combine_chunks()
    return pa.repeat(pa.scalar(_UNKNOWN[column.type], _arrow_type(column)), rows.num_rows)


@functools.lru_cache(maxsize=64)
def _schema(table: Table, metadata: bytes) -> pa.Schema:
    """The schema in a stream's first message; the table's own if it is equal. Cached, because all
    senders of one version send the same."""
    import pyarrow as pa

    if len(metadata) > MAX_SCHEMA_BYTES:
        raise WireError(f"{table.name}: a schema of {len(metadata)} bytes")
    if MessageHeader(metadata).big_endian:
        raise WireError(f"{table.name}: big-endian columns are not taken")
    found = pa.ipc.read_schema(
        pa.py_buffer(struct.pack("<Ii", _ENCAPSULATED, len(metadata)) + metadata)
    )
    _check_schema(table, found)
    wanted = arrow_schema(table)
    return wanted if found.equals(wanted) else found


def _record_batches(table: Table, messages: Iterator[pa.ipc.Message]) -> Iterator[pa.ipc.Message]:
    """Check each message before it is unpacked: half a megabyte of compressed columns can declare
    gigabytes.

    Agents compress nothing, so bodies are no larger than the message that holds them.
    """
    rows = 0
    for message in messages:
        if message.type != "record batch":
            raise WireError(f"{table.name}: a {message.type} message is not taken")
        batch = MessageHeader(bytes(message.metadata))
        rows += batch.rows
        if batch.compressed:
            raise WireError(f"{table.name}: compressed columns are not taken")
        if not 0 <= rows <= MAX_ROWS:
            raise WireError(f"{table.name}: {rows} rows in one batch, over {MAX_ROWS}")
        yield message


class MessageHeader:
    """The header of a message, read from its FlatBuffer (Arrow's ``Message.fbs``) without unpacking
    the message, which pyarrow cannot do."""

    def __init__(self, metadata: bytes) -> None:
        self._data = metadata
        message = self._number("<I", 0)
        field = self._field(message, 2)
        self._header = field + self._number("<I", field)

    @property
    def big_endian(self) -> bool:
        """Byte order of a schema."""
        field = self._field(self._header, 0)
        return bool(field and self._number("<h", field))

    @property
    def rows(self) -> int:
        """Number of rows of a record batch."""
        return self._number("<q", self.rows_at) if self.rows_at else 0

    @property
    def rows_at(self) -> int:
        """Offset of a record batch's number of rows."""
        return self._field(self._header, 0)

    @property
    def body_size_at(self) -> int:
        """Offset of the body's size in bytes."""
        return self._field(self._number("<I", 0), 3)

    @property
    def nodes(self) -> tuple[int, int]:
        """Offset of a record batch's column descriptions, 16 bytes each, and their number."""
        return self._vector(1)

    @property
    def buffers(self) -> tuple[int, int]:
        """The same for its buffers."""
        return self._vector(2)

    @property
    def compressed(self) -> bool:
        """Whether a record batch is compressed."""
        return bool(self._field(self._header, 3))

    def _field(self, table: int, number: int) -> int:
        """Offset of a table's field; 0 if it is absent."""
        vtable = table - self._number("<i", table)
        place = 4 + 2 * number
        if place >= self._number("<H", vtable):
            return 0
        offset = self._number("<H", vtable + place)
        return table + offset if offset else 0

    def _vector(self, number: int) -> tuple[int, int]:
        field = self._field(self._header, number)
        at = field + self._number("<I", field)
        return at + 4, self._number("<I", at)

    def _number(self, kind: str, place: int) -> int:
        if place < 0:
            raise ValueError("an offset before the start")
        (value,) = struct.unpack_from(kind, self._data, place)
        return int(value)


@functools.cache
def arrow_schema(table: Table) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(column.name, _arrow_type(column)) for column in table.columns])


def _arrow_type(column: Column) -> pa.DataType:
    import pyarrow as pa

    return pa.string() if column.type == "string" else pa.from_numpy_dtype(np.dtype(column.type))


def _check_schema(table: Table, found: pa.Schema) -> None:
    import pyarrow as pa

    wanted = arrow_schema(table)
    if found.equals(wanted):
        return
    needed = {column.name for column in table.columns if column.type not in _UNKNOWN}
    needed |= {"ts_ns", *table.about, *filter(None, [table.owner])}
    if not needed <= set(found.names) or len(set(found.names)) < len(found.names):
        raise WireError(f"{table.name}: columns {found.names} are not {wanted.names}")
    for field in found:
        known = field.name in wanted.names
        if known and field.type != wanted.field(field.name).type:
            raise WireError(
                f"{table.name}: column {field.name} is {field.type}, "
                f"not {wanted.field(field.name).type}"
            )
        if not known and not (pa.types.is_primitive(field.type) or field.type == pa.string()):
            raise WireError(f"{table.name}: column {field.name[:40]!r} is {field.type}")


def _common_length(table: Table, columns: Mapping[str, Values]) -> int:
    names = {column.name for column in table.columns}
    if columns.keys() != names:
        wrong = sorted(names ^ columns.keys())
        raise WireError(f"{table.name}: missing or unknown columns {', '.join(wrong)}")
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise WireError(f"{table.name}: columns of different lengths {sorted(lengths)}")
    return lengths.pop()


def _converted(column: Column, values: Values) -> NDArray[Any]:
    found = np.asarray(values)
    wanted = np.dtype(column.type)
    if found.dtype == wanted:
        return np.ascontiguousarray(found)
    if found.size == 0:
        return np.empty(0, wanted)
    if wanted.kind == "f" and found.dtype.kind in "iuf":
        return found.astype(wanted)
    if found.dtype.kind not in "iu":
        raise WireError(f"column {column.name}: {found.dtype} does not fit {column.type}")
    limits = np.iinfo(wanted)
    if int(found.min()) < limits.min or int(found.max()) > limits.max:
        raise WireError(f"column {column.name}: a value does not fit {column.type}")
    return found.astype(wanted)


def _buffers(column: Column, values: Values) -> list[Any]:
    """The column's buffers: no validity map, then those of its type."""
    if column.type != "string":
        return [None, _converted(column, values)]
    parts = _encoded(values)
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.fromiter(map(len, parts), np.int32, len(parts)).cumsum(out=offsets[1:])
    return [None, offsets, b"".join(parts)]


def _encoded(values: Values) -> list[bytes]:
    """Encode texts; each distinct text once, because few names occur many times."""
    known = dict.fromkeys(values)
    if any(not isinstance(value, str) for value in known):
        raise WireError("a text column holds something that is not text")
    texts = {value: str(value).encode() for value in known}
    return [texts[value] for value in values]

"""Columns survive the wire, and nothing else gets through."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.arrow_streams import stream_of
from tests.wire.decoded import decode_columns

from syntony.errors import WireError
from syntony.wire.arrow import MAX_ROWS, arrow_schema, encode_columns
from syntony.wire.tables import AGENT, HEARD, PROBE, TABLES, Column, Table

_FLOATS = {"float32": 32, "float64": 64}


def _values(column: Column, rows: int) -> st.SearchStrategy[list[Any]]:
    if column.type == "string":
        element: st.SearchStrategy[Any] = st.text(max_size=12)
    elif column.type in _FLOATS:
        width: Any = _FLOATS[column.type]
        element = st.floats(width=width, allow_nan=False)
    else:
        limits = np.iinfo(column.type)
        element = st.integers(int(limits.min), int(limits.max))
    return st.lists(element, min_size=rows, max_size=rows)


@st.composite
def _filled(draw: st.DrawFn) -> tuple[Table, dict[str, list[Any]]]:
    table = draw(st.sampled_from(list(TABLES.values())))
    rows = draw(st.integers(0, 5))
    return table, {column.name: draw(_values(column, rows)) for column in table.columns}


def _typed(table: Table, columns: dict[str, list[Any]]) -> dict[str, Any]:
    return {
        column.name: columns[column.name]
        if column.type == "string"
        else np.array(columns[column.name], column.type)
        for column in table.columns
    }


@given(_filled())
def test_round_trip(filled: tuple[Table, dict[str, list[Any]]]) -> None:
    table, columns = filled
    assert (
        decode_columns(table, encode_columns(table, _typed(table, columns))).to_pydict() == columns
    )


HEARD_ROW: dict[str, Any] = {"ts_ns": [1], "src": ["a/x"], "dst": ["b/y"], "received": [2]}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"extra": [1]}, "extra"),
        ({"received": [1, 2]}, "different lengths"),
        ({"received": [-1]}, "does not fit uint32"),
        ({"received": [1 << 32]}, "does not fit uint32"),
        ({"received": [1.5]}, "does not fit uint32"),
        ({"received": ["x"]}, "does not fit uint32"),
        ({"src": [7]}, "not text"),
    ],
)
def test_columns_that_do_not_fit(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        encode_columns(HEARD, HEARD_ROW | change)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(WireError, match="received"):
        encode_columns(HEARD, {key: HEARD_ROW[key] for key in ("ts_ns", "src", "dst")})


def _heard(**columns: Any) -> pa.Table:
    return pa.table(HEARD_ROW | columns, schema=arrow_schema(HEARD))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (_heard(src=[None]), "nulls in column src"),
        (_heard().drop_columns(["dst"]), "columns"),
        (_heard().set_column(3, "received", pa.array([2.0])), "received is double, not uint32"),
        (
            _heard().set_column(1, "src", pa.array(["a/x"]).dictionary_encode()),
            "column src is dictionary",
        ),
        (pa.table({"x": [1]}), "columns"),
    ],
)
def test_other_arrow_is_refused(rows: pa.Table, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode_columns(HEARD, stream_of(rows))


def test_text_that_is_not_utf8_is_refused() -> None:
    damaged = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(WireError, match="UTF"):
        decode_columns(HEARD, stream_of(_heard().set_column(1, "src", damaged)))


def test_tables_are_not_interchangeable() -> None:
    for table in (PROBE, AGENT):
        with pytest.raises(WireError):
            decode_columns(table, encode_columns(HEARD, HEARD_ROW))


def _streamed(rows: int, compression: str | None) -> bytes:
    """As pyarrow's own writer makes it."""
    schema = arrow_schema(HEARD)
    table = pa.table(
        {
            "ts_ns": np.zeros(rows, np.int64),
            "src": ["a/x"] * rows,
            "dst": ["b/y"] * rows,
            "received": np.zeros(rows, np.uint32),
        },
        schema=schema,
    )
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_what_would_unpack_to_more_is_refused_unopened(compression: str) -> None:
    """Half a megabyte once unpacked to 11.6 GB."""
    with pytest.raises(WireError, match="compressed columns"):
        decode_columns(HEARD, _streamed(100_000, compression))
    assert decode_columns(HEARD, _streamed(1_000, None)).num_rows == 1_000


def test_rows_are_counted_before_they_are_read() -> None:
    with pytest.raises(WireError, match="rows in one batch"):
        decode_columns(HEARD, _streamed(MAX_ROWS + 1, None))
    assert decode_columns(HEARD, _streamed(MAX_ROWS, None)).num_rows == MAX_ROWS


def test_big_endian_columns_are_refused() -> None:
    """No writer here makes them: the schema's first field, its byte order, is pointed at a number
    that is not 0."""
    data = bytearray(_streamed(3, None))
    begin = 8  # of the first message's FlatBuffer

    def number(kind: str, place: int) -> int:
        return int(struct.unpack_from(kind, data, begin + place)[0])

    def vtable(table: int) -> int:
        return table - number("<i", table)

    message = number("<I", 0)
    field = message + number("<H", vtable(message) + 4 + 2 * 2)
    schema = field + number("<I", field)
    slots = vtable(schema) + 4
    struct.pack_into("<H", data, begin + slots, number("<H", slots + 2))
    with pytest.raises(WireError, match="big-endian"):
        decode_columns(HEARD, bytes(data))

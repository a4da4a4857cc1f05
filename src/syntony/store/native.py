"""ClickHouse's ``Native`` block format: the one columnar input old and new servers share.

A block is the number of columns and of rows, then per column its name, its type and its values:
numbers little-endian one after another, strings each behind its length. Lengths and counts are
LEB128 varints. (ClickHouse documentation, "Native" format.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from syntony.store.schema import sql_type
from syntony.wire.tables import Column

if TYPE_CHECKING:
    import pyarrow as pa


def encode_block(columns: Sequence[Column], rows: pa.Table) -> bytes:
    """One block with the given columns of `rows`."""
    parts = [varint(len(columns)), varint(rows.num_rows)]
    for column in columns:
        parts += [_text(column.name), _text(sql_type(column))]
        parts.append(_values(column, rows.column(column.name)))
    return b"".join(parts)


def varint(value: int) -> bytes:
    """LEB128 of a number ≥ 0."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(text: str) -> bytes:
    data = text.encode()
    return varint(len(data)) + data


def _values(column: Column, values: pa.ChunkedArray) -> bytes:
    if column.type != "string":
        # "<" forces the order of bytes the format wants whatever this machine's is.
        wanted = np.dtype(column.type).newbyteorder("<")
        return bytes(values.to_numpy().astype(wanted, copy=False).data)
    # Names repeat row after row: each distinct one is encoded once.
    coded = values.combine_chunks().dictionary_encode()
    texts = [_text(text) for text in coded.dictionary.to_pylist()]
    return b"".join([texts[index] for index in coded.indices.to_pylist()])

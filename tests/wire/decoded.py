"""Arrow streams of agents, opened for a look."""

from __future__ import annotations

import pyarrow as pa

from syntony.wire.arrow import check_values, read_rows
from syntony.wire.tables import Table


def decode_columns(table: Table, data: bytes) -> pa.Table:
    """The rows of an Arrow IPC stream, checked. Raises `WireError`: not this table, nulls, invalid
    text, or too many rows."""
    rows = pa.Table.from_batches([read_rows(table, data)])
    check_values(table, rows)
    return rows

"""The tables of `syntony.wire.tables` as SQL, for engines old and new."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from syntony.model import DAY_NS, HOUR_NS, S
from syntony.store.layout import ONE_SERVER, Layout
from syntony.wire.tables import Column, ColumnType, Table

BUCKET_NS = 60 * S
"""The sort key begins with the minute, so that a window of seconds reads the rows of a minute and
not of a partition."""
SHORT_RETENTION_DAYS = 7
"""Tables kept no longer than this are partitioned by hour (168 partitions), others by day."""

SHARD = "cityHash64(host)"
"""Expression for a row's shard: all rows of a batch, which has one host, are on one shard."""
ORIGIN = (
    Column("host", "string", "agent that sent the row"),
    Column("stream", "string", "identity of that agent's spool"),
    Column("seq", "uint64", "number of the batch within the stream"),
)
"""First columns of every table: the origin of a row, to deduplicate batches."""

_SQL_TYPES: dict[ColumnType, str] = {
    "int64": "Int64",
    "uint64": "UInt64",
    "uint32": "UInt32",
    "uint16": "UInt16",
    "float32": "Float32",
    "float64": "Float64",
    "string": "String",
}
_CODECS: dict[ColumnType, str] = {"int64": "CODEC(Delta, ZSTD)", "uint64": "CODEC(Delta, ZSTD)"}
_VERSION = re.compile(r"(\d+)\.(\d+)")


class Capabilities(NamedTuple):
    """Features of the engine's version beyond the common subset."""

    low_cardinality: bool
    codecs: bool


def capabilities(version: str) -> Capabilities:
    """From the server's version text, for example ``18.16.1`` or ``26.9.2.1``.

    ``CODEC`` arrived with 19.1 and ``LowCardinality`` left its experimental state with 19.0
    (ClickHouse changelog 2019); an unreadable version gets the common subset.
    """
    match = _VERSION.match(version)
    modern = match is not None and (int(match[1]), int(match[2])) >= (20, 1)
    return Capabilities(low_cardinality=modern, codecs=modern)


def batch_column(table: Table) -> str:
    """Name of the column for the batch number: in `job_collectives`, `seq` is another column."""
    own = any(column.name == "seq" for column in table.columns)
    return "batch_seq" if own else "seq"


def stored_columns(table: Table) -> tuple[Column, ...]:
    """Origin columns, then the table's. A table's `host` is the agent's, and is not repeated."""
    own = any(column.name == "host" for column in table.columns)
    host, stream, seq = ORIGIN
    origin = (stream, seq._replace(name=batch_column(table)))
    return (*(() if own else (host,)), *origin, *table.columns)


def partition_ns(table: Table) -> int:
    return HOUR_NS if table.retention_days <= SHORT_RETENTION_DAYS else DAY_NS


def create_table(table: Table, can: Capabilities, layout: Layout = ONE_SERVER) -> list[str]:
    """Statements that create the table if it is missing."""
    columns = ", ".join(
        f"{column.name} {_column_type(column, can)}" for column in stored_columns(table)
    )
    order = (
        f"PARTITION BY intDiv(ts_ns, {partition_ns(table)}) "
        f"ORDER BY (intDiv(ts_ns, {BUCKET_NS}), {table.about[0]}, ts_ns)"
    )
    return layout.create(table.name, columns, "MergeTree", order, SHARD)


def add_columns(
    table: Table, present: Collection[str], can: Capabilities, layout: Layout = ONE_SERVER
) -> list[str]:
    """Statements that add missing columns to a table of an earlier version.

    In old rows they have the value for "not known": empty text, NaN, or 0.
    """
    return [
        statement
        for column in stored_columns(table)
        if column.name not in present
        for default in (" DEFAULT nan" if column.type.startswith("float") else "",)
        for statement in layout.alter(
            table.name, f"ADD COLUMN {column.name} {_column_type(column, can, default)}"
        )
    ]


def _column_type(column: Column, can: Capabilities, default: str = "") -> str:
    if column.type == "string" and can.low_cardinality:
        return stored_type(column)
    name = sql_type(column)
    codec = f" {_CODECS[column.type]}" if can.codecs and column.type in _CODECS else ""
    return f"{name}{default}{codec}"


def stored_type(column: Column) -> str:
    """The SQL type of a column in an engine of today."""
    name = sql_type(column)
    return f"LowCardinality({name})" if column.type == "string" else name


def sql_type(column: Column) -> str:
    """The plain SQL type of a column, as used in the Native format."""
    return _SQL_TYPES[column.type]


def quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")
    return f"'{escaped}'"

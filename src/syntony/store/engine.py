"""Interface between the SQL of this room and the engine that runs it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import msgspec

from syntony.errors import StoreError
from syntony.model import S
from syntony.store import queries
from syntony.store.layout import Layout
from syntony.wire.tables import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

Scalar = int | float | str | None
Value = Scalar | list[Scalar]
Row = list[Value]
T = TypeVar("T", bound=msgspec.Struct)


class StatementLimit(NamedTuple):
    """Time limit of the statements of one request."""

    end_ns: int
    """End of the request's time, CLOCK_MONOTONIC."""
    quick: bool = False
    """Whether they do not wait for statements of requests that read much."""

    def left_ns(self) -> int:
        """Remaining time. Raises `StoreError`: none is left."""
        left_ns = self.end_ns - time.monotonic_ns()
        if left_ns <= 0:
            raise StoreError("the time for this request is over; ask for a shorter window")
        return left_ns


STATEMENT_LIMIT: ContextVar[StatementLimit | None] = ContextVar("statement limit", default=None)
"""Set where statements answer a person's query; statements of ingest and decisions do not wait for
them. None: an internal statement."""


def bounded(sql: str) -> str:
    """The query, ended by the engine when the request's time is over. Raises `StoreError`: it is
    over already."""
    limit = STATEMENT_LIMIT.get()
    if limit is None:
        return sql
    return f"{sql} SETTINGS max_execution_time = {-(-limit.left_ns() // S)}"


class Engine(Protocol):
    """One database of ClickHouse, in this process or on a server."""

    @property
    def layout(self) -> Layout:
        """The layout of its tables."""

    def execute(self, sql: str) -> None:
        """Run a statement without an answer."""

    def select(self, sql: str) -> list[Row]:
        """Run a query; 64-bit integers come back as integers."""

    def select_since(self, table: Table, first_ns: int, sql: str) -> list[Row]:
        """Run a query about rows of one table at or after `first_ns`; skipped if there are known to
        be none."""

    def insert(self, table: str, columns: Sequence[Column], rows: pa.Table) -> None:
        """Add rows as one block."""

    def close(self) -> None:
        """Close the engine."""


class _JsonCompact(msgspec.Struct):
    data: list[Row]


_decoder = msgspec.json.Decoder(_JsonCompact)


def parse_rows(data: bytes) -> list[Row]:
    """The rows of an answer in the ``JSONCompact`` format."""
    if not data:
        return []
    try:
        return _decoder.decode(data).data
    except (msgspec.DecodeError, ValueError) as error:
        raise StoreError(f"the store's answer is not JSON: {error}") from error


def first_line(message: str) -> str:
    """An engine's error without its stack trace, cut to one line."""
    line = next((line for line in message.splitlines() if line.strip()), "no reason given")
    return line.strip()[:300]


def newest_ns(engine: Engine, table: Table) -> int:
    """The newest instant of a table's rows, fleet time; 0: no rows."""
    present = engine.select(queries.partitions(table, engine.layout))
    if not present:
        return 0
    return integer(engine.select(queries.newest(table, integer(present[-1][0])))[0][0])


def integer(value: Value) -> int:
    """A value of an answer as an integer. Raises `StoreError` if it is none."""
    if type(value) is int:
        return value
    if isinstance(value, int | float):
        return int(value)
    raise StoreError(f"the store's answer has {value!r} in place of a number")


def record(kind: type[T], row: Row) -> T:
    """A row as a record whose fields are the columns, in order. Raises `StoreError`: a value of
    another type."""
    try:
        return msgspec.convert(
            dict(zip(kind.__struct_fields__, row, strict=True)), kind, strict=False
        )
    except msgspec.ValidationError as error:
        raise StoreError(f"the store's answer is not a {kind.__name__}: {error}") from error


def real(value: Value) -> float:
    """A value of an answer as a float. Raises `StoreError` if it is no number."""
    if isinstance(value, int | float):
        return float(value)
    raise StoreError(f"the store's answer has {value!r} in place of a number")

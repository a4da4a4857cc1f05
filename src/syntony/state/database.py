"""What control state needs of a database: transactions, migrations, one controller at a time.

`syntony.state.sqlite` and `syntony.state.postgresql` implement it. SQL is written once, in the
subset that both understand, with ``?`` for values.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import resources
from typing import Any, NamedTuple, Protocol

from syntony.errors import ConfigError, StateError

_MIGRATIONS = "migrations"


class LeaseLostError(StateError):
    """Another controller has taken over this control state: this one must stop."""


class InUseError(ConfigError):
    """Another controller holds this control state: a standby waits for it."""


class Cursor(Protocol):
    """Rows of an answer."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    @property
    def rowcount(self) -> int: ...


class DatabaseConnection(Protocol):
    """An open transaction. Its errors become a `StateError` at the end of the transaction."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Cursor: ...


class Migration(NamedTuple):
    """One step of the schema."""

    number: int
    script: str


class Database(ABC):
    """An open database whose schema is the newest, held by this process alone.

    Thread-safe: one transaction or query at a time. Built with the lease held and the schema known
    to be usable.
    """

    epoch: int
    """Grows with every controller that opens this control state."""
    durable: bool
    """Whether it outlives the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.failures = 0
        """Transactions and queries that have failed."""

    @contextlib.contextmanager
    def transaction(self) -> Iterator[DatabaseConnection]:
        """All of the block's changes, on disk when it ends, or none.

        Raises:
            StateError: the disk is full, the database is locked, gone or damaged.
            LeaseLostError: another controller has taken over.
        """
        with self._lock, self._counted("written"), self._begin() as connection:
            yield connection

    def read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a query. Raises `StateError`, `LeaseLostError`."""
        with self._lock, self._counted("read"):
            return self._query(sql, values)

    @contextlib.contextmanager
    def _counted(self, what: str) -> Iterator[None]:
        try:
            with self._errors(what):
                yield
        except StateError:
            self.failures += 1
            raise

    def check(self) -> None:
        """Ask the database whether this controller still holds it, and say that it is alive. Raises
        as `transaction` does."""
        self.read("SELECT 1")

    @abstractmethod
    def close(self) -> None:
        """Let go; another controller may take over at once."""

    @abstractmethod
    def _begin(self) -> AbstractContextManager[DatabaseConnection]:
        """A transaction that commits at the end of the block, or rolls back."""

    @abstractmethod
    def _query(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _errors(self, what: str) -> AbstractContextManager[None]:
        """Turns the driver's errors into `StateError`."""


def upsert(
    connection: DatabaseConnection, table: str, row: Mapping[str, object], *, key: str = "id"
) -> None:
    """Write one row, in place of the one with the same `key`."""
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    rest = ", ".join(f"{name} = excluded.{name}" for name in row if name != key)
    connection.execute(
        f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {rest}",
        tuple(row.values()),
    )


def take_number(connection: DatabaseConnection, name: str) -> int:
    """The next number of a name, from 1; none is given out twice."""
    row = connection.execute("SELECT value FROM counter WHERE name = ?", (name,)).fetchone()
    number = 1 if row is None else int(row[0]) + 1
    upsert(connection, "counter", {"name": name, "value": number}, key="name")
    return number


def next_epoch(connection: DatabaseConnection) -> int:
    """Number a controller that begins to hold this control state."""
    row = connection.execute("SELECT epoch FROM lease").fetchone()
    epoch = 1 if row is None else int(row[0]) + 1
    upsert(connection, "lease", {"id": 1, "epoch": epoch, "holder": holder()})
    return epoch


def holder() -> str:
    """Names this process to the operator of another one."""
    return f"{socket.gethostname()} pid {os.getpid()}"


def migrations(dialect: str) -> list[Migration]:
    """The steps of the schema in order, as ``sqlite`` or ``postgresql`` reads them.

    A step is ``NNNN_name.sql`` and, for what the dialects write differently,
    ``NNNN_name.DIALECT.sql`` after it.
    """
    folder = resources.files("syntony.state") / _MIGRATIONS
    scripts: dict[int, list[str]] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name.removesuffix(".sql")):
        stem, _, of = entry.name.removesuffix(".sql").partition(".")
        if entry.name.endswith(".sql") and of in {"", dialect}:
            scripts.setdefault(int(stem.partition("_")[0]), []).append(entry.read_text())
    return [Migration(number, "\n".join(parts)) for number, parts in sorted(scripts.items())]


def missing(place: str, steps: Iterable[Migration], applied: Iterable[int]) -> list[Migration]:
    """Steps that a database lacks. Raises `ConfigError`: it has some that this version lacks."""
    steps, applied = list(steps), frozenset(applied)
    unknown = applied - {step.number for step in steps}
    if unknown:
        raise ConfigError(
            f"control state {place} has unknown schema {max(unknown)}; "
            "start the version that wrote it, or a newer one"
        )
    return [step for step in steps if step.number not in applied]

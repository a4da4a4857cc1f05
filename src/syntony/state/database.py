"""Interface of control state to a database: transactions, migrations, one controller at a time.

`syntony.state.sqlite` and `syntony.state.postgresql` implement it. SQL is written in the
subset common to both, with ``?`` for values.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import resources
from typing import Any, NamedTuple, Protocol

from syntony.errors import ConfigError, StateError

_MIGRATIONS = "migrations"
_TIMELINE = "server timeline"
LOST_EPOCHS = 1_000
"""Left out for each promotion of a replica, which may lack the newest epochs: agents have perhaps
obeyed them, and none may be given twice."""


class LeaseLostError(StateError):
    """Another controller has taken over this control state: this one must stop."""


class InUseError(ConfigError):
    """Another controller holds this control state: a standby waits for it."""


class SilentError(ConfigError):
    """The database server does not answer in time: a controller waits for it."""


class Cursor(Protocol):
    """The rows that a statement returned."""

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
    """An open database with the newest schema, held by this process alone.

    Thread-safe: one transaction or query at a time. Built with the lease held and the schema known
    to be usable.
    """

    epoch: int
    """Grows with every controller that opens this control state."""
    durable: bool
    """Whether the state survives the end of the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.failures = 0
        """Number of failed transactions and queries."""
        self.held_ns = time.monotonic_ns()
        """When this controller last had an answer, and thus held the database; on
        CLOCK_MONOTONIC."""

    @contextlib.contextmanager
    def transaction(self) -> Iterator[DatabaseConnection]:
        """Commit all of the block's changes to disk, or none.

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
                self.held_ns = time.monotonic_ns()
        except StateError:
            self.failures += 1
            raise

    def check(self) -> None:
        """Check that this controller still holds the database, and renew its lease. Raises as
        `transaction` does."""
        self.read("SELECT 1")

    @abstractmethod
    def close(self) -> None:
        """Release the database; another controller may take over at once."""

    @abstractmethod
    def _begin(self) -> AbstractContextManager[DatabaseConnection]:
        """A transaction that commits at the end of the block, or rolls back."""

    @abstractmethod
    def _query(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _errors(self, what: str) -> AbstractContextManager[None]:
        """Convert the driver's errors into `StateError`."""


def upsert(
    connection: DatabaseConnection, table: str, row: Mapping[str, object], *, key: str = "id"
) -> None:
    """Insert one row, or replace the one with the same `key`."""
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    rest = ", ".join(f"{name} = excluded.{name}" for name in row if name != key)
    connection.execute(
        f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {rest}",
        tuple(row.values()),
    )


def take_number(connection: DatabaseConnection, name: str) -> int:
    """The next number of a sequence, from 1; each is returned once."""
    row = connection.execute("SELECT value FROM counter WHERE name = ?", (name,)).fetchone()
    number = 1 if row is None else int(row[0]) + 1
    upsert(connection, "counter", {"name": name, "value": number}, key="name")
    return number


def next_epoch(connection: DatabaseConnection, timeline: int = 0) -> int:
    """The epoch for a controller that opens this control state.

    Args:
        timeline: of the server; promoting a replica raises it. 0: unknown.
    """
    row = connection.execute("SELECT epoch FROM lease").fetchone()
    epoch = 1 if row is None else int(row[0]) + 1
    known = connection.execute("SELECT value FROM counter WHERE name = ?", (_TIMELINE,)).fetchone()
    promotions = timeline - (1 if known is None else int(known[0]))
    if timeline and promotions:  # below 0: a copy that another server has read
        epoch += LOST_EPOCHS * max(0, promotions)
        upsert(connection, "counter", {"name": _TIMELINE, "value": timeline}, key="name")
    upsert(connection, "lease", {"id": 1, "epoch": epoch, "holder": holder()})
    return epoch


def holder() -> str:
    """A description of this process for messages of other controllers."""
    return f"{socket.gethostname()} pid {os.getpid()}"


def migrations(dialect: str) -> list[Migration]:
    """The steps of the schema in order, as ``sqlite`` or ``postgresql`` reads them.

    A step is ``NNNN_name.sql``, followed by ``NNNN_name.DIALECT.sql`` for the parts that differ
    between the dialects.
    """
    folder = resources.files("syntony.state") / _MIGRATIONS
    scripts: dict[int, list[str]] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name.removesuffix(".sql")):
        stem, _, of = entry.name.removesuffix(".sql").partition(".")
        if entry.name.endswith(".sql") and of in {"", dialect}:
            scripts.setdefault(int(stem.partition("_")[0]), []).append(entry.read_text())
    return [Migration(number, "\n".join(parts)) for number, parts in sorted(scripts.items())]


def missing(place: str, steps: Iterable[Migration], applied: Iterable[int]) -> list[Migration]:
    """Steps that a database lacks. Raises `ConfigError`: a newer version wrote it."""
    steps, applied = list(steps), frozenset(applied)
    unknown = applied - {step.number for step in steps}
    if unknown:
        raise ConfigError(
            f"control state {place} has unknown schema {max(unknown)}; "
            "start the version that wrote it, or a newer one"
        )
    return [step for step in steps if step.number not in applied]

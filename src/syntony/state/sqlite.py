"""Control state in a SQLite file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from syntony.errors import ConfigError, StateError
from syntony.state.database import (
    Database,
    DatabaseConnection,
    InUseError,
    migrations,
    missing,
    next_epoch,
)

FILE = "control.db"
LOCK_FILE = "control.lock"
_BUSY_S = 5.0
"""How long a transaction waits for another process, such as a backup, to release the file."""
_DAMAGED = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})
_RESTORE = "restore it from a backup, or move it away: agents keep the orders they have"
_MEND = "check the disk's space and permissions; nothing was changed"


class SqliteDatabase(Database):
    """`FILE` in `directory`; in memory when `directory` is None.

    A commit is on disk when it returns (``synchronous=FULL``). `LOCK_FILE` is locked while this is
    open: a second controller is refused.

    Raises:
        ConfigError: the file cannot be opened or written, is damaged, in use, or a newer version
            wrote it. A damaged file is never replaced: it may hold a stop order.
    """

    def __init__(self, directory: Path | None) -> None:
        super().__init__()
        self.durable = directory is not None
        self._place = ":memory:" if directory is None else str(directory / FILE)
        self._held: int | None = None
        try:
            if directory is not None:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._held = _hold(directory / LOCK_FILE)
            # The lock of `Database` serialises all threads.
            self._database = sqlite3.connect(
                self._place, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
        except (sqlite3.Error, OSError) as error:
            self._let_go()
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"control state {self._place}: {reason}; check state_dir") from error
        try:
            self._check_and_migrate()
            with self._begin() as connection:
                self.epoch = next_epoch(connection)
        except sqlite3.Error as error:
            self.close()
            damaged = getattr(error, "sqlite_errorname", "SQLITE_CORRUPT") in _DAMAGED
            advice = _RESTORE if damaged else _MEND
            raise ConfigError(
                f"control state {self._place} is unusable: {error}; {advice}"
            ) from error
        except ConfigError:
            self.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._database.close()
            self._let_go()

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def _check_and_migrate(self) -> None:
        database = self._database
        # Checked first: a file that is refused stays as it is.
        damage = [row[0] for row in database.execute("PRAGMA quick_check(1)") if row[0] != "ok"]
        if damage:
            raise sqlite3.DatabaseError(damage[0])
        version: int = database.execute("PRAGMA user_version").fetchone()[0]
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        applied = set(range(1, version + 1))  # before migrations had a table of their own
        if "schema_migration" in tables:
            applied = {row[0] for row in database.execute("SELECT number FROM schema_migration")}
        steps = migrations("sqlite")
        wanted = missing(self._place, steps, applied)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        if "schema_migration" not in tables:
            known = "".join(f"INSERT INTO schema_migration VALUES ({each});" for each in applied)
            create = "CREATE TABLE schema_migration (number INTEGER PRIMARY KEY);"
            database.executescript(f"BEGIN IMMEDIATE;\n{create}\n{known}\nCOMMIT;")
        for step in wanted:
            # The first version read only user_version: it must refuse this file.
            database.executescript(
                f"BEGIN IMMEDIATE;\n{step.script}\n"
                f"INSERT INTO schema_migration VALUES ({step.number});\n"
                f"PRAGMA user_version = {max(step.number, version)};\nCOMMIT;"
            )

    @contextlib.contextmanager
    def _begin(self) -> Iterator[DatabaseConnection]:
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:  # commits, or rolls back
            yield self._database

    def _query(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        return self._database.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StateError(f"control state {self._place} cannot be {what}: {error}") from error


def _hold(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise InUseError(
            f"control state {path.parent} is in use by another controller; stop it, or choose "
            "another state_dir"
        ) from error
    return descriptor

"""The SQLite file of control state: opening, checking, numbered migrations."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from syntony.errors import ConfigError, StateError

FILE = "control.db"
_BUSY_S = 5.0
"""How long a transaction waits for another process, for example a backup, to let go of the file."""
_MIGRATIONS = "migrations"


def connect(directory: Path | None) -> sqlite3.Connection:
    """Open `FILE` in `directory` with the newest schema; in memory when `directory` is None.

    A commit has reached the disk when it returns (``synchronous=FULL``).

    Raises:
        ConfigError: the file cannot be opened, is damaged, or a newer version wrote it. A damaged
            file is never replaced: it may hold a stop order.
    """
    place = ":memory:" if directory is None else str(directory / FILE)
    try:
        if directory is not None:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One lock in `ControlState` serialises all threads.
        database = sqlite3.connect(
            place, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
    except (sqlite3.Error, OSError) as error:
        raise ConfigError(f"control state {place}: {error}; check state_dir") from error
    try:
        # Checked first: a file that is refused stays as it is.
        damage = [row[0] for row in database.execute("PRAGMA quick_check(1)") if row[0] != "ok"]
        if damage:
            raise sqlite3.DatabaseError(damage[0])
        _migrate(database, place)
    except sqlite3.Error as error:
        database.close()
        raise ConfigError(
            f"control state {place} is unusable: {error}; restore it from a backup, or move it "
            "away: agents keep the orders they have"
        ) from error
    except ConfigError:
        database.close()
        raise
    return database


@contextlib.contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All of the block's changes, or none.

    Raises:
        StateError: the disk is full, the file is locked for long, or damaged; nothing changed.
    """
    try:
        database.execute("BEGIN IMMEDIATE")
        with database:  # commits, or rolls back
            yield database
    except sqlite3.Error as error:
        raise StateError(f"control state cannot be written: {error}") from error


def _migrate(database: sqlite3.Connection, place: str) -> None:
    scripts = migrations()
    found: int = database.execute("PRAGMA user_version").fetchone()[0]
    if found > len(scripts):
        raise ConfigError(
            f"control state {place} has schema {found}, this version knows up to {len(scripts)}; "
            "start the version that wrote it, or a newer one"
        )
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    for number, script in enumerate(scripts[found:], start=found + 1):
        database.executescript(
            f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;"
        )


def migrations() -> list[str]:
    """SQL scripts in order; script N takes the schema from version N-1 to N."""
    folder = resources.files("syntony.state") / _MIGRATIONS
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")),
                   key=lambda entry: entry.name)  # fmt: skip
    return [entry.read_text() for entry in files]

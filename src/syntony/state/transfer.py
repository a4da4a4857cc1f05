"""Moves control state from a SQLite file to PostgreSQL, at the first start there."""

from __future__ import annotations

import logging
from pathlib import Path

from syntony.state.control import ControlState
from syntony.state.database import Database, DatabaseConnection
from syntony.state.sqlite import FILE, SqliteDatabase

_log = logging.getLogger(__name__)
_OWN = frozenset({"schema_migration", "lease", "sqlite_sequence"})
DONE = ".imported"
"""Suffix of the file's name after the import."""


def import_sqlite(state: ControlState, directory: Path) -> None:
    """Copy all tables of a SQLite control state into one that is still empty, in one transaction.
    Raises `ConfigError`, `StateError`: nothing has been copied."""
    path = directory / FILE
    if not path.exists() or state.read("SELECT 1 FROM change LIMIT 1"):
        return
    source = SqliteDatabase(directory)
    try:
        with state.transaction() as connection:
            for (table,) in source.read("SELECT name FROM sqlite_master WHERE type = 'table'"):
                if table not in _OWN:
                    _copy(source, connection, table)
    finally:
        source.close()
    path.rename(path.with_name(path.name + DONE))
    _log.warning("imported into control state: %s", path)


def _copy(source: Database, connection: DatabaseConnection, table: str) -> None:
    columns = [row[1] for row in source.read(f"PRAGMA table_info({table})")]
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    for row in source.read(f"SELECT {names} FROM {table}"):
        connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", row)
    last = source.read("SELECT seq FROM sqlite_sequence WHERE name = ?", table)
    if last:
        # Numbers go on where they were, also those of rows that are gone.
        connection.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', 'number'), ?, ?)",
            (max(1, last[0][0]), last[0][0] > 0),
        )

"""chdb: the ClickHouse engine in this process, on a directory."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.errors import MissingError, StoreError
from syntony.model import S
from syntony.store.engine import (
    STATEMENT_LIMIT,
    Row,
    bounded,
    first_line,
    integer,
    newest_ns,
    parse_rows,
)
from syntony.store.layout import ONE_SERVER, Layout
from syntony.store.schema import stored_type
from syntony.wire.tables import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

DATABASE = "syntony"
BOUNDS = {
    # Idle threads keep their stacks and allocation caches.
    "max_thread_pool_free_size": 4,
    # By default 5 GiB each, and 100 and 128 MiB.
    "mark_cache_size": 64 << 20,
    "primary_index_cache_size": 64 << 20,
    "index_mark_cache_size": 8 << 20,
    "query_condition_cache_size": 4 << 20,
    "compiled_expression_cache_size": 8 << 20,
}
"""Server settings: the engine's defaults suit a machine that runs nothing else."""
TABLE_BOUNDS = {
    # Small inserts leave parts to be cleaned up; beyond this many (100), by up to 128 threads.
    "concurrent_part_removal_threshold": 1_000_000,
    # Every insert leaves a part: by default (5) they are merged too often, each time a few.
    "merge_selector_base": 10,
}
"""Settings of all tables."""
_BLOCK_SETTINGS = (
    "SETTINGS max_insert_threads = 1, max_partitions_per_insert_block = 0, max_threads = 1"
)
_NO_NULLS = ", input_format_null_as_default = 0, insert_null_as_default = 0"


def leave_closed_directory() -> None:
    """Go to `/` from a directory that this user may not enter, as root's own under `runuser`, or
    that is gone: chdb enters its own while it is imported, and must be able to return."""
    try:
        os.chdir(os.getcwd())  # noqa: PTH109 - what chdb does
    except OSError:
        os.chdir("/")


class EmbeddedEngine:
    """The engine on a directory, which one process at a time may use. Thread-safe: at a time it
    runs one internal statement, one query of requests that read much, and one of the others."""

    def __init__(self, directory: Path) -> None:
        """Open the directory, and create missing files.

        Raises:
            MissingError: the engine is not installed.
            StoreError: the directory cannot be used, or another process uses it.
        """
        leave_closed_directory()
        try:
            from chdb.session import Session
        except ImportError as error:
            raise MissingError(
                "the embedded store needs chdb; pip install 'syntony[controller]'"
            ) from error
        if "?" in str(directory):
            raise StoreError(f"store {directory}: choose a path without a question mark")
        self._lock_fd = _claim(directory)
        files = directory / "chdb"
        self._new = None if files.exists() else files
        self._connections: list[_Connection] = []
        self._found_ns: dict[str, int] = {}
        self._inserted_ns: dict[str, int] = {}
        """Newest instant of each table: from its first query, and from inserts since. No other
        process writes here."""
        place = f"{files}?config-file={self._configured()}"
        try:
            for _ in range(3):
                self._connections.append(_Connection(Session(place)))
            self._own, *self._requested = self._connections
            self.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
            for each in self._connections:
                each.query(f"USE {DATABASE}")
        except BaseException as error:
            self.abandon()
            if isinstance(error, RuntimeError):
                raise StoreError(f"store {directory}: {first_line(str(error))}") from error
            raise

    @property
    def layout(self) -> Layout:
        return ONE_SERVER

    def execute(self, sql: str) -> None:
        self._own.query(sql)

    def select(self, sql: str) -> list[Row]:
        limit = STATEMENT_LIMIT.get()
        connection = self._own if limit is None else self._requested[limit.quick]
        return parse_rows(connection.query(sql))

    def select_since(self, table: Table, first_ns: int, sql: str) -> list[Row]:
        if table.name not in self._found_ns:
            self._found_ns[table.name] = newest_ns(self, table)
        known_ns = max(self._found_ns[table.name], self._inserted_ns.get(table.name, 0))
        return self.select(sql) if known_ns >= first_ns else []

    def insert(self, table: str, columns: Sequence[Column], rows: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        # Before they are there, so that none is overlooked.
        last_ns = integer(pc.max(rows.column("ts_ns")).as_py())
        self._inserted_ns[table] = max(last_ns, self._inserted_ns.get(table, 0))
        names = ", ".join(column.name for column in columns)
        # The engine reads Arrow itself; an unnamed file in memory hands it over without a copy
        # through text.
        fd = os.memfd_create("syntony-insert", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{fd}"
        try:
            encoded = _with_dictionaries(rows)
            with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, encoded.schema) as writer:
                writer.write_table(encoded)
            source = f"'{path}', 'ArrowStream'"
            settings = _BLOCK_SETTINGS
            if not any(column.null_count for column in encoded.itercolumns()):
                # Else every column is read with a mask of what is missing, and converted.
                types = ", ".join(f"{column.name} {stored_type(column)}" for column in columns)
                source += f", '{types}'"
                settings += _NO_NULLS
            self._own.query(
                f"INSERT INTO {table} ({names}) SELECT {names} FROM file({source}) {settings}"
            )
        finally:
            os.close(fd)

    def close(self) -> None:
        self._close_files()
        os.close(self._lock_fd)

    def abandon(self) -> None:
        """Close a store that could not be made or opened. One that was not there before is removed:
        of a full disk it has files that the engine cannot read again."""
        self._close_files()
        if self._new is not None:
            shutil.rmtree(self._new, ignore_errors=True)
        os.close(self._lock_fd)

    def _close_files(self) -> None:
        for each in self._connections:
            each.close()
        os.close(self._config_fd)

    def _configured(self) -> str:
        """The engine's configuration as a file, which can also have settings of existing tables.

        The file is unnamed, since the engine would end its name at signs such as ``&``.
        """
        server, tables = (
            "".join(f"<{name}>{value}</{name}>" for name, value in settings.items())
            for settings in (BOUNDS, TABLE_BOUNDS)
        )
        self._config_fd = os.memfd_create("syntony-engine", os.MFD_CLOEXEC)
        text = f"<clickhouse>{server}<merge_tree>{tables}</merge_tree></clickhouse>\n"
        os.write(self._config_fd, text.encode())
        return f"/proc/self/fd/{self._config_fd}"


class _Connection:
    """A connection that runs one statement at a time."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._lock = threading.Lock()

    def query(self, sql: str) -> bytes:
        """The answer. Raises `StoreError`: it fails, or the request's time is over."""
        limit = STATEMENT_LIMIT.get()
        if not self._lock.acquire(timeout=-1 if limit is None else limit.left_ns() / S):
            raise StoreError("the store is busy with another request; ask again in a while")
        try:
            result = self._session.query(bounded(sql), "JSONCompact")
        except RuntimeError as error:
            with suppress(RuntimeError):  # else the next answer begins with what this one has left
                self._session.query("SELECT 1", "Null")
            raise StoreError(f"store: {first_line(str(error))}") from error
        finally:
            self._lock.release()
        return bytes(result.bytes() or b"") if result is not None else b""

    def close(self) -> None:
        with self._lock:
            self._session.close()


def _with_dictionaries(rows: pa.Table) -> pa.Table:
    """Dictionary-encode text columns, as the engine stores them, to save it the look-ups."""
    import pyarrow as pa

    rows = rows.combine_chunks()
    encoded = [
        column.dictionary_encode() if pa.types.is_string(column.type) else column
        for column in rows.itercolumns()
    ]
    return pa.Table.from_arrays(encoded, names=rows.column_names)


def _claim(directory: Path) -> int:
    """Lock the directory for this process; returns the descriptor of the lock."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"store {directory}: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise StoreError(
            f"store {directory} is in use by another controller; stop it or choose another path"
        ) from error
    return fd

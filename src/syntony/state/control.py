"""Typed access to control state: the stop switch, modes, probe keys and the audit log.

Every change is one transaction that also writes its row of the audit log: there is no change
without a row, and no row without a change.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from pathlib import Path
from typing import Any, NamedTuple, Self

from syntony.errors import StateError
from syntony.state.database import connect, transaction
from syntony.wire.control import Change, Issuer
from syntony.wire.failover import Switch

KEY_BYTES = 16
MAX_KEY_ID = 0xFF


class ProbeKey(NamedTuple):
    """A fleet key of probe packets."""

    epoch: int
    key_id: int
    """Number in every packet, 1 to `MAX_KEY_ID`; neighbouring epochs differ."""
    secret: bytes


class ControlState:
    """Control state of one controller. Thread-safe; methods block on the disk.

    Args:
        directory: where the file is; None keeps everything in memory, so a restart forgets it.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(self, directory: Path | None) -> None:
        self._database = connect(directory)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._database.close()

    def switch(self) -> Switch | None:
        """The stop switch; None if it was never set."""
        row = self._one("SELECT stopped, at_ns, issuer FROM switch")
        if row is None:
            return None
        return Switch(stopped=bool(row[0]), at_ns=row[1], by=row[2])

    def set_switch(self, switch: Switch, issuer: Issuer, comment: str) -> None:
        """Record a new position of the stop switch. Raises `StateError`: it is not recorded."""
        before = self.switch()
        was = "" if before is None else _position(before)
        with self._lock, transaction(self._database) as database:
            database.execute(
                "INSERT INTO switch (id, stopped, at_ns, issuer) VALUES (1, ?, ?, ?) ON CONFLICT "
                "(id) DO UPDATE SET stopped = excluded.stopped, at_ns = excluded.at_ns, "
                "issuer = excluded.issuer",
                (switch.stopped, switch.at_ns, switch.by),
            )
            change = ("failover switch", was, _position(switch), comment)
            _log(database, switch.at_ns, issuer, change)

    def mode(self, what: str) -> str | None:
        """The mode an operator has set for `what`; None where the configuration holds."""
        row = self._one("SELECT mode FROM mode WHERE what = ?", what)
        return None if row is None else str(row[0])

    def set_mode(
        self, what: str, mode: str, was: str, *, at_ns: int, issuer: Issuer, comment: str
    ) -> None:
        """Record a mode. Raises `StateError`: it is not recorded.

        Args:
            was: the mode in force until now, which may come from the configuration.
        """
        with self._lock, transaction(self._database) as database:
            database.execute(
                "INSERT INTO mode (what, mode) VALUES (?, ?) "
                "ON CONFLICT (what) DO UPDATE SET mode = excluded.mode",
                (what, mode),
            )
            _log(database, at_ns, issuer, (f"{what} mode", was, mode, comment))

    def probe_key(self) -> ProbeKey:
        """The key in force; the first call of a fleet's life draws it. Raises `StateError`."""
        with self._lock, transaction(self._database) as database:
            row = database.execute(
                "SELECT epoch, key_id, secret FROM probe_key ORDER BY epoch DESC LIMIT 1"
            ).fetchone()
            if row is None:
                row = (1, 1 + secrets.randbelow(MAX_KEY_ID), secrets.token_bytes(KEY_BYTES))
                database.execute(
                    "INSERT INTO probe_key (epoch, key_id, secret) VALUES (?, ?, ?)", row
                )
        return ProbeKey(*row)

    def record(
        self, what: str, became: str, *, at_ns: int, issuer: Issuer, was: str = "", comment: str
    ) -> None:
        """Log a change whose state is kept elsewhere. Raises `StateError`."""
        with self._lock, transaction(self._database) as database:
            _log(database, at_ns, issuer, (what, was, became, comment))

    def changes(self, since_ns: int, limit: int) -> tuple[Change, ...]:
        """The newest `limit` changes at or after `since_ns`, oldest first. Raises `StateError`."""
        rows = self._all(
            "SELECT number, at_ns, who, origin, what, was, became, comment FROM change "
            "WHERE at_ns >= ? ORDER BY number DESC LIMIT ?",
            since_ns,
            limit,
        )
        return tuple(
            Change(
                number=row[0], at_ns=row[1], who=row[2], origin=row[3], what=row[4], before=row[5],
                after=row[6], comment=row[7],
            )
            for row in reversed(rows)
        )  # fmt: skip

    def _one(self, sql: str, *values: object) -> tuple[Any, ...] | None:
        rows = self._all(sql, *values)
        return rows[0] if rows else None

    def _all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._database.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise StateError(f"control state cannot be read: {error}") from error


def _position(switch: Switch) -> str:
    return "stopped" if switch.stopped else "running"


def _log(
    database: sqlite3.Connection, at_ns: int, issuer: Issuer, change: tuple[str, str, str, str]
) -> None:
    database.execute(
        "INSERT INTO change (at_ns, who, origin, what, was, became, comment) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (at_ns, issuer.who, issuer.origin, *change),
    )

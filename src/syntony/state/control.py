"""Typed access to control state: the stop switch, modes, probe keys and the audit log.

Every change is one transaction that also writes its row of the audit log: there is no change
without a row, and no row without a change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from syntony.state.database import Database, DatabaseConnection, take_number, upsert
from syntony.state.sqlite import SqliteDatabase
from syntony.wire.control import Change, Issuer
from syntony.wire.failover import Switch


class ControlState:
    """Control state of one controller. Thread-safe; methods block on the disk.

    Args:
        place: the directory of a SQLite file, or ``postgresql://…``; None keeps everything in
            memory, so that a restart forgets it.

    Raises:
        ConfigError: it cannot be used, or another controller uses it.
    """

    def __init__(self, place: Path | str | None) -> None:
        self.database: Database
        if isinstance(place, str):
            from syntony.state.postgresql import PostgresDatabase

            self.database = PostgresDatabase(place)
        else:
            self.database = SqliteDatabase(place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the control state for another controller."""
        self.database.close()

    @property
    def epoch(self) -> int:
        """The epoch of this controller: it grows with each that opens this control state."""
        return self.database.epoch

    @property
    def durable(self) -> bool:
        """Whether the state survives the end of the process."""
        return self.database.durable

    @contextlib.contextmanager
    def transaction(self) -> Iterator[DatabaseConnection]:
        """Commit all of the block's changes, or none. Raises `StateError`: none was made."""
        with self.database.transaction() as connection:
            yield connection

    def read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a query. Raises `StateError`."""
        return self.database.read(sql, *values)

    def switch(self) -> Switch | None:
        """The stop switch; None if it was never set."""
        rows = self.read("SELECT stopped, at_ns, issuer, epoch FROM switch")
        if not rows:
            return None
        row = rows[0]
        return Switch(stopped=bool(row[0]), at_ns=row[1], by=row[2], epoch=row[3])

    def set_switch(self, switch: Switch, issuer: Issuer, comment: str) -> None:
        """Record a new setting of the stop switch. Raises `StateError`: it is not recorded, as far
        as known; repeated, it is recorded once."""
        before = self.switch()
        if before == switch:
            return  # the commit before was carried out, and its answer was lost
        was = "" if before is None else _position(before)
        with self.transaction() as connection:
            row = {"id": 1, "stopped": int(switch.stopped), "at_ns": switch.at_ns}
            upsert(connection, "switch", {**row, "issuer": switch.by, "epoch": switch.epoch})
            change = ("failover switch", was, _position(switch), comment)
            log_change(connection, switch.at_ns, issuer, change)

    def mode(self, what: str) -> str | None:
        """The mode an operator has set for `what`; None where the configuration holds."""
        rows = self.read("SELECT mode FROM mode WHERE what = ?", what)
        return str(rows[0][0]) if rows else None

    def set_mode(
        self, what: str, mode: str, was: str, *, at_ns: int, issuer: Issuer, comment: str
    ) -> None:
        """Record a mode. Raises `StateError`: it is not recorded.

        Args:
            was: the mode in force until now, which may come from the configuration.
        """
        with self.transaction() as connection:
            upsert(connection, "mode", {"what": what, "mode": mode}, key="what")
            log_change(connection, at_ns, issuer, (f"{what} mode", was, mode, comment))

    def take_number(self, name: str) -> int:
        """The next number of a sequence, from 1; each is returned once. Raises `StateError`."""
        with self.transaction() as connection:
            return take_number(connection, name)

    def record(self, what: str, became: str, *, at_ns: int, issuer: Issuer, comment: str) -> None:
        """Log a change whose state is stored elsewhere. Raises `StateError`."""
        with self.transaction() as connection:
            log_change(connection, at_ns, issuer, (what, "", became, comment))

    def changes(self, since_ns: int, limit: int) -> tuple[Change, ...]:
        """The newest `limit` changes at or after `since_ns`, oldest first. Raises `StateError`."""
        rows = self.read(
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


def _position(switch: Switch) -> str:
    return "stopped" if switch.stopped else "running"


def log_change(
    connection: DatabaseConnection, at_ns: int, issuer: Issuer, change: tuple[str, str, str, str]
) -> None:
    """Add a row to the audit log, in the transaction that makes the change.

    Args:
        at_ns: fleet time.
        change: what, before, after, comment.
    """
    connection.execute(
        "INSERT INTO change (at_ns, who, origin, what, was, became, comment) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (at_ns, issuer.who, issuer.origin, *change),
    )

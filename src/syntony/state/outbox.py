"""Notifications to receivers, from the change that causes them until they are delivered."""

from __future__ import annotations

from typing import NamedTuple

from syntony.state.control import ControlState
from syntony.state.database import DatabaseConnection


class QueuedMessage(NamedTuple):
    number: int
    """Unique among all messages of this control state; later messages have higher ones."""
    incident: int
    """Number of the incident that it is about; 0: queued by an older version."""


class Outbox:
    """Thread-safe."""

    def __init__(self, state: ControlState) -> None:
        self._state = state

    def append(
        self, connection: DatabaseConnection, receiver: str, incident: int, body: str
    ) -> None:
        """Add a message, as JSON, in the transaction of the change that it reports."""
        connection.execute(
            "INSERT INTO outbox (receiver, incident, body) VALUES (?, ?, ?)",
            (receiver, incident, body),
        )

    def shed(self, connection: DatabaseConnection, receiver: str, keep: int) -> int:
        """Drop the oldest messages beyond `keep`; returns how many."""
        newest = connection.execute(
            "SELECT number FROM outbox WHERE receiver = ? ORDER BY number DESC LIMIT 1 OFFSET ?",
            (receiver, keep),
        ).fetchone()
        if newest is None:
            return 0
        return connection.execute(
            "DELETE FROM outbox WHERE receiver = ? AND number <= ?", (receiver, newest[0])
        ).rowcount

    def queued(self, receiver: str) -> list[QueuedMessage]:
        """All messages that wait for a receiver, oldest first. Raises `StateError`."""
        rows = self._state.read(
            "SELECT number, incident FROM outbox WHERE receiver = ? ORDER BY number", receiver
        )
        return [QueuedMessage(*row) for row in rows]

    def body(self, number: int) -> str | None:
        """A message as JSON; None: it was dropped meanwhile. Raises `StateError`."""
        rows = self._state.read("SELECT body FROM outbox WHERE number = ?", number)
        return str(rows[0][0]) if rows else None

    def remove(self, number: int) -> None:
        """Remove a message that is delivered or given up. Raises `StateError`: it is sent again."""
        with self._state.transaction() as connection:
            connection.execute("DELETE FROM outbox WHERE number = ?", (number,))

    def waiting(self, receiver: str) -> int:
        """How many messages wait for a receiver. Raises `StateError`."""
        found = self._state.read("SELECT count(*) FROM outbox WHERE receiver = ?", receiver)
        return int(found[0][0])

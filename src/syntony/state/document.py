"""Values of control state that are replaced as a whole."""

from __future__ import annotations

import logging
from typing import Generic, TypeVar

import msgspec

from syntony.state.control import ControlState
from syntony.state.database import DatabaseConnection, upsert

_log = logging.getLogger(__name__)
T = TypeVar("T", bound=msgspec.Struct)


class Document(Generic[T]):
    """One value under a name, kept as JSON.

    Args:
        name: key of the value; appears in messages.
    """

    def __init__(self, state: ControlState, name: str, kind: type[T]) -> None:
        self._state = state
        self._name = name
        self._kind = kind

    def load(self) -> T | None:
        """The value; None if there is none, or (with a warning) if this version cannot read it,
        which is then kept under another name. Raises `StateError`: control state cannot be read."""
        rows = self._state.read("SELECT body FROM document WHERE name = ?", self._name)
        if not rows:
            return None
        try:
            return msgspec.json.decode(rows[0][0], type=self._kind)
        except msgspec.DecodeError as error:
            _log.warning("%s starts empty, saved value unreadable: %s", self._name, error)
        aside = {"name": f"{self._name} (unreadable)", "body": rows[0][0]}
        with self._state.transaction() as connection:
            upsert(connection, "document", aside, key="name")
        return None

    def save(self, value: T) -> None:
        """Replace the value. Raises `StateError`: the previous one stays."""
        with self._state.transaction() as connection:
            self.put(connection, value)

    def put(self, connection: DatabaseConnection, value: T) -> None:
        """Replace the value as part of a transaction."""
        row = {"name": self._name, "body": msgspec.json.encode(value).decode()}
        upsert(connection, "document", row, key="name")

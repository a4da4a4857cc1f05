"""The incident book in control state: incidents, streaks, silences and used numbers."""

from __future__ import annotations

from typing import Any

import msgspec

from syntony.alerts.incidents import BookState, Incident, Streak
from syntony.alerts.silences import Silence
from syntony.errors import StateError
from syntony.state.control import ControlState
from syntony.state.database import DatabaseConnection, upsert

_KINDS: dict[str, tuple[str, Any]] = {
    "incident": ("number", Incident),
    "streak": ("name", Streak),
    "silence": ("number", Silence),
}
"""For each table its key and the type of its bodies."""
_Rows = dict[tuple[str, int | str], str]
"""(table, key) to body."""


class IncidentStore:
    """Loads the book, and writes its changes. Not thread-safe: the owner must lock."""

    def __init__(self, state: ControlState) -> None:
        self._state = state
        self._stored: _Rows = {}
        self._final: set[int] = set()
        """Incidents that are stored as over: they do not change unless they reopen."""

    def load(self) -> BookState:
        """The book as of the last transaction. Raises `StateError`."""
        numbers = dict(self._state.read("SELECT name, value FROM counter"))
        found: dict[str, dict[Any, Any]] = {}
        self._stored = {}
        for table, (key, kind) in _KINDS.items():
            rows = self._state.read(f"SELECT {key}, body FROM {table} ORDER BY {key}")
            self._stored |= {(table, name): body for name, body in rows}
            found[table] = {name: _decoded(body, kind, table, name) for name, body in rows}
        incidents = list(found["incident"].values())
        self._final = {each.number for each in incidents if each.over}
        return BookState(
            next_number=numbers.get("incident", 0) + 1,
            incidents=incidents,
            streaks=found["streak"],
            silences=list(found["silence"].values()),
            next_silence=numbers.get("silence", 0) + 1,
        )

    def differs(self, book: BookState) -> bool:
        """Whether there is anything to save."""
        return self._rows(book) != self._stored

    def save(self, connection: DatabaseConnection, book: BookState) -> None:
        """Write the changes since the last `load` or `save`; after a failed transaction call
        `load` first."""
        rows = self._rows(book)
        for place, body in rows.items():
            if self._stored.get(place) != body:
                table, name = place
                key = _KINDS[table][0]
                upsert(connection, table, {key: name, "body": body}, key=key)
        for table, name in self._stored.keys() - rows.keys():
            key = _KINDS[table][0]
            connection.execute(f"DELETE FROM {table} WHERE {key} = ?", (name,))
        for name, following in (("incident", book.next_number), ("silence", book.next_silence)):
            upsert(connection, "counter", {"name": name, "value": following - 1}, key="name")
        self._stored = rows
        self._final = {each.number for each in book.incidents if each.over}

    def _rows(self, book: BookState) -> _Rows:
        rows: _Rows = {}
        for each in book.incidents:
            place = ("incident", each.number)
            final = not each.live and each.number in self._final
            rows[place] = self._stored[place] if final else _encoded(each)
        rows |= {("streak", name): _encoded(each) for name, each in book.streaks.items()}
        return rows | {("silence", each.number): _encoded(each) for each in book.silences}


def _encoded(record: msgspec.Struct) -> str:
    return msgspec.json.encode(record).decode()


def _decoded(body: str, kind: Any, table: str, name: object) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise StateError(f"control state: {table} {name} cannot be read: {error}") from error

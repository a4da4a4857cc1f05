"""History of incidents as rows of the store, kept longer than the 30 days of the incident book.

Rows wait here for the next insert; a crash in between loses history rows, but never an incident or
a page, which are on disk before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from syntony.alerts.incidents import ChangeKind, IncidentChange
from syntony.controller.batches import BatchPiece
from syntony.controller.own_rows import OwnRows
from syntony.wire.tables import INCIDENT

_NOTIFICATIONS = frozenset({ChangeKind.PAGE, ChangeKind.CLEAR})
"""Notifications are not part of an incident's history."""


class IncidentHistory:
    """Not thread-safe: its service's lock protects it."""

    def __init__(self) -> None:
        self._waiting: list[dict[str, Any]] = []
        self._own_rows = OwnRows(INCIDENT)

    def add(self, changes: Iterable[IncidentChange]) -> None:
        """Take changes, in their current state."""
        self._waiting += [_row(change) for change in changes if change.kind not in _NOTIFICATIONS]

    @property
    def waiting(self) -> bool:
        """Whether there are rows; for any thread."""
        return bool(self._waiting)

    def rows(self) -> BatchPiece | None:
        """All waiting rows; None if there are none."""
        records, self._waiting = self._waiting, []
        return self._own_rows.piece(records)


def _row(change: IncidentChange) -> dict[str, Any]:
    fields = msgspec.to_builtins(change.incident)
    return {
        **{name: fields[name] for name in _COPIED},
        "ts_ns": change.at_ns,
        "change": change.kind.value,
        "evidence": "\n".join(fields["evidence"]),
        "jobs": ", ".join(fields["jobs"]),
    }


_COPIED = (
    "number", "rule", "subject", "severity", "state", "summary", "remedy", "opened_ns",
    "resolved_ns", "value", "worst", "cause", "reopened", "repeats", "acknowledged_by", "comment",
)  # fmt: skip

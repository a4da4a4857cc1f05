"""What happens to incidents, as rows of the store: the book forgets after 30 days, the store later.

Rows wait here for the next insert; a crash in between loses rows of the history, never an incident
or a page: those are on disk before.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from syntony.alerts.incidents import Change, ChangeKind
from syntony.controller.batches import Piece
from syntony.controller.solve import ORIGIN_HOST
from syntony.wire.arrow import arrow_schema
from syntony.wire.tables import INCIDENT

_TOLD_ELSEWHERE = frozenset({ChangeKind.PAGE, ChangeKind.CLEAR})
"""What was reported to whom is not what became of the incident."""


class IncidentHistory:
    """Not thread-safe: its service's lock protects it."""

    def __init__(self) -> None:
        self._waiting: list[dict[str, Any]] = []
        self._stream = secrets.token_hex(16)
        self._seq = 0

    def add(self, changes: Iterable[Change]) -> None:
        """Take changes, as they are now."""
        self._waiting += [_row(change) for change in changes if change.kind not in _TOLD_ELSEWHERE]

    def rows(self) -> Piece | None:
        """Everything that waits; None for nothing."""
        import pyarrow as pa

        if not self._waiting:
            return None
        records, self._waiting = self._waiting, []
        self._seq += 1
        instants = [record["ts_ns"] for record in records]
        rows = pa.RecordBatch.from_pylist(records, schema=arrow_schema(INCIDENT))
        return Piece(
            INCIDENT, ORIGIN_HOST, self._stream, self._seq, rows, min(instants), max(instants),
            check=False,
        )  # fmt: skip


def _row(change: Change) -> dict[str, Any]:
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

"""Queries on incidents: the newest row of each."""

from __future__ import annotations

from typing import Any

from syntony.store.engine import Engine, Row, integer, real
from syntony.store.queries import window
from syntony.wire.tables import INCIDENT

MAX_ROWS = 10_000
_TEXTS = (
    "rule", "subject", "severity", "state", "summary", "remedy", "evidence", "jobs",
    "acknowledged_by", "comment",
)  # fmt: skip
_NUMBERS = ("resolved_ns", "cause", "reopened", "repeats")
_REALS = ("value", "worst")
FAR_NS = 1 << 62
"""An instant after all others."""


class IncidentRows:
    """Queries on incidents; as thread-safe as the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def since(self, first_ns: int) -> list[dict[str, Any]]:
        """Incidents that changed at or after this instant, newest first, at most `MAX_ROWS`; in
        the form of `alerts.render.plain`, without the instants as text. Fields without a column
        are empty."""
        return [_plain(row) for row in self._engine.select(_since(first_ns))]


def _since(first_ns: int) -> str:
    # Numbers may repeat where the controller's state was lost: the opening time distinguishes them.
    newest = ", ".join(f"argMax({name}, ts_ns)" for name in (*_TEXTS, *_NUMBERS, *_REALS))
    return (
        "SELECT number, opened_ns, max(ts_ns), maxIf(ts_ns, change = 'reopened'), "
        f"{newest} FROM {INCIDENT.name} "
        f"WHERE {window(max(0, first_ns), FAR_NS)} GROUP BY number, opened_ns "
        f"ORDER BY opened_ns DESC, number DESC LIMIT {MAX_ROWS}"
    )


def _plain(row: Row) -> dict[str, Any]:
    number, opened_ns, updated_ns, reopened_ns, *rest = row
    texts = dict(zip(_TEXTS, map(str, rest), strict=False))
    numbers = dict(zip(_NUMBERS, map(integer, rest[len(_TEXTS) :]), strict=False))
    reals = dict(zip(_REALS, map(_known, rest[len(_TEXTS) + len(_NUMBERS) :]), strict=True))
    return {
        **texts,
        **numbers,
        **reals,
        "number": integer(number),
        "opened_ns": integer(opened_ns),
        "updated_ns": integer(updated_ns),
        "began_ns": integer(reopened_ns) or integer(opened_ns),
        "resolved_ns": numbers["resolved_ns"] or None,
        "cause": numbers["cause"] or None,
        "evidence": texts["evidence"].split("\n") if texts["evidence"] else [],
        "jobs": texts["jobs"].split(", ") if texts["jobs"] else [],
        "unit": "",
        "members": [],
        "named_by": None,
        "clear_ns": None,
        "former_words": [],
        "pending": False,
        "silenced": False,
        "pages": 0,
    }


def _known(value: object) -> float:
    """Restore values that are not finite, which arrive as null."""
    return real(value) if isinstance(value, int | float) else float("nan")

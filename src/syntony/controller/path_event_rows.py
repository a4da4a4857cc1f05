"""Rows of `path_events` that the controller itself writes: commands, orders, verdicts."""

from __future__ import annotations

from syntony.controller.batches import BatchPiece
from syntony.controller.own_rows import ORIGIN_HOST, OwnRows
from syntony.wire.tables import PATH_EVENTS


class PathEventRows:
    """Makes rows of `path_events` for commands, orders and verdicts.

    One per writer: rows are numbered within a separate stream.
    """

    def __init__(self) -> None:
        self._own_rows = OwnRows(PATH_EVENTS)

    def piece(self, ts_ns: int, **texts: str) -> BatchPiece:
        """One row, ready to be stored; columns without a value are empty."""
        blank: dict[str, str | int] = dict.fromkeys(
            (column.name for column in PATH_EVENTS.columns), ""
        )
        row = blank | texts
        row |= {"ts_ns": ts_ns, "host": ORIGIN_HOST, "detect_ns": 0, "act_ns": 0}
        piece = self._own_rows.piece([row])
        assert piece is not None  # noqa: S101 - there is a row
        return piece

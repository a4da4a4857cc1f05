"""Rows of `path_events` that the controller itself writes: commands, orders, verdicts."""

from __future__ import annotations

import secrets

from syntony.controller.batches import Piece
from syntony.wire.arrow import arrow_schema
from syntony.wire.tables import PATH_EVENTS

ORIGIN_HOST = "controller"


class PathLog:
    """One per writer: rows are numbered within a stream of their own."""

    def __init__(self) -> None:
        self._stream = secrets.token_hex(8)
        self._seq = 0

    def piece(self, ts_ns: int, **texts: str) -> Piece:
        """One row, ready to be stored; columns that are not told are empty."""
        import pyarrow as pa

        self._seq += 1
        blank: dict[str, str | int] = dict.fromkeys(
            (column.name for column in PATH_EVENTS.columns), ""
        )
        row = blank | texts
        row |= {"ts_ns": ts_ns, "host": ORIGIN_HOST, "detect_ns": 0, "act_ns": 0}
        rows = pa.RecordBatch.from_pylist([row], schema=arrow_schema(PATH_EVENTS))
        return Piece(
            PATH_EVENTS, ORIGIN_HOST, self._stream, self._seq, rows, ts_ns, ts_ns, check=False
        )

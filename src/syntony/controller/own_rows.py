"""Rows that the controller itself writes, ready to be stored like an agent's batches."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from syntony.controller.batches import BatchPiece
from syntony.wire.arrow import arrow_schema
from syntony.wire.tables import Table

ORIGIN_HOST = "controller"
"""Used as `host` of rows that no agent sent."""


class OwnRows:
    """Numbers rows that the controller writes itself, as an agent's batches.

    One per writer: rows are numbered within a separate stream. Not thread-safe.

    Args:
        table: of the rows.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._stream = secrets.token_hex(16)
        self._seq = 0

    def piece(self, records: Sequence[Mapping[str, object]]) -> BatchPiece | None:
        """Rows by column, with their `ts_ns`, in any order; None if there are none."""
        import pyarrow as pa

        if not records:
            return None
        self._seq += 1
        rows = pa.RecordBatch.from_pylist(list(records), schema=arrow_schema(self._table))
        instants = rows.column("ts_ns").to_numpy()
        first_ns, last_ns = int(instants.min()), int(instants.max())
        return BatchPiece(
            self._table, ORIGIN_HOST, self._stream, self._seq, rows, first_ns, last_ns, check=False
        )

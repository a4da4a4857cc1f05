"""Rows measured before this host knows fleet time, for example after a start without a controller.

They wait in CLOCK_MONOTONIC, which no step of the host's clock affects, and are converted and sent
as soon as fleet time is known. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from syntony.mesh.stats import Columns
from syntony.model import S
from syntony.wire.tables import AGENT, HEARD, VERBS_HEARD, Table

MAX_WAITING = 600
"""Batches of each table, one a second at most: ten minutes. Older ones are dropped and counted."""
_OF_SECONDS = (AGENT, HEARD, VERBS_HEARD)
"""Tables whose instants are starts of seconds."""


class EarlyRows:
    """Rows that wait for fleet time."""

    def __init__(self) -> None:
        self._waiting: dict[Table, deque[Columns]] = {}
        self.dropped = 0
        """Rows that waited for too long."""

    def keep(self, table: Table, columns: Columns | None) -> None:
        """Store rows whose `ts_ns` is CLOCK_MONOTONIC."""
        if columns is None:
            return
        waiting = self._waiting.setdefault(table, deque())
        waiting.append(columns)
        if len(waiting) > MAX_WAITING:
            self.dropped += len(waiting.popleft()["ts_ns"])

    def release(self, fleet_minus_monotonic_ns: int) -> Iterator[tuple[Table, Columns]]:
        """Return all waiting rows in fleet time, table by table; nothing waits afterwards."""
        waiting, self._waiting = self._waiting, {}
        for table, parts in waiting.items():
            columns = {name: _joined([part[name] for part in parts]) for name in parts[0]}
            at_ns = columns["ts_ns"] + fleet_minus_monotonic_ns
            columns["ts_ns"] = at_ns // S * S if table in _OF_SECONDS else at_ns
            yield table, columns


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], list):
        return [value for part in parts for value in part]
    return np.concatenate(parts)

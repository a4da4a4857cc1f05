"""Lost and late ranks of protected jobs as observations for the rules: by host, and by job if no
spare took the rank's place."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from syntony.alerts.observations import Observation
from syntony.controller.batches import BatchPiece
from syntony.errors import StoreError
from syntony.model import HOUR_NS, S, format_ns
from syntony.store import Store
from syntony.wire.tables import TAKEOVER

_log = logging.getLogger(__name__)
REPLACED, NOT_REPLACED = "ranks_replaced_1h", "ranks_not_replaced_1h"
LATE = "ranks_late"
METRICS = frozenset({REPLACED, NOT_REPLACED, LATE})
MAX_EVIDENCE = 8
WINDOW_NS = HOUR_NS
MAX_ROWS = 10_000
"""Maximum rows of `job_takeovers` in the window; the newest are kept."""
_SHORT = 12
"""Length of a hash as shown to users."""


class LostRanks:
    """The past hour's rows of `job_takeovers`: new rows as they are stored, and earlier ones from
    the store, which are read once.

    `put` is called on the event loop, `observations` on any thread.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        """By their whole content: rows that are read may have been added before."""
        self._read = False

    def put(self, pieces: Iterable[BatchPiece]) -> None:
        """Take stored rows."""
        for piece in pieces:
            if piece.table is TAKEOVER:
                self._add(piece.rows.to_pylist())

    def observations(self, now_ns: int) -> list[Observation] | None:
        """Observations at this instant of fleet time; None: the store does not answer."""
        if not self._read:
            try:
                columns = self._store.jobs.takeovers(now_ns - WINDOW_NS, now_ns + S)
            except StoreError as error:
                _log.error("lost ranks unknown reason=%s", error)
                return None
            every = zip(*columns.values(), strict=True)
            self._add([dict(zip(columns, values, strict=True)) for values in every])
            self._read = True
        with self._lock:
            newest = sorted(self._rows.items(), key=lambda each: -each[1]["ts_ns"])[:MAX_ROWS]
            self._rows = {
                identity: row for identity, row in newest if row["ts_ns"] >= now_ns - WINDOW_NS
            }
            recent = list(self._rows.values())
        return observations(recent)

    def _add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        with self._lock:
            for row in rows:
                mine = {column.name: row[column.name] for column in TAKEOVER.columns}
                self._rows[tuple(mine.values())] = mine


def observations(rows: Sequence[Mapping[str, Any]]) -> list[Observation]:
    """Observations from the window's rows of `job_takeovers`, newest first. Drained ranks are not
    losses."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    compared: dict[str, str] = {}
    """Job → the hash of all its ranks, next after the row being examined."""
    punctual: set[str] = set()
    """Jobs without late ranks now."""
    late: dict[tuple[str, int], dict[str, Any]] = {}
    """By job and rank, as last reported."""
    for row in map(dict, rows):
        if row["what"] == "replaced" and row["reason"] != "drained":
            row["sha256"] = compared.get(row["job"], "")
            found[REPLACED, row["at"]].append(row)
        elif row["what"] in {"ended", "differs", "checkpoint"}:
            found[NOT_REPLACED, f"job {row['job']}"].append(row)
        elif row["what"] == "verified":
            compared[row["job"]] = row["sha256"]
        elif row["what"] == "straggler" and row["job"] not in punctual:
            late.setdefault((row["job"], row["rank"]), row)
        if row["what"] in {"no-straggler", "ended", "checkpoint"}:
            punctual.add(row["job"])
    for row in late.values():
        found[LATE, row["at"]].append(row)
    return [
        Observation(
            metric,
            subject,
            float(len(lost)),
            tuple(_evidence(each) for each in lost[:MAX_EVIDENCE]),
            jobs=tuple(sorted({each["job"] for each in lost})),
        )
        for (metric, subject), lost in found.items()
    ]


def _evidence(row: Mapping[str, Any]) -> str:
    if row["what"] == "straggler":
        return f"{row['job']}: {row['reason']}"
    rank = f"rank {row['rank']}" if row["rank"] >= 0 else "all ranks"
    text = f"{row['job']}: {rank}, {row['reason'] or row['what']}, step {row['step']}"
    if row["what"] == "replaced":
        text += f"; generation {row['generation']} after {format_ns(row['stall_ns'])}"
        if row["sha256"]:
            before, after = row["sha256_before"][:_SHORT], row["sha256"][:_SHORT]
            text += f"; parameters {before or 'unknown'} before, {after} on all ranks after"
    return text

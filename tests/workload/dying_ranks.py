"""Rows of a job some of whose ranks end, stop or fall silent within an operation, for tests."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping
from typing import Any

from tests.workload.stored_rows import SEED, T0, process, steps_of

from syntony.model import MS, S

RANKS = 4
ALL = range(RANKS)
LAST = 799
"""The last operation, which is 40 s after the first."""


def operations(*, begun: Any = ALL, done: Any = ()) -> list[dict[str, Any]]:
    """One in 50 ms; so many ranks began, and ended, the last."""
    rows = steps_of(RANKS, LAST + 1, {}, random.Random(SEED))
    return [row | {"done_ns": row["done_ns"] if row["seq"] < LAST or row["rank"] in done else 0}
            for row in rows if row["seq"] < LAST or row["rank"] in begun]  # fmt: skip


def stuck_ns(rows: list[dict[str, Any]]) -> int:
    """When the last operation was begun."""
    return int(max(row["ts_ns"] for row in rows))


def processes(
    last_ns: int,
    ends_ns: Mapping[int, int] | None = None,
    silent: Mapping[int, int] | None = None,
    states: Mapping[int, tuple[str, int]] | None = None,
    *,
    exact: bool = True,
    how: Mapping[int, int | None] | None = None,
    handles: Collection[int] = (),
) -> list[dict[str, Any]]:
    """Readings every two seconds until `last_ns`, of hosts that look at different instants.

    Args:
        last_ns: newest reports.
        ends_ns: rank → when its process ended.
        silent: rank → when its host reported last.
        states: rank → state of its process, and since when; else S.
        exact: whether the instant of an end is known, and not only its window.
        how: rank → its exit status, below 0 a signal; None: killed for lack of memory. Of others it
            is not visible.
        handles: ranks that handle SIGTERM.
    """
    rows = []
    for rank in ALL:
        end_ns = (ends_ns or {}).get(rank, last_ns)
        status = (how or {}).get(rank, math.nan)
        state, since_ns = (states or {}).get(rank, ("S", 0))
        for at_ns in range(T0 + rank * 300 * MS, last_ns, 2 * S):
            if at_ns + 2 * S > (silent or {}).get(rank, last_ns) or at_ns > end_ns:
                break
            ended = end_ns < at_ns + 2 * S and rank in (ends_ns or {})
            rows.append(process(f"h{rank}", rank) | {
                "ts_ns": at_ns, "ended": int(ended),
                "state": "" if ended else state if since_ns < at_ns + 2 * S else "S",
                "lived_ns": float(end_ns - at_ns) if ended and exact else math.nan,
                "exit_status": -9 if status is None else status if ended else math.nan,
                "oom_killed": int(ended and status is None),
                "handles_term": int(rank in handles),
            })  # fmt: skip
    return rows

"""Determines which seconds of probe rows are complete in the store. Pure.

Agents report a second `syntony.mesh.stats.hold_ns` after its end, and inserts are collected for up
to half a second; so most seconds are complete 1.3 to 1.9 s after their end. A reader that is too
early misses later rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from syntony.model import MS, S

MAX_LATE_NS = 1_800 * MS
"""Rows not stored this long after they could be reported are not waited for: a host may be down, or
its uplink."""
MISSED_S = 5
"""A host without a report for this many seconds is not waited for at all."""


def last_complete(probed: Mapping[str, int], now_ns: int, hold_ns: int) -> int:
    """The newest second with every host's rows stored, or no longer waited for.

    Args:
        probed: host → newest instant of its stored rows of probing, fleet time.
        now_ns: fleet time.
        hold_ns: delay of agents' reports of a second after its end.
    """
    latest = (now_ns - hold_ns - MAX_LATE_NS) // S - 1
    newest = (now_ns - hold_ns) // S - 1
    telling = [at_ns // S for at_ns in probed.values() if at_ns // S >= newest - MISSED_S]
    return max(latest, min(newest, *telling) if telling else latest)

"""Estimates the current fleet time from the data that the fleet sends. Pure."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from syntony.model import S

FORGET_NS = 600 * S
"""A source silent for this long no longer takes part."""


class _Source(NamedTuple):
    seen_ns: int
    began_ns: int
    """When its window began."""
    newest_ns: int
    """Its most recent instant of this window, less the monotonic clock."""
    before_ns: int
    """That of the window before."""


class FleetTime:
    """Extrapolates the newest data with a monotonic clock.

    Every source (a host, a clock) contributes its newest instant, and their median is used, so that
    a source with a wrong clock does not move the others' now.

    Args:
        window_ns: after one to two windows, an instant that a source no longer confirms is dropped:
            fleet time was stepped back, or the clocks' rates differ.
    """

    def __init__(self, window_ns: int = FORGET_NS) -> None:
        self._window_ns = window_ns
        self._sources: dict[str, _Source] = {}
        self._past_ns: int | None = None
        self._median = range(0)
        """When the median below was computed: it is needed far more often than it changes."""
        self._median_ns = 0

    def remember(self, fleet_ns: int, now_ns: int) -> None:
        """Fleet time from before a restart, used until a source reports."""
        self._past_ns = fleet_ns - now_ns

    def observe(self, source: str, fleet_ns: int, now_ns: int) -> None:
        """`source` reported `fleet_ns` at the local monotonic instant `now_ns`."""
        newest_ns = fleet_ns - now_ns
        known = self._sources.get(source)
        if known is None or now_ns - known.seen_ns > FORGET_NS:
            found = _Source(now_ns, now_ns, newest_ns, newest_ns)
        elif now_ns - known.began_ns > self._window_ns:
            found = _Source(now_ns, now_ns, newest_ns, known.newest_ns)
        else:
            newest_ns = max(newest_ns, known.newest_ns)
            found = _Source(now_ns, known.began_ns, newest_ns, known.before_ns)
        self._sources[source] = found
        self._median = range(0)

    def now(self, now_ns: int) -> int | None:
        """Fleet time at the local monotonic instant `now_ns`; None before any data."""
        if now_ns in self._median:
            return now_ns + self._median_ns
        fresh = [each for each in self._sources.values() if now_ns - each.seen_ns <= FORGET_NS]
        if fresh:
            until_ns = min(each.seen_ns for each in fresh) + FORGET_NS
            self._median = range(now_ns, until_ns + 1)
            self._median_ns = statistics.median_low(
                max(each.newest_ns, each.before_ns) for each in fresh
            )
            return now_ns + self._median_ns
        return None if self._past_ns is None else now_ns + self._past_ns

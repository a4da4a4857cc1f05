"""Estimates the current fleet time from the data that the fleet sends. Pure."""

from __future__ import annotations

import statistics

from syntony.model import S

FORGET_NS = 600 * S
"""A source silent for this long no longer takes part."""


class FleetTime:
    """Extrapolates the newest data with a monotonic clock.

    Every source (a host, a clock) contributes its newest instant, and their median is used, so that
    a source with a wrong clock does not move the others' now.
    """

    def __init__(self) -> None:
        self._offsets: dict[str, tuple[int, int]] = {}
        self._past_ns: int | None = None
        self._median = range(0)
        """When the median below was computed: it is needed far more often than it changes."""
        self._median_ns = 0

    def remember(self, fleet_ns: int, now_ns: int) -> None:
        """Fleet time from before a restart, used until a source reports."""
        self._past_ns = fleet_ns - now_ns

    def observe(self, source: str, fleet_ns: int, now_ns: int) -> None:
        """`source` reported `fleet_ns` at the local monotonic instant `now_ns`."""
        offset_ns = fleet_ns - now_ns
        known = self._offsets.get(source)
        if known is not None and now_ns - known[1] <= FORGET_NS:
            offset_ns = max(offset_ns, known[0])
        self._offsets[source] = (offset_ns, now_ns)
        self._median = range(0)

    def now(self, now_ns: int) -> int | None:
        """Fleet time at the local monotonic instant `now_ns`; None before any data."""
        if now_ns in self._median:
            return now_ns + self._median_ns
        fresh = [each for each in self._offsets.values() if now_ns - each[1] <= FORGET_NS]
        if fresh:
            until_ns = min(seen_ns for _, seen_ns in fresh) + FORGET_NS
            self._median = range(now_ns, until_ns + 1)
            self._median_ns = statistics.median_low(offset_ns for offset_ns, _ in fresh)
            return now_ns + self._median_ns
        return None if self._past_ns is None else now_ns + self._past_ns

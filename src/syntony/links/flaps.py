"""Count losses of carrier of a link in any window, exactly, even if events were missed."""

from __future__ import annotations

import bisect
from typing import NamedTuple

MAX_CHANGES = 4096
"""Changes remembered per link: a week at 24 flaps an hour. Windows that begin before them are
counted from there, and `FlapCount.exact` says so."""


class FlapCount(NamedTuple):
    """Losses of carrier within a window."""

    losses: int
    exact: bool
    """False if the window begins before the remembered changes: then there were at least
    `losses`."""


class FlapHistory:
    """One link's losses of carrier, from a counter that only goes up.

    The kernel counts every loss, also those that are over before anybody is reported. Each reading
    that differs from the one before says how many losses there were between the two.
    """

    def __init__(self, max_changes: int = MAX_CHANGES) -> None:
        self._max_changes = max_changes
        self._at_ns: list[int] = []
        self._totals: list[int] = []
        """Losses so far, at each of `_at_ns`; both ascend."""
        self._forgotten = 0
        self._known_since_ns: int | None = None

    @property
    def total(self) -> int:
        """Losses since the first reading."""
        return self._totals[-1] if self._totals else self._forgotten

    @property
    def last_ns(self) -> int | None:
        """When the newest loss was seen."""
        return self._at_ns[-1] if self._at_ns else None

    def add(self, at_ns: int, increase: int) -> None:
        """There were `increase` losses since the previous call, seen at `at_ns`.

        Call it once with 0 at the start, so that it is known from when on the count is exact.
        An instant that goes back (a stepped clock) is taken as the newest known one.
        """
        if self._known_since_ns is None:
            self._known_since_ns = at_ns
        if increase <= 0:
            return
        self._at_ns.append(max(at_ns, self._at_ns[-1]) if self._at_ns else at_ns)
        self._totals.append(self.total + increase)
        if len(self._at_ns) >= 2 * self._max_changes:
            self._forget(len(self._at_ns) - self._max_changes)

    def count(self, first_ns: int, last_ns: int) -> FlapCount:
        """Losses in ``[first_ns, last_ns)``."""
        exact = self._known_since_ns is not None and first_ns >= self._known_since_ns
        return FlapCount(self._before(last_ns) - self._before(first_ns), exact)

    def _before(self, at_ns: int) -> int:
        index = bisect.bisect_left(self._at_ns, at_ns)
        return self._totals[index - 1] if index else self._forgotten

    def _forget(self, changes: int) -> None:
        self._known_since_ns = self._at_ns[changes - 1] + 1
        self._forgotten = self._totals[changes - 1]
        del self._at_ns[:changes], self._totals[:changes]

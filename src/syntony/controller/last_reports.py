"""How long each agent has sent no report, not counting time when this controller did not run. Pure.

A controller that was paused or is short of processor time receives nothing, which says nothing
about the agents. So silence is counted only while the controller's loop runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from syntony.model import S

TICK_NS = S // 4
"""Intended interval of `tick`."""
MAX_TICK_NS = S
"""Longest time that counts between two ticks."""
PAUSE_NS = 3 * S
"""After a longer gap between two ticks this controller counts as paused: its state is outdated."""
BACK_NS = 8 * S
"""Time after a pause until all agents have reported again: they report every second, are read in
turn, and edges of clocks come every two."""
STARTING_NS = 30 * S
"""After its start the controller waits this long for agents before it reports them silent."""


class LastReports:
    """Measures for how long each agent has sent no report.

    One per controller; instants are monotonic.

    Args:
        now_ns: when it began to read reports.
    """

    def __init__(self, now_ns: int) -> None:
        self._last_ns = now_ns
        self._attended_ns = 0
        self._received_ns: dict[str, int] = {}
        self._back_ns = 0
        self.paused_ns = 0
        """Total time for which this controller was paused."""

    def tick(self, now_ns: int) -> int:
        """The controller is running. Returns for how long it was paused, 0 if it was not; messages
        that waited meanwhile are read after this."""
        gap_ns, self._last_ns = now_ns - self._last_ns, now_ns
        self._attended_ns += min(gap_ns, MAX_TICK_NS)
        if gap_ns < PAUSE_NS:
            return 0
        self.paused_ns += gap_ns
        self._back_ns = self._attended_ns + BACK_NS
        return gap_ns

    @property
    def settled(self) -> bool:
        """Whether the current state is up to date: not immediately after a pause."""
        return self._attended_ns >= self._back_ns

    def received(self, host: str) -> None:
        """An agent sent a message."""
        self._received_ns[host] = self._attended_ns

    def silent(self, hosts: Iterable[str], *, grace_ns: int = STARTING_NS) -> dict[str, int]:
        """Host → for how long its agent has sent no report.

        Args:
            hosts: all hosts.
            grace_ns: from the start, no host counts as silent.
        """
        now_ns = self._attended_ns
        return {
            host: max(0, now_ns - max(self._received_ns.get(host, 0), grace_ns)) for host in hosts
        }

"""Actions of path control: counted, and as rows for reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from syntony.agent.steering.rows import PathRow, is_news, path_row
from syntony.model.paths import FourTuple
from syntony.traffic.instructions import Create, Destroy, Note, Redirect, Steer

MAX_ROWS = 4096
"""Maximum rows waiting to be reported; further ones are counted, not kept."""
ROWS_AT_ONCE = 1_024


class PathCounters(msgspec.Struct):
    """Since the thread started."""

    events: int = 0
    requested: int = 0
    """Joins requested."""
    created: int = 0
    """Joins that were established."""
    joins_failed: int = 0
    destroyed: int = 0
    """Established paths that were left."""
    refused: dict[str, int] = msgspec.field(default_factory=dict)
    """Orders that the kernel did not carry out, by kind."""
    redirected: int = 0
    """Times that a plain connection was moved to another path."""
    notes: int = 0
    """Changes decided but not made."""
    rows_dropped: int = 0
    events_lost: int = 0
    """Times that the kernel dropped events."""
    routes_restored: int = 0
    left: dict[str, int] = msgspec.field(default_factory=dict)
    """Paths left, by cause."""
    slowest_ns: int = 0
    """Longest time from reading an event to acting on it."""


class PathLog:
    """Written by the thread that reacts; `rows` is called by another.

    Args:
        nic_of: the NIC that has a local address.
    """

    def __init__(self, host: str, nic_of: Callable[[str], str | None]) -> None:
        self._host = host
        self._nic_of = nic_of
        self._rows: deque[PathRow] = deque()
        self._taken = 0
        """Rows that need not be kept any longer."""
        self.names: dict[str, str] = {}
        """Addresses of peers → ``host/nic``."""
        self.counters = PathCounters()

    def rows(self, after: int) -> tuple[int, tuple[PathRow, ...]]:
        """Waiting rows, oldest first, limited in number, and the number of the first; those before
        `after` are dropped. For one thread at a time."""
        while self._rows and self._taken < after:
            self._rows.popleft()
            self._taken += 1
        waiting = len(self._rows)
        some = tuple(self._rows[number] for number in range(min(waiting, ROWS_AT_ONCE)))
        return self._taken, some

    def tell(
        self, instruction: Create | Destroy | Note | Redirect, done_ns: int, result: str
    ) -> None:
        """Count it, and keep its row; `result`: the error, if any."""
        counters = self.counters
        match instruction:
            case Create():
                counters.requested += 1
            case Note(action=action):
                counters.created += action == "create"
                counters.joins_failed += action == "join-failed"
                counters.notes += action.startswith(("would-", "keep-"))
            case Destroy(reason=reason) if is_news(instruction):
                counters.destroyed += 1
                cause = str(reason.cause)
                counters.left[cause] = counters.left.get(cause, 0) + 1
        if not is_news(instruction):
            return
        if len(self._rows) >= MAX_ROWS:
            counters.rows_dropped += 1
            return
        self._rows.append(path_row(instruction, done_ns, result, self.name))

    def refused(self, order: Steer | Redirect) -> None:
        """The kernel did not carry an order out; count it."""
        kind = type(order).__name__.lower()
        self.counters.refused[kind] = self.counters.refused.get(kind, 0) + 1

    def name(self, flow: FourTuple | None) -> str:
        """A flow with the names of hosts and NICs for addresses, where known."""
        if flow is None:
            return ""
        nic = self._nic_of(flow.local)
        near = f"{self._host}/{nic}" if nic else flow.local
        far = self.names.get(flow.remote, flow.remote)
        return f"{near}:{flow.local_port} > {far}:{flow.remote_port}"

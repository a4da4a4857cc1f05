"""Reports of protected jobs' coordinators on this host about replaced ranks, as rows and counts."""

from __future__ import annotations

import re
import socket
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from syntony.agent.job_peers import JobPeers, Peer
from syntony.agent.queue_pairs import FleetOffset, on_fleet
from syntony.io.job_socket import Process
from syntony.mesh.stats import Columns
from syntony.model import HOUR_NS, S
from syntony.wire.tables import TAKEOVER, Table

MAX_MESSAGE = 4096
MAX_AT_ONCE = 64
"""Maximum messages of one process read in a second; further ones stay in its socket's buffer."""
MAX_WAITING = 4096
MAX_LEFT = 64
"""Maximum number of processes, ended between two readings, whose last messages are kept. Those of
further ones are counted as unused."""
OLDEST_NS = HOUR_NS
SPARES = "spares"
"""Number of waiting spares: not an event of a lost rank."""
WHAT = (
    "replaced", "ended", "verified", "differs", "unprotected", "checkpoint", "straggler",
    "no-straggler", SPARES,
)  # fmt: skip
REASONS = ("killed", "stopped", "silent", "gone", "hung", "slow", "drained", "failed", "other")
"""Reasons for which ranks were lost, as named in metrics."""
_TEXT = re.compile(r"[ -~]*")


class TakeoverMessage(msgspec.Struct, forbid_unknown_fields=True):
    """The message of `syntony.torch.feed`; instants are CLOCK_MONOTONIC."""

    what: str
    rank: int
    at: str
    reason: str
    worker: str
    took_ns: int
    step: int
    generation: int
    before: str
    after: str
    at_ns: int
    spares: int = -1
    """Number of waiting spares, if the event is `SPARES`."""

    def is_plausible(self, now_ns: int) -> bool:
        """Whether all values are possible: a job's process sent them, which is not trusted."""
        texts = (self.at, self.reason, self.worker, self.before, self.after)
        return (
            self.what in WHAT
            and all(len(each) <= 200 and _TEXT.fullmatch(each) for each in texts)
            and -1 <= self.rank < 1 << 20
            and -1 <= self.step < 1 << 48
            and 0 <= self.generation < 1 << 31
            and (0 if self.what == SPARES else -1) <= self.spares < 1 << 20
            and 0 <= self.took_ns < OLDEST_NS
            and now_ns - OLDEST_NS < self.at_ns <= now_ns + S
        )


def reason_class(reason: str) -> str:
    """One of `REASONS`."""
    first = reason.split(" ", 1)[0].rstrip(":")
    if "failed" in reason:
        return "failed"
    return first if first in REASONS else "other"


class _Inbox:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def read(self) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < MAX_AT_ONCE:
            try:
                data = self._connection.recv(MAX_MESSAGE, socket.MSG_DONTWAIT)
            except OSError:
                break
            if not data:
                break
            found.append(data)
        return found

    def close(self) -> None:
        """Does nothing: the connection belongs to its owner."""


class TakeoverSocket(JobPeers[_Inbox]):
    """Receives the reports of protected jobs' coordinators about replaced ranks.

    One per agent; `rows` is for one thread.
    """

    def __init__(self, host: str, path: Path) -> None:
        super().__init__(path)
        self._host = host
        self._waiting: deque[tuple[str, TakeoverMessage]] = deque(maxlen=MAX_WAITING)
        self._left: list[tuple[str, list[bytes]]] = []
        self.events: Counter[str] = Counter()
        """By event, since the agent began."""
        self.replaced: Counter[str] = Counter()
        """Replaced ranks by `reason_class`."""
        self.stall_ns = 0
        """Sum over all takeovers: from the loss until all ranks were connected again."""
        self.malformed = 0

    def _make(self, connection: socket.socket, process: Process) -> _Inbox:  # noqa: ARG002
        return _Inbox(connection)

    def _leave(self, peer: Peer[_Inbox]) -> None:
        data = peer.page.read()
        if len(self._left) < MAX_LEFT:
            self._left.append((peer.process.job, data))
        else:
            self.malformed += len(data)

    def rows(self, offset: Callable[[], FleetOffset | None]) -> list[tuple[Table, Columns]]:
        """Rows of takeovers since the last call; without fleet time they are kept.

        Args:
            offset: reads the clocks; None: there is no fleet time.
        """
        now = offset()
        if now is None:
            return []
        present = self._of_each(lambda peer: (peer.process.job, peer.page.read()))
        with self._lock:
            left, self._left = self._left, []
        for job, data in [*left, *present]:
            for each in data:
                self._take(job, each, now.at_ns)
        found, self._waiting = list(self._waiting), deque(maxlen=MAX_WAITING)
        return [(TAKEOVER, self._columns(found, now))] if found else []

    def _take(self, job: str, data: bytes, now_ns: int) -> None:
        try:
            message = msgspec.json.decode(data, type=TakeoverMessage)
        except msgspec.MsgspecError:
            self.malformed += 1
            return
        if not message.is_plausible(now_ns):
            self.malformed += 1
            return
        self.events[message.what] += 1
        if message.what == "replaced":
            self.replaced[reason_class(message.reason)] += 1
            self.stall_ns += message.took_ns
        self._waiting.append((job, message))

    def _columns(self, found: list[tuple[str, TakeoverMessage]], now: FleetOffset) -> Columns:
        at = np.array([each.at_ns for _, each in found], np.int64)
        return {
            "ts_ns": on_fleet(at, now, now),
            "host": [self._host] * len(found),
            "job": [job for job, _ in found],
            "what": [each.what for _, each in found],
            "rank": np.array([each.rank for _, each in found], np.int64),
            "at": [each.at or self._host for _, each in found],
            "step": np.array([each.step for _, each in found], np.int64),
            "generation": np.array([each.generation for _, each in found], np.uint32),
            "reason": [each.reason for _, each in found],
            "worker": [each.worker for _, each in found],
            "stall_ns": np.array([each.took_ns for _, each in found], np.int64),
            "sha256_before": [each.before for _, each in found],
            "sha256": [each.after for _, each in found],
            "spares": np.array([each.spares for _, each in found], np.int64),
        }

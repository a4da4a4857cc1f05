"""Limits the connections of jobs' processes: for each process, user and host. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from typing import NamedTuple

from syntony.model import S

MAX_CONNECTIONS = 256
"""Each costs the agent two descriptors and up to 74 KB: 19 MB in all, of its 128 MB."""
BURST = 128
"""Connections that a user may make at once."""
MAX_PER_PROCESS = 4
"""A plug-in, a hook, an interposer, and one that is being replaced."""
REFILL_NS = S // 16
"""A user who has used up `BURST` may make another connection at this interval."""


class AdmissionRefusal(enum.StrEnum):
    """Why a process may not connect."""

    USER_FULL = "user-full"
    """The user has half of all connections that other users leave."""
    PROCESS_FULL = "process-full"
    TOO_OFTEN = "too-often"
    NO_JOB = "no-job"
    """Its environment names no job."""
    UNREADABLE = "unreadable"
    """Its environment cannot be read: the agent lacks CAP_SYS_PTRACE."""
    UNSEEN = "unseen"
    """It is in a PID namespace that the agent does not see."""
    GONE = "gone"
    """It ended at once."""
    NO_RESOURCES = "no-resources"
    """The agent has no descriptor or memory left."""


class _Allowance(NamedTuple):
    left: int
    at_ns: int


class Admission:
    """Counts connections. Not thread-safe."""

    def __init__(self) -> None:
        self._users: Counter[int] = Counter()
        self._processes: Counter[int] = Counter()
        self._allowances: dict[int, _Allowance] = {}
        self.refused: Counter[AdmissionRefusal] = Counter()

    def refuse(self, reason: AdmissionRefusal) -> AdmissionRefusal:
        self.refused[reason] += 1
        return reason

    def try_enter(self, uid: int, pid: int, now_ns: int) -> AdmissionRefusal | None:
        """Admit a new connection; None: admitted, and `leave` must be called once when it ends.

        Args:
            uid: of the process, from the kernel.
            pid: likewise.
            now_ns: CLOCK_MONOTONIC.
        """
        if not self._spend(uid, now_ns):
            return self.refuse(AdmissionRefusal.TOO_OFTEN)
        if self._users[uid] >= MAX_CONNECTIONS - self._users.total():
            return self.refuse(AdmissionRefusal.USER_FULL)
        if self._processes[pid] >= MAX_PER_PROCESS:
            return self.refuse(AdmissionRefusal.PROCESS_FULL)
        self._users[uid] += 1
        self._processes[pid] += 1
        return None

    def leave(self, uid: int, pid: int) -> None:
        """An admitted connection has ended."""
        for counter, key in ((self._users, uid), (self._processes, pid)):
            counter[key] -= 1
            if counter[key] <= 0:
                del counter[key]

    def _spend(self, uid: int, now_ns: int) -> bool:
        """Use up one connection. Users whose allowance is full again are dropped: there are few at
        any time."""
        self._allowances = {
            user: allowance
            for user, each in self._allowances.items()
            if (allowance := _refilled(each, now_ns)).left < BURST
        }
        left, at_ns = self._allowances.get(uid, _Allowance(BURST, now_ns))
        if left <= 0:
            return False
        self._allowances[uid] = _Allowance(left - 1, at_ns)
        return True


def _refilled(allowance: _Allowance, now_ns: int) -> _Allowance:
    more = max(0, now_ns - allowance.at_ns) // REFILL_NS
    return _Allowance(allowance.left + more, allowance.at_ns + more * REFILL_NS)

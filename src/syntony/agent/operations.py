"""The activity of jobs on this host: their processes, collectives and steps, as rows on fleet
time."""

from __future__ import annotations

import logging
import math
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from syntony.agent.gpus import JobMember
from syntony.agent.job_peers import JobPeers, Peer
from syntony.agent.nccl_socket import NcclSocket, ProcessOperations
from syntony.agent.queue_pairs import STEP_NS, FleetOffset, on_fleet
from syntony.agent.takeovers import TakeoverSocket
from syntony.io.handed_page import HandedPage
from syntony.io.job_socket import Process
from syntony.io.job_table import JobProcess, JobTable
from syntony.io.process_exits import ExitSource, exit_source
from syntony.io.run_directory import (
    NCCL_SOCKET,
    OPERATIONS_SOCKET,
    SOCKET_NAME,
    TAKEOVER_SOCKET,
)
from syntony.mesh.stats import Columns
from syntony.model import S
from syntony.traffic.operations_page import (
    PAGE_BYTES,
    VERSION,
    JobOperation,
    NewOperations,
    OperationsReader,
)
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS, STEP, Table
from syntony.workload.nccl_operations import NcclOperation

_log = logging.getLogger(__name__)


class OperationsPage(HandedPage):
    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection, VERSION, PAGE_BYTES)
        self._reader = OperationsReader()

    @property
    def malformed(self) -> int:
        """Records that could not be used, a page that is none included."""
        return self._reader.malformed + self.refused

    def read(self, *, last: bool = False) -> NewOperations | None:
        """Operations reported since the last call; None as long as the process has sent no page.
        `last`: the process has ended."""
        if not self.is_there():
            return None
        return self._reader.read(self.bytes_at, time.monotonic_ns(), last=last)


PROCESSES_NS = 2 * S
"""Interval of searches for processes."""
MAX_OPERATIONS = 50_000
"""Maximum collectives, and steps, in the rows of one second; further ones are counted as
dropped."""


MAX_ENDED = 256
"""Maximum number of ended processes of which the last reports, and the instants of their ends, are
kept."""


class _Source(NamedTuple):
    process: Process
    reported: NewOperations


class OperationsSocket(JobPeers[OperationsPage]):
    """The socket at which processes report their operations; one thread calls `take`."""

    def _make(self, connection: socket.socket, process: Process) -> OperationsPage:  # noqa: ARG002
        return OperationsPage(connection)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._ended: deque[_Source] = deque(maxlen=MAX_ENDED)
        """The last reports of processes."""
        self._left_ns: dict[int, int] = {}
        """Process that disconnected → when, CLOCK_MONOTONIC."""
        self._malformed = 0
        """Of processes that ended."""

    def _leave(self, peer: Peer[OperationsPage]) -> None:
        reported = peer.page.read(last=True)
        self._malformed += peer.page.malformed
        if reported is not None:
            self._ended.append(_Source(peer.process, reported))
        self._left_ns.pop(peer.process.pid, None)
        self._left_ns[peer.process.pid] = time.monotonic_ns()
        if len(self._left_ns) > MAX_ENDED:
            del self._left_ns[next(iter(self._left_ns))]

    def left_ns(self, pid: int) -> int | None:
        """When a process disconnected, at the latest by ending; None: not known."""
        with self._lock:
            return self._left_ns.get(pid)

    def take(self) -> list[_Source]:
        """Reports of all processes since the last call."""
        present = self._of_each(lambda peer: (peer.process, peer.page.read()))
        with self._lock:
            found = list(self._ended)
            self._ended.clear()
        return found + [_Source(who, reported) for who, reported in present if reported is not None]

    @property
    def malformed(self) -> int:
        """Total of invalid records, and pages, of all processes."""
        with self._lock:
            return self._malformed + sum(peer.page.malformed for peer in self._peers.values())


class JobTelemetry:
    """Collects the activity of this host's jobs and makes rows of it. One per agent."""

    def __init__(self, host: str, socket_dir: Path) -> None:
        self._host = host
        self.socket = OperationsSocket(socket_dir / OPERATIONS_SOCKET)
        self.nccl = NcclSocket(socket_dir / NCCL_SOCKET)
        self.takeovers = TakeoverSocket(host, socket_dir / TAKEOVER_SOCKET)
        self._table = JobTable(socket_dir / SOCKET_NAME, exits=_exits)
        self._before: FleetOffset | None = None
        self._searched_ns = 0
        self._dropped = 0
        """Records that were lost and are not counted in a row yet."""
        self._ranks: dict[int, tuple[int, int]] = {}
        """Process → its rank and the number of ranks, as its framework reports them; until the
        search after its end."""
        self._frames: dict[int, str] = {}
        """Process → where its Python is."""
        self._launched: dict[int, tuple[int, int]] = {}
        """… as its launcher set them, at the last search."""
        self.members: dict[int, JobMember] = {}
        """Processes of jobs by number, at the last search."""
        self.lost_exits = 0
        """How often the kernel had no room for ends of processes."""
        self._sought = set[int]()
        """Processes with operations that the last search did not find."""

    def close(self) -> None:
        """Close all connections, which processes notice. Idempotent."""
        self.socket.close()
        self.nccl.close()
        self.takeovers.close()
        self._table.close()

    def rows(self, offset: Callable[[], FleetOffset | None]) -> list[tuple[Table, Columns]]:
        """Rows of events since the last call. None without fleet time: processes keep their reports
        as long as they have room.

        Args:
            offset: reads the clocks; None: there is no fleet time.
        """
        now = offset()
        if now is None:
            return []
        before, self._before = self._before, now
        if before is None or abs(now.offset_ns - before.offset_ns) > STEP_NS:
            before = now
        sources = self.socket.take()
        reported = {
            each.process.pid: (each.reported.rank, each.reported.ranks)
            for each in sources
            if each.reported.rank >= 0
        }
        self._ranks |= reported
        self._frames = {each.process.pid: each.reported.frame for each in sources}
        nccl = self.nccl.read()
        takeovers = self.takeovers.rows(lambda: now)
        found = []
        if now.at_ns - self._searched_ns >= PROCESSES_NS or self._are_unknown(nccl):
            elapsed_ns = now.at_ns - self._searched_ns if self._searched_ns else PROCESSES_NS
            self._searched_ns = now.at_ns
            present = self._table.look()
            self._say_lost()
            self._launched = {each.pid: (each.rank, each.ranks) for each in present}
            found.append((JOB_PROCESS, self._processes(present, now, elapsed_ns)))
            self.members = {
                each.pid: JobMember(each.job, self._ranks.get(each.pid, (each.rank,))[0])
                for each in present
                if not each.ended
            }
            kept = self.members.keys() | reported.keys()
            self._ranks = {pid: place for pid, place in self._ranks.items() if pid in kept}
        found.append((STEP, self._steps(sources, before, now)))
        found.append((COLLECTIVE, self._collectives([*sources, *self._of_nccl(nccl)], before, now)))
        return takeovers + [(table, columns) for table, columns in found if columns is not None]

    def _say_lost(self) -> None:
        """Log it when ends of processes were lost."""
        lost, self.lost_exits = self.lost_exits, self._table.lost_exits
        if self.lost_exits > lost:
            _log.warning("ends of processes were lost, too many came at once: how some ranks ended"
                         " may not be known")  # fmt: skip

    def _are_unknown(self, nccl: Sequence[ProcessOperations]) -> bool:
        """Whether a process has operations but its place in a job is unknown and was not searched
        yet."""
        pids = {each.process.pid for each in nccl} - self._launched.keys() - self._ranks.keys()
        sought, self._sought = self._sought, pids
        return bool(pids - sought)

    def _of_nccl(self, nccl: Sequence[ProcessOperations]) -> list[_Source]:
        """Collectives from NCCL's profiler plug-in, with the job's ranks, not the communicator's.
        Those whose end cannot be known are left out: they would seem to hang."""
        found = []
        for each in nccl:
            pid = each.process.pid
            rank, ranks = self._ranks.get(pid) or self._launched.get(pid, (-1, 0))
            operations = tuple(
                _from_nccl(one) for one in each.operations
                if one.collective and one.nranks and (one.done_ns or one.parts)
            )  # fmt: skip
            dropped = sum(one.dropped for one in each.operations)
            found.append(_Source(each.process, NewOperations(rank, ranks, operations, (), dropped)))
        return found

    def _collectives(
        self, sources: list[_Source], before: FleetOffset, now: FleetOffset
    ) -> Columns | None:
        rows = [
            (each.process, each.reported.rank, operation)
            for each in sources
            for operation in each.reported.operations
        ]
        self._dropped += len(rows[MAX_OPERATIONS:]) + sum(each.reported.dropped for each in sources)
        rows = rows[:MAX_OPERATIONS]
        if not rows:
            return None
        dropped = np.zeros(len(rows), np.uint32)
        dropped[0], self._dropped = min(self._dropped, (1 << 32) - 1), 0
        began, done = (np.array([each[2][place] for each in rows], np.int64) for place in (5, 6))
        return {
            "ts_ns": on_fleet(began, before, now),
            "host": [self._host] * len(rows),
            "job": [who.job for who, _, _ in rows],
            "pid": np.array([who.pid for who, _, _ in rows], np.uint32),
            "rank": np.array([rank for _, rank, _ in rows], np.int64),
            "comm": [each.comm for _, _, each in rows],
            "ranks": np.array([each.ranks for _, _, each in rows], np.uint32),
            "seq": np.array([each.seq for _, _, each in rows], np.uint64),
            "op": [each.name for _, _, each in rows],
            "bytes": np.array([each.bytes for _, _, each in rows], np.uint64),
            "done_ns": np.where(done > 0, on_fleet(done, before, now), 0),
            "dropped": dropped,
        }

    def _steps(
        self, sources: list[_Source], before: FleetOffset, now: FleetOffset
    ) -> Columns | None:
        rows = [
            (each.process, each.reported.rank, step)
            for each in sources
            for step in each.reported.steps
        ][:MAX_OPERATIONS]
        if not rows:
            return None
        began, ended = (np.array([each[2][place] for each in rows], np.int64) for place in (1, 2))
        return {
            "ts_ns": on_fleet(began, before, now),
            "host": [self._host] * len(rows),
            "job": [who.job for who, _, _ in rows],
            "rank": np.array([rank for _, rank, _ in rows], np.int64),
            "step": np.array([each.number for _, _, each in rows], np.uint64),
            "end_ns": on_fleet(ended, before, now),
            "data_ns": np.array([each.data_ns for _, _, each in rows], np.int64),
        }

    def _processes(
        self, found: Sequence[JobProcess], now: FleetOffset, elapsed_ns: int
    ) -> Columns | None:
        if not found:
            return None
        places = [self._ranks.get(each.pid, (each.rank, each.ranks)) for each in found]
        return {
            "ts_ns": np.full(len(found), now.at_ns + now.offset_ns - elapsed_ns, np.int64),
            "window_ns": np.full(len(found), elapsed_ns, np.int64),
            "host": [self._host] * len(found),
            "job": [each.job for each in found],
            "pid": np.array([each.pid for each in found], np.uint32),
            "uid": np.array([each.uid for each in found], np.uint32),
            "program": [each.program for each in found],
            "rank": np.array([rank for rank, _ in places], np.int64),
            "ranks": np.array([ranks for _, ranks in places], np.uint32),
            "began_ns": np.array([each.began_ns for each in found], np.int64) + now.offset_ns,
            "threads": np.array([each.threads for each in found], np.uint32),
            "cpu_ns": np.array([each.cpu_ns for each in found], np.int64),
            "runq_ns": np.array([each.runq_ns for each in found], np.int64),
            "irq_ns": np.array([each.irq_ns for each in found], np.float32),
            "ended": np.array([each.ended for each in found], np.uint16),
            "state": [each.state for each in found],
            "lived_ns": np.array(
                [self._lived_ns(each, now.at_ns - elapsed_ns) for each in found], np.float64
            ),
            "exit_status": np.array(
                [_told(each, each.exit and each.exit.status) for each in found], np.float32
            ),
            "oom_killed": np.array(
                [_told(each, each.exit and each.oom) for each in found], np.float32
            ),
            "handles_term": np.array([each.handles_term for each in found], np.float32),
            "frame": [self._frames.get(each.pid, "") for each in found],
        }

    def _lived_ns(self, who: JobProcess, begin_ns: int) -> float:
        """How long after the begin of a window a process ended, below 0 if its last thread was seen
        to end later; NaN: it runs, or not known."""
        if who.exit and who.exit.at_ns is not None:
            return float(who.exit.at_ns - begin_ns)
        left_ns = self.socket.left_ns(who.pid) if who.ended or who.state == "Z" else None
        return math.nan if left_ns is None or left_ns < begin_ns else float(left_ns - begin_ns)


def _exits() -> ExitSource | None:
    found = exit_source()
    if found is None:
        _log.info("how processes of jobs end is not visible: no CAP_NET_ADMIN in the initial"
                  " namespaces, and no Linux 6.15")  # fmt: skip
    return found


def _told(who: JobProcess, what: float | None) -> float:
    """NaN if it runs, or what is asked for is not known."""
    return math.nan if what is None or not who.ended else float(what)


def _from_nccl(each: NcclOperation) -> JobOperation:
    comm, ranks = f"nccl.{each.comm}", each.nranks or 0
    return JobOperation(
        comm, ranks, each.seq, each.op, each.bytes or 0, each.enqueue_ns, each.done_ns or 0
    )

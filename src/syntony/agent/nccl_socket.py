"""The socket at which jobs hand over the pages of the NCCL profiler plug-in, which the agent
reads."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from syntony.agent.job_peers import JobPeers, Peer
from syntony.io.job_socket import Process
from syntony.io.nccl_page import NcclPage, load_progress, save_progress
from syntony.workload.nccl_operations import NcclOperation, PageProgress

_log = logging.getLogger(__name__)

MAX_ENDED = 65_536
"""Operations of processes that ended between two calls of `read`: maximum number kept."""


class ProcessOperations(NamedTuple):
    process: Process
    operations: list[NcclOperation]
    """Instants in CLOCK_MONOTONIC."""


class NcclSocket(JobPeers[NcclPage]):
    """Receives the pages of the NCCL profiler plug-in from jobs.

    One per agent; `read` is for one thread.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = path.with_name(f"{path.name}.read")
        self._known = load_progress(self._file)
        self._read: dict[str, PageProgress] = {}
        """Page → how far it was read; operations up to there are handed on before the next call of
        `read`, and in the file from then on."""
        self._ended: list[ProcessOperations] = []
        """Last operations of processes that ended."""
        self._losses: Counter[str] = Counter()
        """Of processes that ended."""

    def _make(self, connection: socket.socket, process: Process) -> NcclPage:
        return NcclPage(connection, process.pid, self._known)

    def close(self) -> None:
        """Close all connections, which processes notice. Idempotent."""
        super().close()
        self._save()

    def _save(self) -> None:
        if self._read:
            try:
                save_progress(self._file, self._read)
            except OSError as error:
                _log.warning("read positions of NCCL's pages not saved reason=%s", error)

    def _leave(self, peer: Peer[NcclPage]) -> None:
        operations = peer.page.read(last=True)
        room = MAX_ENDED - sum(len(each.operations) for each in self._ended)
        if operations[:room]:
            self._ended.append(ProcessOperations(peer.process, operations[:room]))
        self._losses["lost"] += len(operations[room:])
        self._losses.update(peer.page.losses())

    def read(self) -> list[ProcessOperations]:
        """Operations that ended, or hang, since the last call, of every process; all remaining ones
        of a process that ended. Call it every second: a process has room for 8,192 operations."""
        self._save()
        present = self._of_each(
            lambda peer: (ProcessOperations(peer.process, peer.page.read()), peer.page.progress)
        )
        with self._lock:
            found, self._ended = self._ended, []
        self._read = dict(progress for _, progress in present if progress is not None)
        return found + [each for each, _ in present if each.operations]

    def losses(self) -> dict[str, int]:
        """Totals over all processes: operations overwritten before they were read (`lost`), invalid
        pages and operations (`malformed`), parts and steps for which a process had no room
        (`left_out`)."""
        with self._lock:
            total = Counter(lost=0, malformed=0, left_out=0)
            total.update(self._losses)
            for peer in self._peers.values():
                total.update(peer.page.losses())
        return dict(total)

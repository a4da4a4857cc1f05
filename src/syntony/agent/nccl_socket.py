"""Where jobs' processes hand over what NCCL does for them: a socket of its own, as for queue pairs.

Nothing of the agent starts it yet: whoever makes rows of collectives does.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from syntony.agent.job_peers import JobPeers
from syntony.io.job_socket import Process
from syntony.io.nccl_page import NcclPage
from syntony.workload.nccl_operations import NcclOperation

NCCL_SOCKET = "agent-nccl"
"""Its name, beside the agent's."""


class ProcessOperations(NamedTuple):
    """What one process told."""

    process: Process
    operations: list[NcclOperation]
    """Instants in CLOCK_MONOTONIC."""


class NcclSocket(JobPeers[NcclPage]):
    """One per agent; `read` and `losses` are for one thread."""

    def _make(self, connection: socket.socket, process: Process) -> NcclPage:  # noqa: ARG002
        return NcclPage(connection)

    def read(self) -> list[ProcessOperations]:
        """What ended or hangs since the last call, of every process. To be called every second: a
        process has room for 8,192 operations."""
        with self._lock:
            peers = list(self._peers.items())
        found = []
        for fd, peer in peers:
            with self._lock:
                if self._peers.get(fd) is not peer:
                    continue
                told = peer.page.read()
            if told:
                found.append(ProcessOperations(peer.process, told))
        return found

    def losses(self) -> dict[str, int]:
        """Of the processes that are connected: operations that were overwritten unread (`lost`),
        records that cannot be used (`malformed`), parts for which there was no place
        (`left_out`)."""
        pages = [peer.page for peer in list(self._peers.values())]
        return {
            "lost": sum(page.lost for page in pages),
            "malformed": sum(page.malformed for page in pages),
            "left_out": sum(page.left_out for page in pages),
        }

"""Serves processes of jobs on this host: they report their flows' progress, and receive notices.

A separate thread handles connections; `report` and `notify` are for the agent's other threads.
After its admission nothing that a process does costs the agent anything until it is read.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from syntony.agent.job_peers import JobPeers, Peer
from syntony.io import job_socket
from syntony.io.job_page import JobPage, JobPageContents, Subject
from syntony.io.job_socket import Process
from syntony.traffic.instructions import Avoid, Notice
from syntony.traffic.path_notices import ProcessPath
from syntony.traffic.process_flows import Malformed, ProcessFlow, parse_flow
from syntony.traffic.process_rates import PacedPath, ProcessRates, SentBy
from syntony.wire.failover import ProcessFlowView, ProcessView

MAX_FLOWS = 64
"""Of one process in one report; further ones are only counted."""
MAX_ALL_FLOWS = 1_024
"""Of all processes in one report."""
MAX_INITIAL_NOTICES = 48
"""Dead paths that a process receives when it connects; its page has room for 64 notices."""


class JobLink(JobPeers[JobPage]):
    """Serves the processes of jobs: takes reports on their flows, sends notices.

    One per agent.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.malformed: Counter[Malformed] = Counter()
        """Records that were read and rejected."""
        self.torn = 0
        """Records that could not be read completely."""
        self.paths: frozenset[ProcessPath] = frozenset()
        """Addresses between which their flows go, from the last report."""
        self.rates = ProcessRates()
        """Their send rates by queue pairs, from the last report."""
        self._stopped = False
        self._paced: dict[PacedPath, int] = {}
        """Rates of the last order."""
        self._dead: dict[ProcessPath, Notice] = {}
        """Paths that are dead now: for processes that connect later."""

    def do(self, instruction: Notice | Avoid) -> None:
        """Send notice of a path to every process, or order one of them off it."""
        with self._lock:
            if isinstance(instruction, Avoid):
                self._order(instruction)
                return
            self._dead.pop(instruction.path, None)
            if not instruction.usable and len(self._dead) < MAX_INITIAL_NOTICES:
                self._dead[instruction.path] = instruction
            for peer in self._peers.values():
                _notify(peer.page, instruction)

    def _order(self, hold: Avoid) -> None:
        """Call it holding the lock."""
        for peer in self._peers.values():
            if peer.process.pid == hold.process and not self._stopped:
                peer.page.notify(
                    Subject.PATH_AVOID,
                    at_ns=hold.at_ns,
                    expires_ns=hold.expires_ns,
                    path=hold.path,
                )

    def pace(self, rates: Mapping[PacedPath, int], expires_ns: int) -> None:
        """Order processes to keep these rates, and all others none. Nothing is ordered of a process
        that has ended, or after the stop switch was thrown.

        Args:
            rates: payload bits per second.
            expires_ns: CLOCK_MONOTONIC until which they are valid, unless repeated.
        """
        with self._lock:
            if self._stopped:
                return
            free = dict.fromkeys(self._paced.keys() - rates.keys(), 0)
            self._paced = dict(rates)
            for peer in self._peers.values():
                for (process, local, remote), bps in (free | self._paced).items():
                    if process == peer.process.pid:
                        peer.page.notify(
                            Subject.PATH_PACE,
                            at_ns=time.monotonic_ns(),
                            expires_ns=expires_ns,
                            path=(local, remote),
                            rate_bps=bps,
                        )

    def stop(self, *, stopped: bool) -> None:
        """Send notice of the stop switch, if it was thrown. It cancels notices and orders of
        paths."""
        with self._lock:
            if stopped is self._stopped:
                return
            self._stopped = stopped
            if stopped:
                self._dead.clear()
                self._paced.clear()
            subject = Subject.STOPPED if stopped else Subject.STARTED
            for peer in self._peers.values():
                peer.page.notify(subject, at_ns=time.monotonic_ns())

    def report(self) -> tuple[ProcessView, ...]:
        """The connected processes, and their current reports."""
        now_ns, left = time.monotonic_ns(), MAX_ALL_FLOWS
        paths: set[ProcessPath] = set()
        rates: list[SentBy] = []

        def view(peer: Peer[JobPage]) -> ProcessView:
            nonlocal left
            reported = peer.page.read(min(MAX_FLOWS, left))
            flows = self._parse(reported, now_ns)
            rates.append(SentBy(peer.process.job, peer.process.pid, tuple(flows)))
            left -= len(flows)
            paths.update((flow.local, flow.remote) for flow in flows)
            return _view(peer, reported, flows, now_ns)

        views = tuple(self._of_each(view))
        self.rates.take(rates, now_ns)
        self.paths = frozenset(paths)
        return views

    def _parse(self, reported: JobPageContents, now_ns: int) -> list[ProcessFlow]:
        flows = []
        for record in reported.records:
            flow = parse_flow(record, now_ns)
            if isinstance(flow, Malformed):
                self.malformed[flow] += 1
            else:
                flows.append(flow)
        self.torn += reported.torn
        return flows

    def _greet(self, page: JobPage) -> None:
        """Send a process that has just connected the current state. Call it holding the lock."""
        if self._stopped:
            page.notify(Subject.STOPPED, at_ns=time.monotonic_ns())
        for notice in self._dead.values():
            _notify(page, notice)

    def _make(self, connection: socket.socket, process: Process) -> JobPage:  # noqa: ARG002
        page = JobPage()
        try:
            job_socket.send_page(connection, page.fd)
        except OSError:
            page.close()
            raise
        page.release()
        return page


def _notify(page: JobPage, notice: Notice) -> None:
    page.notify(
        Subject.PATH_ALIVE if notice.usable else Subject.PATH_DEAD,
        at_ns=notice.reason.at_ns,
        expires_ns=notice.expires_ns,
        path=notice.path,
    )


def _view(
    peer: Peer[JobPage], reported: JobPageContents, flows: Sequence[ProcessFlow], now_ns: int
) -> ProcessView:
    return ProcessView(
        job=peer.process.job,
        program=peer.process.program,
        pid=peer.process.pid,
        uid=peer.process.uid,
        age_ns=now_ns - peer.since_ns,
        flows=tuple(_flow_view(flow, now_ns) for flow in flows),
        left_out=reported.flows - len(reported.records) + reported.left_out,
        malformed=len(reported.records) - len(flows) + reported.torn,
    )


def _flow_view(flow: ProcessFlow, now_ns: int) -> ProcessFlowView:
    return ProcessFlowView(
        mechanism=flow.mechanism.name.lower(),
        number=flow.number,
        nic=flow.nic,
        local=_end(flow.local, flow.local_port),
        remote=_end(flow.remote, flow.remote_port),
        bytes_done=flow.bytes_done,
        bytes_outstanding=flow.bytes_outstanding,
        outstanding=flow.outstanding,
        idle_ns=max(0, now_ns - flow.last_done_ns) if flow.last_done_ns else -1,
        errors=flow.errors,
        last_error=flow.last_error,
        failed=flow.failed,
    )


def _end(address: str, port: int) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{host}:{port}" if port else host

"""Serves processes of jobs on this host: they tell how their flows do, and hear notices.

A thread of its own lets them in and out; `report` and `notify` are for the agent's other threads.
Nothing that a process does after it was let in costs the agent anything until it is read.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from syntony.agent.job_admission import Admission, Refusal
from syntony.errors import MissingError, UsageError
from syntony.io import job_socket
from syntony.io.job_page import JobPage, Subject, Told
from syntony.io.job_socket import Process
from syntony.io.process import name_thread
from syntony.model import MS, S
from syntony.traffic.instructions import Notice
from syntony.traffic.path_notices import ProcessPath
from syntony.traffic.process_flows import Malformed, ProcessFlow, parse_flow
from syntony.wire.failover import ProcessFlowView, ProcessView

_log = logging.getLogger(__name__)

TURN_NS = 10 * MS
"""Between two rounds of letting processes in and out: whoever floods the socket waits."""
ACCEPTS = 16
"""Connections accepted in one round at most."""
MAX_FLOWS = 64
"""Of one process in one report; the rest is only counted."""
MAX_ALL_FLOWS = 1_024
"""Of all processes in one report."""
MAX_STANDING = 48
"""Dead paths that a process is told of when it connects; its page has room for 64 notices."""
_ENDS = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class _Peer(NamedTuple):
    process: Process
    connection: socket.socket
    pidfd: int
    page: JobPage
    since_ns: int


class JobLink:
    """One per agent.

    Args:
        path: of the socket.
        clock: CLOCK_MONOTONIC, ns.
    """

    def __init__(self, path: Path, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        """Of the peers, their pages, admission and counters."""
        self._peers: dict[int, _Peer] = {}
        """By descriptor of their connection."""
        self._by_pidfd: dict[int, int] = {}
        self._admission = Admission()
        self.malformed: Counter[Malformed] = Counter()
        """Records that were read and not used."""
        self.torn = 0
        """Records that could not be read whole."""
        self.connected = 0
        """Processes ever let in."""
        self.paths: frozenset[ProcessPath] = frozenset()
        """Between which addresses their flows go, as of the last report."""
        self._stopped = False
        self._dead: dict[ProcessPath, Notice] = {}
        """Paths that are dead now: for processes that connect later."""
        self.fault: Exception | None = None
        """What ended the thread."""
        self._stop = threading.Event()
        self._wake = -1
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to serve, or again. Raises `MissingError`: the socket cannot be made."""
        self.close()
        self._listener = job_socket.listen(self._path)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stop.clear()
        self.fault = None
        self._thread = threading.Thread(target=self._run, name="job-socket", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Every process sees that the agent has gone. Idempotent."""
        self._stop.set()
        if self._thread is not None:
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            os.close(self._wake)
        self._thread = None
        if self._listener is not None:
            self._path.unlink(missing_ok=True)
            self._listener.close()
        self._listener = None
        for fd in list(self._peers):
            self._drop(fd)

    @property
    def processes(self) -> int:
        """How many are connected."""
        return len(self._peers)

    def refused(self) -> dict[str, int]:
        """Processes that were not let in, by reason."""
        with self._lock:
            return {reason.value: count for reason, count in self._admission.refused.items()}

    def do(self, instruction: Notice) -> None:
        """Give notice of a path to every process."""
        with self._lock:
            self._dead.pop(instruction.path, None)
            if not instruction.usable and len(self._dead) < MAX_STANDING:
                self._dead[instruction.path] = instruction
            for peer in self._peers.values():
                _tell(peer.page, instruction)

    def stop(self, *, stopped: bool) -> None:
        """Give notice of the stop switch, if it was thrown. Notices of paths are over with it."""
        with self._lock:
            if stopped is self._stopped:
                return
            self._stopped = stopped
            if stopped:
                self._dead.clear()
            subject = Subject.STOPPED if stopped else Subject.STARTED
            for peer in self._peers.values():
                peer.page.notify(subject, at_ns=self._clock())

    def report(self) -> tuple[ProcessView, ...]:
        """The processes that are connected, and what they tell now."""
        now_ns, left = self._clock(), MAX_ALL_FLOWS
        views: list[ProcessView] = []
        paths: set[ProcessPath] = set()
        with self._lock:
            peers = list(self._peers.items())
        for fd, peer in peers:
            # The lock is let go between two of them: notices must not wait.
            with self._lock:
                if self._peers.get(fd) is not peer:
                    continue
                told = peer.page.read(min(MAX_FLOWS, left))
            flows = self._parse(told, now_ns)
            left -= len(flows)
            paths |= {(flow.local, flow.remote) for flow in flows}
            views.append(_view(peer, told, flows, now_ns))
        self.paths = frozenset(paths)
        return tuple(views)

    def _parse(self, told: Told, now_ns: int) -> list[ProcessFlow]:
        flows = []
        for record in told.records:
            flow = parse_flow(record, now_ns)
            if isinstance(flow, Malformed):
                self.malformed[flow] += 1
            else:
                flows.append(flow)
        self.torn += told.torn
        return flows

    # --- the thread ---

    def _run(self) -> None:
        name_thread("job-socket")
        try:
            with select.epoll() as epoll:
                assert self._listener is not None  # noqa: S101 - the thread runs only then
                epoll.register(self._listener, select.EPOLLIN)
                epoll.register(self._wake, select.EPOLLIN)
                while not self._stop.is_set():
                    ready = [fd for fd, _ in epoll.poll()]
                    self._serve(epoll, ready, self._listener)
                    self._stop.wait(TURN_NS / S)
        except Exception as error:  # noqa: BLE001 - supervisor: the agent restarts this part
            self.fault = error

    def _serve(self, epoll: select.epoll, ready: list[int], listener: socket.socket) -> None:
        for fd in ready:
            peer_fd = self._by_pidfd.get(fd, fd)
            if peer_fd in self._peers:
                self._drop(peer_fd)
        if listener.fileno() in ready:
            for _ in range(ACCEPTS):
                if not self._accept(epoll, listener):
                    break

    def _accept(self, epoll: select.epoll, listener: socket.socket) -> bool:
        """Whether there may be more."""
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            self._refuse(Refusal.NO_RESOURCES, str(error))
            return False
        try:
            peer = self._admit(connection)
        except OSError as error:
            self._refuse(Refusal.NO_RESOURCES, str(error))
            peer = None
        if peer is None:
            connection.close()
            return True
        with self._lock:
            self._peers[connection.fileno()] = peer
            if self._stopped:
                peer.page.notify(Subject.STOPPED, at_ns=self._clock())
            for notice in self._dead.values():
                _tell(peer.page, notice)
            self._by_pidfd[peer.pidfd] = connection.fileno()
            self.connected += 1
        # Only its end matters: what it sends stays in its own buffer, unread.
        epoll.register(connection, _ENDS)
        epoll.register(peer.pidfd, select.EPOLLIN)
        return True

    def _admit(self, connection: socket.socket) -> _Peer | None:
        """Let a process in, or count why not. Raises `OSError`: nothing is left for it."""
        who = job_socket.credentials(connection)
        if who.pid <= 0:
            self._refuse(Refusal.UNSEEN, f"uid={who.uid}")
            return None
        now_ns = self._clock()
        with self._lock:
            refusal = self._admission.try_enter(who.uid, who.pid, now_ns)
        if refusal is not None:
            return None
        pidfd, page = -1, None
        try:
            pidfd = job_socket.open_process(connection, who.pid)
            process = job_socket.identify(pidfd, who)
            page = JobPage()
            job_socket.send_page(connection, page.fd)
            page.release()
            return _Peer(process, connection, pidfd, page, now_ns)
        except (OSError, UsageError, MissingError) as error:
            with self._lock:
                self._admission.leave(who.uid, who.pid)
            if page is not None:
                page.close()
            if pidfd >= 0:
                os.close(pidfd)
            self._refuse(_refusal(error), f"pid={who.pid} uid={who.uid}")
            return None

    def _refuse(self, reason: Refusal, whom: str) -> None:
        with self._lock:
            first = not self._admission.refused[reason]
            self._admission.refuse(reason)
        if first:
            _log.warning("a job's process may not connect %s reason=%s", whom, reason)

    def _drop(self, fd: int) -> None:
        """Closing a descriptor takes it out of epoll, too."""
        with self._lock:
            peer = self._peers.pop(fd)
            del self._by_pidfd[peer.pidfd]
            self._admission.leave(peer.process.uid, peer.process.pid)
            peer.page.close()
        with suppress(OSError):
            peer.connection.close()
        os.close(peer.pidfd)


def _refusal(error: Exception) -> Refusal:
    match error:
        case ProcessLookupError() | BrokenPipeError() | ConnectionResetError():
            return Refusal.GONE
        case UsageError():
            return Refusal.NO_JOB
        case PermissionError():
            return Refusal.UNREADABLE
        case _:
            return Refusal.NO_RESOURCES


def _tell(page: JobPage, notice: Notice) -> None:
    page.notify(
        Subject.PATH_ALIVE if notice.usable else Subject.PATH_DEAD,
        at_ns=notice.reason.at_ns,
        expires_ns=notice.expires_ns,
        path=notice.path,
    )


def _view(peer: _Peer, told: Told, flows: Sequence[ProcessFlow], now_ns: int) -> ProcessView:
    return ProcessView(
        job=peer.process.job,
        program=peer.process.program,
        pid=peer.process.pid,
        uid=peer.process.uid,
        age_ns=now_ns - peer.since_ns,
        flows=tuple(_flow_view(flow, now_ns) for flow in flows),
        left_out=told.flows - len(told.records) + told.left_out,
        malformed=len(told.records) - len(flows) + told.torn,
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

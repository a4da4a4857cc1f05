"""Accepts processes of jobs at a socket, and keeps the resources of each.

A separate thread does so. After its admission nothing that a process does costs the agent anything
until it is read.
"""

from __future__ import annotations

import abc
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from syntony.agent.job_admission import Admission, AdmissionRefusal
from syntony.errors import MissingError, UsageError
from syntony.io import job_socket
from syntony.io.job_socket import Process
from syntony.io.process import name_thread
from syntony.model import MS, S

_log = logging.getLogger(__name__)

TURN_NS = 10 * MS
"""Interval of rounds of accepting and removing processes: a process that floods the socket
waits."""
ACCEPTS = 16
"""Maximum connections accepted in one round."""
_ENDS = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class _Page(Protocol):
    def close(self) -> None: ...


_P = TypeVar("_P", bound=_Page)
_R = TypeVar("_R")


class Peer(NamedTuple, Generic[_P]):
    process: Process
    connection: socket.socket
    pidfd: int
    page: _P
    since_ns: int


class JobPeers(abc.ABC, Generic[_P]):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        """Protects the peers, their pages, admission and counters."""
        self._peers: dict[int, Peer[_P]] = {}
        """By descriptor of their connection."""
        self._by_pidfd: dict[int, int] = {}
        self._admission = Admission()
        self.connected = 0
        """Number of processes ever admitted."""
        self._ended_by: Exception | None = None
        self._stop = threading.Event()
        self._wake = -1
        self._listener: socket.socket | None = None
        self._bound: job_socket.SocketFile | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to serve, or restart. Raises `MissingError`: the socket cannot be made."""
        self.close()
        self._listener = job_socket.listen(self._path)
        self._bound = job_socket.file_of(self._path)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stop.clear()
        self._ended_by = None
        self._thread = threading.Thread(target=self._run, name="job-socket", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections, which processes notice. Idempotent."""
        self._stop.set()
        if self._thread is not None:
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            os.close(self._wake)
        self._thread = None
        if self._listener is not None:
            job_socket.remove(self._path, self._bound)
            self._listener.close()
        self._listener = None
        for fd in list(self._peers):
            self._drop(fd)

    @property
    def fault(self) -> Exception | None:
        """Why no process can connect any more: the error that ended the thread, or that the
        socket's file is missing or replaced."""
        if self._listener is None:
            return self._ended_by
        return self._ended_by or job_socket.missing(self._path, self._bound)

    def refused(self) -> dict[str, int]:
        """Processes that were refused, by reason."""
        with self._lock:
            return {reason.value: count for reason, count in self._admission.refused.items()}

    @property
    def processes(self) -> int:
        return len(self._peers)

    @abc.abstractmethod
    def _make(self, connection: socket.socket, process: Process) -> _P:
        """Make the resources of an admitted process. Raises `OSError` or `MissingError`: that
        failed."""

    def _greet(self, page: _P) -> None:
        """A process was admitted. Called holding the lock."""

    def _leave(self, peer: Peer[_P]) -> None:
        """A process has ended, or closed its connection; its page can be read for the last time.
        Called holding the lock."""

    def _of_each(self, read: Callable[[Peer[_P]], _R]) -> list[_R]:
        """Results of `read` for every connected process. The lock is released after each: accepting
        and removing processes waits for one page at most."""
        with self._lock:
            peers = list(self._peers.items())
        found = []
        for fd, peer in peers:
            with self._lock:
                if self._peers.get(fd) is peer:
                    found.append(read(peer))
        return found

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
            self._ended_by = error

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
            self._refuse(AdmissionRefusal.NO_RESOURCES, str(error))
            return False
        try:
            peer = self._admit(connection)
        except OSError as error:
            self._refuse(AdmissionRefusal.NO_RESOURCES, str(error))
            peer = None
        if peer is None:
            connection.close()
            return True
        with self._lock:
            self._peers[connection.fileno()] = peer
            self._greet(peer.page)
            self._by_pidfd[peer.pidfd] = connection.fileno()
            self.connected += 1
        # Only its end matters: data that it sends stays unread in its own buffer.
        epoll.register(connection, _ENDS)
        epoll.register(peer.pidfd, select.EPOLLIN)
        return True

    def _admit(self, connection: socket.socket) -> Peer[_P] | None:
        """Admit a process, or count why not. Raises `OSError`: out of resources."""
        who = job_socket.credentials(connection)
        if who.pid <= 0:
            self._refuse(AdmissionRefusal.UNSEEN, f"uid={who.uid}")
            return None
        now_ns = time.monotonic_ns()
        with self._lock:
            refusal = self._admission.try_enter(who.uid, who.pid, now_ns)
        if refusal is not None:
            return None
        pidfd = -1
        try:
            pidfd = job_socket.open_process(connection, who.pid)
            process = job_socket.identify(pidfd, who)
            return Peer(process, connection, pidfd, self._make(connection, process), now_ns)
        except (OSError, UsageError, MissingError) as error:
            with self._lock:
                self._admission.leave(who.uid, who.pid)
            if pidfd >= 0:
                os.close(pidfd)
            self._refuse(_refusal(error), f"pid={who.pid} uid={who.uid}")
            return None

    def _refuse(self, reason: AdmissionRefusal, whom: str) -> None:
        with self._lock:
            first = not self._admission.refused[reason]
            self._admission.refuse(reason)
        if first:
            _log.warning("process of a job refused %s reason=%s", whom, reason)

    def _drop(self, fd: int) -> None:
        """Closing a descriptor also removes it from epoll."""
        with self._lock:
            peer = self._peers.pop(fd)
            del self._by_pidfd[peer.pidfd]
            self._admission.leave(peer.process.uid, peer.process.pid)
            self._leave(peer)
            peer.page.close()
        with suppress(OSError):
            peer.connection.close()
        os.close(peer.pidfd)


def _refusal(error: Exception) -> AdmissionRefusal:
    match error:
        case ProcessLookupError() | BrokenPipeError() | ConnectionResetError():
            return AdmissionRefusal.GONE
        case UsageError():
            return AdmissionRefusal.NO_JOB
        case PermissionError():
            return AdmissionRefusal.UNREADABLE
        case _:
            return AdmissionRefusal.NO_RESOURCES

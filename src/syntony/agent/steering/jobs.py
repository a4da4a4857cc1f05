"""Finds the jobs of new connections, in a separate thread: /proc is slow, failover must not be.

A connection that its server has not accepted yet belongs to any process that listens there: a
server that accepts late must not make its peer wait for its second path.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable

from syntony.io.job_sockets import SocketHolder, lower_timeouts
from syntony.io.jobs import JobProcesses
from syntony.io.mptcp_sockets import listed, owners
from syntony.io.process import name_thread
from syntony.model import MS, S
from syntony.traffic.events import JobFound, SocketOwner

_log = logging.getLogger(__name__)
FIRST_LOOK_NS = 2 * MS
LAST_LOOK_NS = 2 * S
"""Interval of searches for the same connection, doubling: it may wait to be accepted."""
GIVE_UP_NS = 20 * S
"""An accepted connection that no job's process holds by then is not a job's."""
MOST_HELD = 65_536
"""Maximum found sockets that are kept without a request to quicken them; older ones are dropped."""
_REFUSED = {
    errno.EPERM: "other users' sockets are not ours to touch; the agent needs CAP_SYS_PTRACE",
    errno.ENOPROTOOPT: "this kernel cannot; Linux 6.15 and newer can",
    errno.ENOSYS: "this kernel or a filter of system calls has no pidfd_getfd",
}


class JobFinder:
    """Calls `found` once for every requested connection."""

    def __init__(self, found: Callable[[JobFound | SocketOwner], None]) -> None:
        self._found = found
        self._processes = JobProcesses()
        self._wanted: dict[int, int] = {}
        """Token → when it was requested."""
        self._sockets: set[int] = set()
        """Inodes of requested plain sockets."""
        self._held: dict[int, SocketHolder] = {}
        """Those that jobs' processes hold, until they are quickened."""
        self._quick: dict[int, int] = {}
        """Plain sockets to be quickened: inode → the shortest timeout in ns."""
        self._reported = ""
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def request(self, token: int) -> None:
        """Request the job of a connection; answered through `found`."""
        with self._changed:
            self._wanted[token] = time.monotonic_ns()
            self._changed.notify_all()

    def request_socket(self, inode: int) -> None:
        """The same for a plain connection that a process holds already: answered at the first
        search, because there may be many and few are jobs'."""
        with self._changed:
            self._sockets.add(inode)
            self._changed.notify_all()

    def quicken(self, inode: int, rto_ns: int) -> None:
        """Make the kernel retransmit sooner for a plain socket that was found."""
        with self._changed:
            self._quick[inode] = rto_ns
            self._changed.notify_all()

    def forget(self, token: int) -> None:
        """The connection has ended."""
        with self._changed:
            self._wanted.pop(token, None)

    def _run(self) -> None:
        name_thread("jobs")
        wait_ns = FIRST_LOOK_NS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._wanted or self._urgent())
                before, sockets, quick = set(self._wanted), self._sockets, self._quick
                self._sockets, self._quick = set(), {}
                if self._closing:
                    return
            self._lower(quick)
            if not before and not sockets:
                continue
            try:
                self._look(before, sockets)
            except OSError:
                _log.exception("looking up the jobs of connections failed, retrying")
            # Connections requested meanwhile are searched at once.
            fresh = self._pause(before, wait_ns)
            wait_ns = FIRST_LOOK_NS if fresh else min(2 * wait_ns, LAST_LOOK_NS)

    def _pause(self, before: set[int], wait_ns: int) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: self._closing or self._urgent() or not self._wanted.keys() <= before,
                wait_ns / S,
            )

    def _urgent(self) -> bool:
        return bool(self._sockets or self._quick)

    def _lower(self, quick: dict[int, int]) -> None:
        """A socket that cannot be quickened keeps the kernel's own timers: slower, not wrong."""
        for inode, rto_ns in quick.items():
            held = self._held.pop(inode, None)
            try:
                if held is not None:
                    lower_timeouts(held, inode, rto_ns)
            except OSError as error:
                if error.errno in _REFUSED and self._reported != (why := _REFUSED[error.errno]):
                    self._reported = why
                    _log.warning("TCP timers of plain connections not set reason=%s", why)

    def _look(self, tokens: set[int], sockets: set[int]) -> None:
        found = listed() if tokens else []
        waiting = {each.token for each in found if not each.inode}
        known = {token: held for token, held in owners(found).items() if token in tokens}
        jobs = self._processes.look({*sockets, *(each for held in known.values() for each in held)})
        now_ns = time.monotonic_ns()
        if len(self._held) > MOST_HELD:
            self._held.clear()
        self._held |= {inode: self._processes.held[inode] for inode in sockets & jobs.keys()}
        for inode in sockets:
            self._found(SocketOwner(at_ns=now_ns, inode=inode, job=jobs.get(inode, "")))
        for token in tokens:
            # Listeners of several jobs at one port: the one that accepts decides.
            names = {jobs.get(inode, "") for inode in known.get(token, ())}
            job = names.pop() if len(names) == 1 else ""
            with self._changed:
                requested_ns = self._wanted.get(token, now_ns)
                if not job and (token in waiting or now_ns - requested_ns < GIVE_UP_NS):
                    continue
                if self._wanted.pop(token, None) is None:
                    continue
            self._found(JobFound(at_ns=now_ns, token=token, job=job))

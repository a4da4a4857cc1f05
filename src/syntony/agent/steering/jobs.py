"""Finds out whose new connections are, on a thread of its own: /proc is slow, failover is not."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from syntony.io.jobs import JobProcesses
from syntony.io.mptcp_sockets import inodes
from syntony.model import MS, S
from syntony.traffic.events import JobFound, SocketOwner

_log = logging.getLogger(__name__)
FIRST_LOOK_NS = 2 * MS
LAST_LOOK_NS = 2 * S
"""Between two looks for the same connection, doubling: it may wait to be accepted."""
GIVE_UP_NS = 20 * S
"""A connection that no job's process holds by then is none of ours."""


class JobFinder:
    """Tells `found` about every connection asked for, once."""

    def __init__(self, found: Callable[[JobFound | SocketOwner], None]) -> None:
        self._found = found
        self._processes = JobProcesses()
        self._wanted: dict[int, int] = {}
        """Token to when it was asked for."""
        self._sockets: set[int] = set()
        """Inodes of plain sockets asked for."""
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

    def ask(self, token: int) -> None:
        """Whose is it? Answered through `found`."""
        with self._changed:
            self._wanted[token] = time.monotonic_ns()
            self._changed.notify_all()

    def ask_socket(self, inode: int) -> None:
        """The same of a plain connection that a process holds already: answered at the first look,
        for there may be many and few are jobs'."""
        with self._changed:
            self._sockets.add(inode)
            self._changed.notify_all()

    def forget(self, token: int) -> None:
        """It is over."""
        with self._changed:
            self._wanted.pop(token, None)

    def _run(self) -> None:
        wait_ns = FIRST_LOOK_NS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._wanted or self._sockets)
                before, sockets = set(self._wanted), self._sockets
                self._sockets = set()
                if self._closing:
                    return
            try:
                self._look(before, sockets)
            except OSError:
                _log.exception("looking for the jobs of connections failed, trying again")
            # Whoever is new meanwhile is looked for at once.
            fresh = self._pause(before, wait_ns)
            wait_ns = FIRST_LOOK_NS if fresh else min(2 * wait_ns, LAST_LOOK_NS)

    def _pause(self, before: set[int], wait_ns: int) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: self._closing or bool(self._sockets) or not self._wanted.keys() <= before,
                wait_ns / S,
            )

    def _look(self, tokens: set[int], sockets: set[int]) -> None:
        known = inodes() if tokens else {}
        listed = {token: inode for token, inode in known.items() if token in tokens and inode}
        jobs = self._processes.look({*listed.values(), *sockets})
        now_ns = time.monotonic_ns()
        for inode in sockets:
            self._found(SocketOwner(at_ns=now_ns, inode=inode, job=jobs.get(inode, "")))
        for token in tokens:
            job = jobs.get(listed.get(token, 0))
            with self._changed:
                asked_ns = self._wanted.get(token, now_ns)
                if job is None and now_ns - asked_ns < GIVE_UP_NS:
                    continue
                if self._wanted.pop(token, None) is None:
                    continue
            self._found(JobFound(at_ns=now_ns, token=token, job=job or ""))

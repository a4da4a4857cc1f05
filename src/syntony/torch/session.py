"""A worker's connection to the coordinator: the latest orders, for all threads of the process."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from syntony.torch import priority
from syntony.torch.messages import CoordinatorConnection
from syntony.torch.recovery import START

FENCED = 98
"""Exit code of a worker whose rank another one holds."""
REPORT_S = 1.0
RETURN_S, RETRY_S = 10.0, 0.05
"""A coordinator that dies is restarted by `syntony run`: for how long, and how often, to
reconnect."""
ACK_S = 15.0
"""A collective waits no longer than this for the record of its step: it rather continues
unprotected."""


class LostError(RuntimeError):
    """The job cannot continue: the participants are unknown."""


class NewerError(Exception):
    """A newer generation is being formed."""


class CoordinatorSession:
    """Receives in a separate thread; everything else waits on `cv`."""

    def __init__(self, target: str, name: str) -> None:
        self.cv = threading.Condition()
        self.generation = -1
        """The generation in which this worker takes part."""
        self.wanted = 0
        """The generation that is being formed, or formed."""
        self.rank: int | None = None
        self.world = 0
        self.plan: dict[str, Any] | None = None
        self.record = b""
        """Record of the boundary at which this replacement begins."""
        self.prologue = b""
        self.floor = START
        self.acked = START
        self.lost = False
        self.reason = ""
        """Why this worker is not protected."""
        self.fixed = ""
        """Why no rank can be replaced, though the job's state can be kept."""
        self.on_freeze: Callable[[], None] = lambda: None
        self.progress: Callable[[], dict[str, Any]] = dict
        """The operation that this worker is in (`hangs.RankProgress`)."""
        self._address: tuple[int, str] = (-1, "")
        self._host = -1
        self._released = False
        self._target, self._name = target, name
        self._closed = False
        self._out = threading.RLock()
        """Held while something is sent: a message is then either sent, or kept for a restarted
        coordinator."""
        self._records: dict[int, bytes] = {}
        """Records of boundaries that the coordinator may not have."""
        self._prologue: bytes | None = None
        self._unsent: list[dict[str, Any]] = []
        self._said = {"waiting": False, "finished": False, "reason": "", "harms": False}
        self._connection = CoordinatorConnection(target, {"role": "worker", "name": name})
        self._address_here = self._connection.local_address
        self._receiver = threading.Thread(target=self._receive, name="syntony-receive", daemon=True)
        self._receiver.start()
        threading.Thread(target=self._send_reports, name="syntony-speak", daemon=True).start()
        os.register_at_fork(after_in_child=self._leave)

    def _leave(self) -> None:
        """A child that the program forked is not a rank: it sends nothing, and waits for
        nothing."""
        self._out, self.cv = threading.RLock(), threading.Condition()
        self.lost = True
        self._connection.leave()

    def send(self, kind: str, record: bytes = b"", **rest: Any) -> None:
        with self._out:
            if self.lost:
                return
            self._remember(kind, record, rest)
            try:
                self._connection.send({"kind": kind} | rest, record)
            except OSError:  # the receiver notices it, too, and reconnects
                if kind in {"event", "digest", "sharded", "fixed"}:
                    self._unsent.append({"kind": kind} | rest)

    def _remember(self, kind: str, record: bytes, rest: dict[str, Any]) -> None:
        match kind:
            case "boundary":
                self._records[rest["boundary"]] = record
                self._records = {n: each for n, each in self._records.items() if n > self.acked}
            case "prologue":
                self._prologue = record
            case "waiting" | "finished":
                self._said[kind] = True
            case "unprotected":
                self._said |= rest

    def event(self, event: str, **rest: Any) -> None:
        """Add a line to the audit trail."""
        self.send("event", event=event, **rest)

    def close(self) -> None:
        """There is no coordinator any more."""
        self._closed = True
        self._connection.close()
        self._receiver.join()

    @property
    def local_address(self) -> str:
        """Address at which other ranks reach this one."""
        return self._address_here

    def socket_name(self) -> str:
        """The kernel's identification of the connection to the coordinator, which may be a new
        one."""
        with self._out, contextlib.suppress(OSError):
            return str(Path(f"/proc/self/fd/{self._connection.fileno()}").readlink())
        return ""

    def unprotect(self, reason: str, *, harms: bool = False) -> None:
        """From now on a lost rank ends the job, as without Syntony.

        `harms`: a rank that was replaced before may have diverged, so that this also ends the job.
        """
        if not self.reason:
            self.reason = reason
            self.send("unprotected", reason=reason, harms=harms)

    def fix(self, reason: str) -> None:
        """No rank can be replaced, but the job's state can be kept as long as none is lost."""
        self.fixed = reason
        self.send("fixed", reason=reason)

    # --- waiting ---

    def wait_rank(self) -> int:
        """This worker's rank; a spare waits until it gets one."""
        if self.rank is None:
            priority.restore(os.getpid())
            self.send("waiting")
        with self.cv:
            self.cv.wait_for(lambda: self.rank is not None or self.lost)
            if self.rank is None:
                os._exit(0)  # a spare that is no longer needed
            return self.rank

    def wait_plan(self) -> dict[str, Any]:
        """Wait for the newest generation's plan."""
        with self.cv:
            self.cv.wait_for(self._planned)
            self._check()
            assert self.plan is not None
            return self.plan

    def wait_plan_of(self, generation: int) -> dict[str, Any]:
        """Wait for a generation's plan. Raises `NewerError`: another is wanted by now."""
        self._wait(generation, self._planned)
        assert self.plan is not None
        return self.plan

    def _planned(self) -> bool:
        return self.lost or (self.plan is not None and self.plan["generation"] == self.wanted)

    def wait_host(self, generation: int) -> None:
        self._wait(generation, lambda: self._host == generation)

    def wait_address(self, generation: int) -> str:
        self._wait(generation, lambda: self._address[0] == generation)
        return self._address[1]

    def _wait(self, generation: int, ready: Callable[[], bool]) -> None:
        with self.cv:
            self.cv.wait_for(lambda: ready() or self.wanted != generation or self.lost)
            self._check()
            if self.wanted != generation:
                raise NewerError

    def wait_newer(self, generation: int, timeout_s: float) -> bool:
        """Wait; whether a generation after `generation` is wanted."""
        with self.cv:
            self.cv.wait_for(lambda: self.wanted > generation or self.lost, timeout_s)
            self._check()
            return self.wanted > generation

    def wait_ack(self, boundary: int) -> None:
        """Wait until the coordinator has this worker's record of a boundary."""
        if self.acked >= boundary or self.reason or self.lost:
            return
        with self.cv:
            if not self.cv.wait_for(lambda: self.acked >= boundary or self.lost, ACK_S):
                self.unprotect(f"the coordinator did not answer for {ACK_S:.0f} s")

    def wait_release(self) -> None:
        with self.cv:
            self.cv.wait_for(lambda: self._released or self.lost)

    def _check(self) -> None:
        if self.lost:
            raise LostError("a rank was lost, and so was the coordinator (`syntony run`)")

    # --- receiving ---

    def _send_reports(self) -> None:
        pause = threading.Event()
        while not self.lost:
            pause.wait(REPORT_S)
            self.send("heard", **self.progress())

    def _receive(self) -> None:
        while True:
            while (received := self._connection.receive()) is not None:
                message, record = received
                with self.cv:
                    self._note(message, record)
                    self.cv.notify_all()
                if message["kind"] == "freeze":
                    self.on_freeze()
            if self._closed or not self._return():
                break
        self._lose()

    def _return(self) -> bool:
        """Reconnect, and repeat messages that may have been lost; False: there is no
        coordinator."""
        hello = {"role": "worker", "name": self._name, "again": True}
        end_s = time.monotonic() + RETURN_S
        while time.monotonic() < end_s:
            with self._out, contextlib.suppress(OSError):
                state = {"generation": self.generation, "wanted": self.wanted}
                self._connection = CoordinatorConnection(self._target, hello | self._said | state)
                if self._prologue is not None:
                    self._connection.send({"kind": "prologue"}, self._prologue)
                for number, record in sorted(self._records.items()):
                    self._connection.send({"kind": "boundary", "boundary": number}, record)
                for message in self._unsent:
                    self._connection.send(message)
                self._unsent.clear()
                return True
            time.sleep(RETRY_S)
        return False

    def _note(self, message: dict[str, Any], record: bytes) -> None:
        match message["kind"]:
            case "ack":
                self.acked = max(self.acked, message["boundary"])
                self.floor = message["floor"]
            case "assign":
                self.rank, self.world = message["rank"], message["world"]
            case "freeze":
                self.wanted = max(self.wanted, message["generation"])
            case "prologue":
                self.prologue = record
            case "plan":
                self.wanted = max(self.wanted, message["generation"])
                self.plan, self.record = message, record
            case "host":
                self._host = message["generation"]
            case "form":
                self._address = message["generation"], message["address"]
            case "release":
                self._released = True
            case "fenced":
                os._exit(FENCED)

    def _lose(self) -> None:
        with self.cv:
            self.lost = True
            self.cv.notify_all()

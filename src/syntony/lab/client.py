"""A client for a running lab: query it, run commands in it, end it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from syntony import errors
from syntony.clock.truth import compare
from syntony.errors import MissingError, RemoteError, SyntonyError, UsageError
from syntony.io.job_socket import credentials
from syntony.io.run_directory import SOCKET_NAME, SOCKET_VARIABLE
from syntony.lab import state
from syntony.lab.messages import (
    HELD,
    Cleared,
    ClearRequest,
    DownRequest,
    FaultStatus,
    Going,
    Injected,
    InjectRequest,
    LabFile,
    LabRefusal,
    LabStatus,
    PathAnswer,
    PathReply,
    PathRequest,
    Reply,
    Request,
    StatusRequest,
)
from syntony.lab.netns import inside
from syntony.lab.plan import make_plan, unknown
from syntony.lab.provision import MACHINE_RUN
from syntony.lab.verbs.image import GUESTS_OWN
from syntony.lab.verbs.proxy import guest_entry
from syntony.lab.world import console_url, search_path
from syntony.model import S, Timeline
from syntony.wire.access_tokens import AccessTokenCommand
from syntony.wire.clocks import ClockQuery, ClockTruth
from syntony.wire.query import A, Query

_ASK_TIMEOUT_S = 20.0
_DOWN_TIMEOUT_S = 15.0
_COMMAND_TIMEOUT_S = 60.0
OWN = ("/run",)
"""Directories that a lab mounts over: the caller's files below them are not visible inside."""
_FULL_BYTES = 1 << 20
"""A store cannot be opened with less space than this."""
_CRASH_RESTARTS = 3
"""From this many restarts of a daemon on, errors quote its own log."""
LOGIN_NS = 600 * S
"""Validity of the login token in a printed console link."""
LOGIN_TIMEOUT_NS = 5 * S
_reply: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)
_R = TypeVar("_R", bound=Reply)


class Lab:
    """A running lab, by its directory (see `state.find`)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def controller_socket(self) -> Path:
        return state.socket_in_charge(self.directory)

    def ask(self, query: Query[A], *, timeout_ns: int = 10 * S) -> A:
        """The answer of the controller in charge, as `syntony.controller.client.ask`."""
        from syntony.controller.client import ask

        return ask(f"unix:{self.controller_socket}", query, timeout_ns=timeout_ns)

    def file(self) -> LabFile:
        """The lab's specification. Raises `RemoteError`: it has ended meanwhile."""
        try:
            data = (self.directory / state.LAB_FILE).read_bytes()
        except OSError as error:
            raise RemoteError(f"lab {self.name!r} has ended meanwhile") from error
        return msgspec.json.decode(data, type=LabFile)

    def status(self) -> LabStatus:
        return self._expect(StatusRequest(), LabStatus)

    def console_url(self) -> str:
        """The console's URL, with a token for one session.

        Raises:
            UsageError: the lab has no controller.
            RemoteError: its controller does not answer.
        """
        console = self.file().console
        if console is None:
            raise UsageError(f"lab {self.name} was started with --no-agents: there is no console")
        order = AccessTokenCommand(
            role="operator", name=console.user, valid_ns=LOGIN_NS, once=True, by=console.user,
            comment="console",
        )  # fmt: skip
        made = self.ask(order, timeout_ns=LOGIN_TIMEOUT_NS)
        return console_url(console.port, made.token)

    def crash_reports(self, of: str = "") -> tuple[str, ...]:
        """Daemons that do not stay up, each with the last line of its log; before them, if it is
        so, that the lab's disk is full. Raises `RemoteError`.

        Args:
            of: only those whose names begin with this.
        """
        reports = tuple(
            f"{daemon.name} restarted {daemon.restarts} times, last: {self._last_line(daemon.name)}"
            for daemon in self.status().daemons
            if daemon.restarts >= _CRASH_RESTARTS
            and daemon.name.startswith(of)
            and daemon.state != HELD
        )
        if reports and shutil.disk_usage(self.directory).free < _FULL_BYTES:
            full = f"the disk of {self.directory} is full; set TMPDIR to another place"
            return (full, *reports)
        return reports

    def _last_line(self, daemon: str) -> str:
        try:
            log = (self.directory / state.LOGS / f"{daemon}.log").read_text(errors="replace")
        except OSError as error:
            return f"its log cannot be read: {error.strerror}"
        return log.strip().rpartition("\n")[2] or "nothing in its log"

    def inject(
        self, kind: str, target: str, options: dict[str, str] | None = None, for_ns: int = 0
    ) -> FaultStatus:
        """Starts a fault. Raises `UsageError`, `MissingError`."""
        request = InjectRequest(kind=kind, target=target, options=options or {}, for_ns=for_ns)
        return self._expect(request, Injected).fault

    def clear(self, fault: int = 0) -> tuple[int, ...]:
        """Ends one fault, or all. Raises `UsageError`."""
        return self._expect(ClearRequest(fault=fault), Cleared).faults

    def paths(
        self,
        src: str,
        dst: str,
        sports: Sequence[int],
        dport: int,
        *,
        proto: str = "udp",
        family: int = 4,
    ) -> tuple[PathAnswer, ...]:
        """The path that each flow takes. Raises `UsageError`, `RemoteError`."""
        request = PathRequest(
            src=src, dst=dst, proto=proto, sports=tuple(sports), dport=dport, family=family
        )
        return self._expect(request, PathReply).paths

    def down(self) -> None:
        """Ends the lab and waits until it is removed; a hung one is killed. Raises `RemoteError`:
        it was killed, and does not end."""
        pid = self.pid()
        deadline_s = time.monotonic() + _DOWN_TIMEOUT_S
        try:
            self._expect(DownRequest(), Going)
        except RemoteError:
            deadline_s = 0.0
        while self.name in state.running():
            if time.monotonic() > deadline_s:
                with contextlib.suppress(ProcessLookupError):  # the name may be a new lab's
                    os.kill(pid, signal.SIGKILL)
                    self._wait_killed(pid)
                return
            time.sleep(0.02)

    def _wait_killed(self, pid: int) -> None:
        if not state.remove_killed(self.directory):
            raise RemoteError(
                f"lab {self.name!r} was killed and does not end: process {pid} or one of its "
                "children waits in the kernel (state D in: ps -eo pid,ppid,stat,wchan:20,args)"
            )

    def pid(self) -> int:
        """The supervisor's process id in this namespace, for entering the lab's namespaces."""
        with self._connect() as peer:
            return credentials(peer).pid

    def enter_argv(self, node: str, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` in namespace `node`.

        Raises:
            UsageError: there is no such node.
            MissingError: `nsenter` is not installed.
        """
        status = self.status()
        nodes = (*status.hosts, *status.leaves, *status.spines, "fe0", "ctl")
        if node not in nodes:
            raise unknown("host", node, nodes)
        nsenter = shutil.which("nsenter", path=search_path())
        if nsenter is None:
            raise MissingError("nsenter not found; install with: apt install util-linux")
        pid = self.pid()
        argv = [nsenter, "-t", str(pid), "-m", "-n", "-p", "--preserve-credentials"]
        if not Path(f"/proc/{pid}/ns/user").samefile("/proc/self/ns/user"):
            argv.append("-U")
        where = Path.cwd()
        # Our own `syntony` must be found there, even if its environment is not activated here.
        path = f"PATH={Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        machine = node in status.hosts and bool(self.file().image)
        own = GUESTS_OWN if machine else OWN
        chdir = [] if any(map(where.is_relative_to, own)) else [f"--chdir={where}"]
        here = ["env", *chdir, path]
        if node in status.hosts:
            here.append(f"SYNTONY_CLOCK_DIR={state.clock_directory(self.directory, node)}")
        entry = inside(node)
        if machine:
            here.append(f"{SOCKET_VARIABLE}={MACHINE_RUN}/{SOCKET_NAME}")
            entry = guest_entry(self.addresses(4)[f"{node}/mgmt0"])
        return [*argv, "--", *entry, *here, *command]

    def run(self, node: str, *argv: str) -> str:
        """Output of a command inside `node`. Raises `RemoteError` if it fails."""
        done = subprocess.run(
            self.enter_argv(node, argv),
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RemoteError(f"{' '.join(argv)} in {node}: {done.stderr.strip()}")
        return done.stdout

    def addresses(self, family: int) -> dict[str, str]:
        """The first end's address of every link."""
        links = make_plan(self.file().spec).links
        return {link.name: link.a.address(family) for link in links}

    def truth(self) -> list[ClockTruth]:
        """Every host's true clock and, once the controller knows, the estimate. Raises
        `MissingError`: synthetic clocks are not in this installation."""
        try:
            from syntony.io.clocks import SyntheticClock
            from syntony.io.true_clocks import true_clocks
        except ModuleNotFoundError as error:
            raise MissingError(f"synthetic clocks need {error.name}; reinstall syntony") from error
        known = self.file().clocks.items()
        truths = true_clocks([SyntheticClock(host, spec) for host, spec in known])
        return compare(truths, self._timelines())

    def _timelines(self) -> tuple[Timeline, ...]:
        """The controller's timelines; none while it does not answer."""
        if not self.controller_socket.exists():
            return ()
        try:
            return self.ask(ClockQuery()).timelines
        except RemoteError:
            return ()

    def _connect(self) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(_ASK_TIMEOUT_S)
        try:
            peer.connect(str(self.directory / state.CONTROL_SOCKET))
        except OSError as error:
            peer.close()
            if isinstance(error, FileNotFoundError):
                why = "it is coming up or going down; try again"
            else:
                why = f"{error.strerror}"
            raise RemoteError(f"lab {self.name!r} does not answer: {why}") from error
        return peer

    def _expect(self, request: Request, kind: type[_R]) -> _R:
        reply = self._ask(request)
        if isinstance(reply, LabRefusal):
            error = getattr(errors, reply.kind, SyntonyError)
            raise error(reply.reason)
        if not isinstance(reply, kind):
            raise RemoteError(f"lab {self.name!r} answered {type(reply).__name__}")
        return reply

    def _ask(self, request: Request) -> Reply:
        with self._connect() as peer, peer.makefile("rb") as stream:
            try:
                peer.sendall(msgspec.json.encode(request) + b"\n")
                line = stream.readline()
            except OSError as error:
                raise RemoteError(f"lab {self.name!r} does not answer: {error}") from error
        try:
            return _reply.decode(line)
        except msgspec.DecodeError as error:
            raise RemoteError(f"lab {self.name!r} is of another version: {error}") from error


def open_lab(name: str | None) -> Lab:
    """A running lab by name, or the only one. Raises `UsageError`."""
    return Lab(state.find(name))

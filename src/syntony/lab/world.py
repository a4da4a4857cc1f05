"""Starts the private world (namespaces) of a lab from outside, and makes sure that it ends. The
command line holds the supervisor's standard input (closed means end); a guard shell waits for
`unshare` and removes the lab's directory; `unshare --kill-child` kills the world's first process,
and with it every other one. All of them hold the lab's lock.
Directories are removed under the registry's lock (`state.claim`): a name that is used again at once
belongs to the new lab alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from syntony.errors import MissingError
from syntony.io.user_name import user_name
from syntony.lab import state
from syntony.lab.clocks import ClockOptions, draw_clocks
from syntony.lab.messages import ConsoleSpec, LabEvent, LabFile
from syntony.lab.plan import FabricSpec, make_plan
from syntony.lab.relay import pipe
from syntony.model.names import is_name
from syntony.traffic.classes import JobClass

TOOLS = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables", "unshare": "util-linux",
         "nsenter": "util-linux", "flock": "util-linux", "sh": "dash"}  # fmt: skip
"""Commands a lab needs, and the Debian package of each."""
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
GUARD = """
dir=$1; registry=$2; shift 2
"$@"; code=$?
flock "$registry" rm -rf -- "$dir"
exit $code
"""
_USERNS_SWITCHES = {
    "kernel/unprivileged_userns_clone": "0",
    "user/max_user_namespaces": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
}
_STOP_TIMEOUT_S = 15.0


def search_path() -> str:
    """PATH with the sbin directories, which ordinary users often lack."""
    have = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*have, *(place for place in _SBIN if place not in have)])


def missing_tools(tools: Mapping[str, str] = TOOLS) -> list[str]:
    """Commands of these, each with its Debian package, that are not installed."""
    return [name for name in tools if shutil.which(name, path=search_path()) is None]


def need(tools: Mapping[str, str] = TOOLS) -> None:
    """Raises `MissingError`, with how to install them, unless all these commands are there."""
    missing = missing_tools(tools)
    if missing:
        packages = " ".join(sorted({tools[name] for name in missing}))
        raise MissingError(f"{', '.join(missing)} not found; install with: apt install {packages}")


def unshare_argv() -> list[str]:
    """How this user makes a private world here. Raises `MissingError`: a tool is missing, or
    neither user namespaces nor root are to be had."""
    need()
    rest = ["--kill-child", "--mount-proc", "--propagation", "private", "--"]
    for flags in ("-Urnmpf", "-nmpf"):
        argv = ["unshare", flags, *rest]
        if _works([*argv, "true"]):
            return argv
        if os.geteuid() != 0:
            break
    raise MissingError(f"no private namespaces: {_explain_unshare_failure()}")


def allow_realtime() -> None:
    """Allow real-time scheduling for the agents' probe threads; only root may."""
    _, most = resource.getrlimit(resource.RLIMIT_RTPRIO)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_RTPRIO, (1, max(most, 1)))


def _works(argv: list[str]) -> bool:
    env = {**os.environ, "PATH": search_path()}
    return subprocess.run(argv, env=env, capture_output=True, check=False).returncode == 0


def _explain_unshare_failure() -> str:
    for name, bad in _USERNS_SWITCHES.items():
        file = Path("/proc/sys", name)
        if file.exists() and file.read_text(encoding="ascii").strip() == bad:
            dotted = name.replace("/", ".")
            good = {"0": "1", "1": "0"}[bad] if "max" not in name else "15000"
            return f"{dotted} is {bad}; run as root, or as root once: sysctl -w {dotted}={good}"
    if os.geteuid() == 0:
        return "this container forbids them; it needs CAP_SYS_ADMIN (docker: --privileged)"
    return "user namespaces are forbidden here (a container?); run as root"


def new_lab(
    name: str,
    spec: FabricSpec,
    *,
    family: str = "ipv4",
    agents: bool = True,
    clocks: ClockOptions | None = None,
    options: dict[str, str | int | float] | None = None,
    agent_options: dict[str, Any] | None = None,
    placement: str = "observe",
    classes: tuple[JobClass, ...] = (),
    image: str = "",
    console_port: int = 0,
    controllers: int = 1,
    gateways: int = 0,
) -> LabFile:
    """Everything a lab is made from, its clocks drawn and started now. Raises `UsageError`: a bad
    name, or sizes or clocks that do not fit."""
    started_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    hosts = make_plan(spec).hosts
    return LabFile(
        name=state.check_name(name),
        spec=spec,
        family=family,
        agents=agents,
        clocks=draw_clocks(hosts, spec.seed, started_ns, clocks or ClockOptions()),
        options=options or {},
        agent_options=agent_options or {},
        placement=placement,
        classes=classes,
        image=image,
        controllers=controllers,
        gateways=gateways,
        anchors=() if clocks is None else clocks.utc,
        console_port=console_port,
        session=state.terminal_session(),
    )


def _with_tapes(file: LabFile, directory: Path) -> LabFile:
    """Give the lab clocks that can be adjusted while it runs."""
    try:
        from syntony.io.clocks import make_tape
    except (MissingError, ModuleNotFoundError):
        return file  # no native library: no agents and no truth either
    clocks = {}
    for host, spec in file.clocks.items():
        place = state.clock_directory(directory, host)
        place.mkdir(parents=True)
        make_tape(place / state.TAPE)
        clocks[host] = msgspec.structs.replace(spec, tape=str(place / state.TAPE))
    return msgspec.structs.replace(file, clocks=clocks)


class World:
    """A lab being started and supervised; leaving the `with` block ends it, unless `leave_running`
    was called."""

    def __init__(self, file: LabFile, *, detach: bool) -> None:
        """Raises `UsageError` (name), `MissingError` (machine, or a port that is taken)."""
        argv = unshare_argv()
        console = _listen(file.console_port) if file.agents else None
        self.login_token = secrets.token_hex(32)
        """Login token for one session of the console."""
        self.console_url = ""
        """With the token; empty: there is no console."""
        if console is not None:
            file = msgspec.structs.replace(file, console=_console(console, self.login_token))
            self.console_url = console_url(console.getsockname()[1], self.login_token)
        self.directory, lock = state.claim(file.name)
        self._left_running = False
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        try:
            with os.fdopen(lock, "rb"):
                file = _with_tapes(file, self.directory)
                (self.directory / state.LAB_FILE).write_bytes(msgspec.json.encode(file))
                inherited = [lock] if console is None else [lock, console.fileno()]
                self._guard = self._start([*argv, *_supervisor(self.directory, detach)], inherited)
                self._lifeline, self._output = pipe(self._guard.stdin), pipe(self._guard.stdout)
        except BaseException as error:  # Ctrl-C leaves nothing either
            self._errors.close()
            state.sweep()
            if isinstance(error, OSError):
                raise MissingError(f"{self.directory}: {error.strerror}") from error
            raise
        finally:
            if console is not None:
                console.close()

    def _start(self, argv: list[str], inherited: list[int]) -> subprocess.Popen[bytes]:
        allow_realtime()
        return subprocess.Popen(
            ["sh", "-c", GUARD, "syntony-lab", str(self.directory), str(state.registry()), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PATH": search_path()},
            pass_fds=inherited,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lifeline.close()
        if not self._left_running:
            self._wait()
        self._output.close()
        self._errors.close()

    def _wait(self) -> None:
        try:
            self._guard.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._guard.pid, 9)
            self._guard.wait()
            state.remove_killed(self.directory)

    def wait_ready(self) -> None:
        """Until the fabric is up. Raises `MissingError`: it could not be brought up; nothing of it
        is left."""
        for event in self.events():
            if event.kind == "ready":
                return
            if event.kind == "failed":
                raise MissingError(event.text)
        self._guard.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        raise MissingError(f"the lab did not start: {said[-1] if said else 'no reason given'}")

    def events(self) -> Iterator[LabEvent]:
        """Yield the supervisor's events until the lab has ended and is removed."""
        decoder = msgspec.json.Decoder(LabEvent)
        for line in self._output:
            yield decoder.decode(line)

    def leave_running(self) -> None:
        """Let the lab outlive this process."""
        self._left_running = True
        self._guard.returncode = 0  # this process no longer waits for it


def _listen(port: int) -> socket.socket:
    """A socket of this network namespace: the lab's controller serves it from inside the lab."""
    try:
        return socket.create_server(("127.0.0.1", port), backlog=256)
    except OSError as error:
        raise MissingError(f"console: cannot listen on port {port}: {error.strerror}") from error


def _console(listening: socket.socket, token: str) -> ConsoleSpec:
    user = user_name()
    return ConsoleSpec(
        fd=listening.fileno(),
        port=listening.getsockname()[1],
        login_digest=hashlib.sha256(token.encode()).hexdigest(),
        user=user if is_name(user) else "user",
    )


def console_url(port: int, token: str) -> str:
    """What a browser opens. It does not send the part after ``#`` to anybody."""
    return f"http://127.0.0.1:{port}/#token={token}"


def _supervisor(directory: Path, detach: bool) -> list[str]:
    argv = [sys.executable, "-m", "syntony.lab.init", str(directory)]
    return [*argv, "--detach"] if detach else argv

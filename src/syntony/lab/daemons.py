"""Starts the controller and the agents, restarts those that die, and logs their output."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from syntony.errors import UsageError
from syntony.io.process import read_stat
from syntony.lab.messages import HELD, DaemonStatus

_FIRST_BACKOFF_S = 0.25
_LAST_BACKOFF_S = 8.0
_STEADY_S = 10.0
"""A daemon that ran this long was healthy: its backoff starts again from the shortest."""


class DaemonSpec(msgspec.Struct, frozen=True):
    """One daemon: `argv` enters its namespace by itself."""

    name: str
    node: str
    argv: tuple[str, ...]
    log: str
    env: dict[str, str] = {}
    fds: tuple[int, ...] = ()
    """File descriptors that it inherits under the same numbers."""


def telemetry_name(host: str) -> str:
    return f"agent-{host}"


def reactor_name(host: str) -> str:
    return f"reactor-{host}"


class _Daemon:
    def __init__(self, spec: DaemonSpec) -> None:
        self.spec = spec
        self.process: subprocess.Popen[bytes] | None = None
        self.pidfd = -1
        self.started_s = 0.0
        self.backoff_s = _FIRST_BACKOFF_S
        self.restarts = -1
        self.held: set[int] = set()
        self.paused: set[int] = set()
        self.timer: asyncio.TimerHandle | None = None


class Daemons:
    """All daemons of a lab; must be used inside a running event loop."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._daemons: dict[str, _Daemon] = {}
        self._closing = False
        self._all_ended = asyncio.Event()

    def start(self, spec: DaemonSpec) -> None:
        daemon = _Daemon(spec)
        self._daemons[spec.name] = daemon
        self._spawn(daemon)

    def hold(self, holder: int, name: str) -> None:
        """Kills a daemon and keeps it dead until released. Raises `UsageError`: no such daemon."""
        daemon = self._find(name)
        daemon.held.add(holder)
        if daemon.process is not None:
            daemon.process.kill()

    def release(self, holder: int, name: str) -> None:
        """Let it start again, at once."""
        daemon = self._daemons.get(name)
        if daemon is None or holder not in daemon.held:
            return
        daemon.held.discard(holder)
        self._start_again(daemon)

    def pause(self, holder: int, name: str) -> None:
        """SIGSTOP until resumed. Raises `UsageError`: no such daemon."""
        daemon = self._find(name)
        daemon.paused.add(holder)
        _send(daemon, signal.SIGSTOP)

    def resume(self, holder: int, name: str) -> None:
        daemon = self._daemons.get(name)
        if daemon is None or holder not in daemon.paused:
            return
        daemon.paused.discard(holder)
        if not daemon.paused:
            _send(daemon, signal.SIGCONT)

    def statuses(self) -> tuple[DaemonStatus, ...]:
        return tuple(_status(daemon) for daemon in self._daemons.values())

    async def close(self, grace_s: float) -> None:
        """SIGTERM to all, then SIGKILL to what is left after `grace_s`."""
        self._closing = True
        for daemon in self._daemons.values():
            if daemon.timer is not None:
                daemon.timer.cancel()
            _send(daemon, signal.SIGCONT)
            _send(daemon, signal.SIGTERM)
        if self._alive():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_ended.wait(), grace_s)
        for daemon in self._alive():
            _send(daemon, signal.SIGKILL)

    def _alive(self) -> list[_Daemon]:
        return [daemon for daemon in self._daemons.values() if daemon.process is not None]

    def _find(self, name: str) -> _Daemon:
        if name not in self._daemons:
            needed = "with --gateways" if name.startswith("gateway") else "without --no-agents"
            raise UsageError(f"{name} does not run in this lab; start a lab {needed}")
        return self._daemons[name]

    def _spawn(self, daemon: _Daemon) -> None:
        daemon.timer = None
        daemon.restarts += 1
        loop = asyncio.get_running_loop()
        with Path(daemon.spec.log).open("ab") as log:
            daemon.process = subprocess.Popen(
                daemon.spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **daemon.spec.env},
                pass_fds=daemon.spec.fds,
            )
        daemon.started_s = loop.time()
        daemon.pidfd = os.pidfd_open(daemon.process.pid)
        loop.add_reader(daemon.pidfd, self._died, daemon, daemon.process)
        if daemon.paused:
            _send(daemon, signal.SIGSTOP)

    def _died(self, daemon: _Daemon, process: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(daemon.pidfd)
        os.close(daemon.pidfd)
        code = process.wait()
        daemon.process = None
        if self._closing:
            if not self._alive():
                self._all_ended.set()
            return
        self._note(f"{daemon.spec.name} ended ({_reason(code)})")
        if daemon.held:
            return
        if loop.time() - daemon.started_s >= _STEADY_S:
            daemon.backoff_s = _FIRST_BACKOFF_S
        daemon.timer = loop.call_later(daemon.backoff_s, self._start_again, daemon)
        daemon.backoff_s = min(2 * daemon.backoff_s, _LAST_BACKOFF_S)

    def _start_again(self, daemon: _Daemon) -> None:
        if not daemon.held and daemon.process is None and not self._closing:
            self._spawn(daemon)


def _send(daemon: _Daemon, number: signal.Signals) -> None:
    if daemon.process is not None:
        daemon.process.send_signal(number)


def _reason(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _status(daemon: _Daemon) -> DaemonStatus:
    process = daemon.process
    state = "running"
    if process is None:
        state = HELD if daemon.held else "waiting"
    elif daemon.paused:
        state = "stopped"
    return DaemonStatus(
        name=daemon.spec.name,
        node=daemon.spec.node,
        state=state,
        pid=None if process is None else process.pid,
        restarts=daemon.restarts,
        cpu_ns=0 if process is None else _cpu_ns(process.pid),
    )


def _cpu_ns(pid: int) -> int:
    """Processor time of a process; 0 once it has ended."""
    try:
        return read_stat(Path(f"/proc/{pid}")).cpu_ns
    except OSError:
        return 0

"""Faults of hosts: an agent or the controller dies or stops, something eats the processor."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from typing import ClassVar

from syntony.lab.daemons import CONTROLLER_DAEMON, reactor_name, telemetry_name
from syntony.lab.faults.base import Fault, Order, Site, TargetKind


class _OfDaemons(Fault):
    target = TargetKind.HOST
    of: ClassVar[tuple[Callable[[str], str], ...]] = (reactor_name, telemetry_name)
    """Which daemons of the target: names them."""

    def each(self, act: Callable[[int, str], None]) -> None:
        for name in self.of:
            act(self.number, name(self.order.target))


class AgentKill(_OfDaemons):
    """SIGKILL, and no restart until undone."""

    name = "agent-kill"
    meaning = "the host's agent is killed, and started again at the end"

    def apply(self) -> None:
        self.each(self.site.daemons.hold)

    def undo(self) -> None:
        self.each(self.site.daemons.release)


class AgentStop(_OfDaemons):
    """SIGSTOP, then SIGCONT."""

    name = "agent-stop"
    meaning = "the host's agent is frozen (SIGSTOP)"

    def apply(self) -> None:
        self.each(self.site.daemons.pause)

    def undo(self) -> None:
        self.each(self.site.daemons.resume)


class ReactorKill(AgentKill):
    """The same to one of its two processes."""

    name = "reactor-kill"
    meaning = "… only its reactor: nobody there probes, answers probes or moves jobs"
    of = (reactor_name,)


class ReactorStop(AgentStop):
    """The same to one of its two processes."""

    name = "reactor-stop"
    meaning = "… only its reactor is frozen"
    of = (reactor_name,)


class TelemetryKill(AgentKill):
    """The same to the other."""

    name = "telemetry-kill"
    meaning = "… only its telemetry process: nothing is reported, jobs are moved all the same"
    of = (telemetry_name,)


class TelemetryStop(AgentStop):
    """The same to the other."""

    name = "telemetry-stop"
    meaning = "… only its telemetry process is frozen"
    of = (telemetry_name,)


def _controller(_: str) -> str:
    return CONTROLLER_DAEMON


class ControllerKill(AgentKill):
    """The same to the controller."""

    name = "controller-kill"
    target = TargetKind.CONTROLLER
    meaning = "the controller is killed, and started again at the end"
    of = (_controller,)


class ControllerPause(AgentStop):
    """The same to the controller."""

    name = "controller-pause"
    target = TargetKind.CONTROLLER
    meaning = "the controller is frozen (SIGSTOP)"
    of = (_controller,)


class CpuHog(Fault):
    """Processes of the host that never sleep."""

    name = "cpu-hog"
    target = TargetKind.HOST
    meaning = "--procs busy loops compete with the host's agent"
    options: ClassVar[Mapping[str, str]] = {"procs": "1"}

    def __init__(self, site: Site, number: int, order: Order) -> None:
        super().__init__(site, number, order)
        self._hogs: list[subprocess.Popen[bytes]] = []

    def apply(self) -> None:
        argv = ["ip", "netns", "exec", self.order.target, "sh", "-c", "while :; do :; done"]
        for _ in range(self.order.integer("procs")):
            self._hogs.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL))

    def undo(self) -> None:
        while self._hogs:
            hog = self._hogs.pop()
            hog.kill()
            hog.wait()

"""Faults of hosts: an agent or the controller dies or stops, something eats the processor."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, ClassVar

from syntony.lab.daemons import CONTROLLER_DAEMON, agent_name
from syntony.lab.faults.base import Fault, Order, Site, TargetKind

if TYPE_CHECKING:
    from collections.abc import Mapping


class _OfDaemon(Fault):
    @property
    def _daemon(self) -> str:
        node = self.order.target
        return CONTROLLER_DAEMON if self.target is TargetKind.CONTROLLER else agent_name(node)


class AgentKill(_OfDaemon):
    """SIGKILL, and no restart until undone."""

    name = "agent-kill"
    target = TargetKind.HOST
    meaning = "the host's agent is killed, and started again at the end"

    def apply(self) -> None:
        self.site.daemons.hold(self.number, self._daemon)

    def undo(self) -> None:
        self.site.daemons.release(self.number, self._daemon)


class AgentStop(_OfDaemon):
    """SIGSTOP, then SIGCONT."""

    name = "agent-stop"
    target = TargetKind.HOST
    meaning = "the host's agent is frozen (SIGSTOP)"

    def apply(self) -> None:
        self.site.daemons.pause(self.number, self._daemon)

    def undo(self) -> None:
        self.site.daemons.resume(self.number, self._daemon)


class ControllerKill(AgentKill):
    """The same to the controller."""

    name = "controller-kill"
    target = TargetKind.CONTROLLER
    meaning = "the controller is killed, and started again at the end"


class ControllerPause(AgentStop):
    """The same to the controller."""

    name = "controller-pause"
    target = TargetKind.CONTROLLER
    meaning = "the controller is frozen (SIGSTOP)"


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

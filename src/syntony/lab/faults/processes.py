"""Faults of hosts: the agent dies or stops, something eats the processor."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, ClassVar

from syntony.lab.daemons import agent_name
from syntony.lab.faults.base import Fault, Order, Site, TargetKind

if TYPE_CHECKING:
    from collections.abc import Mapping


class AgentKill(Fault):
    """SIGKILL, and no restart until undone."""

    name = "agent-kill"
    target = TargetKind.HOST
    meaning = "the host's agent is killed, and started again at the end"

    def apply(self) -> None:
        self.site.daemons.hold(self.number, agent_name(self.order.target))

    def undo(self) -> None:
        self.site.daemons.release(self.number, agent_name(self.order.target))


class AgentStop(Fault):
    """SIGSTOP, then SIGCONT."""

    name = "agent-stop"
    target = TargetKind.HOST
    meaning = "the host's agent is frozen (SIGSTOP)"

    def apply(self) -> None:
        self.site.daemons.pause(self.number, agent_name(self.order.target))

    def undo(self) -> None:
        self.site.daemons.resume(self.number, agent_name(self.order.target))


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

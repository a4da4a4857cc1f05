"""Faults of processes: an agent, gateway or controller dies or stops, or a host's processor is
busy."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from typing import ClassVar

from syntony.lab.daemons import reactor_name, telemetry_name
from syntony.lab.faults.base import FaultContext, FaultOrder, LabFault, TargetKind
from syntony.lab.state import socket_in_charge


class _DaemonFault(LabFault):
    target = TargetKind.HOST
    of: ClassVar[tuple[Callable[[str], str], ...]] = (reactor_name, telemetry_name)
    """Which daemons of the target: names them."""

    def names(self) -> tuple[str, ...]:
        return tuple(name(self.order.target) for name in self.of)

    def each(self, act: Callable[[int, str], None]) -> None:
        for name in self.names():
            act(self.number, name)


class AgentKill(_DaemonFault):
    """SIGKILL, and no restart until undone."""

    name = "agent-kill"
    meaning = "the host's agent is killed, and started again at the end"

    def apply(self) -> None:
        self.each(self.site.daemons.hold)

    def undo(self) -> None:
        self.each(self.site.daemons.release)


class AgentStop(_DaemonFault):
    """SIGSTOP, then SIGCONT."""

    name = "agent-stop"
    meaning = "the host's agent is frozen (SIGSTOP)"

    def apply(self) -> None:
        self.each(self.site.daemons.pause)

    def undo(self) -> None:
        self.each(self.site.daemons.resume)


class ReactorKill(AgentKill):
    """As the parent class, for one of the agent's two processes."""

    name = "reactor-kill"
    meaning = "… only its reactor: that host does not probe, answer probes or move jobs"
    of = (reactor_name,)


class ReactorStop(AgentStop):
    """As the parent class, for one of the agent's two processes."""

    name = "reactor-stop"
    meaning = "… only its reactor is frozen"
    of = (reactor_name,)


class TelemetryKill(AgentKill):
    """As the parent class, for the agent's telemetry process."""

    name = "telemetry-kill"
    meaning = "… only its telemetry process: nothing is reported, jobs are moved all the same"
    of = (telemetry_name,)


class TelemetryStop(AgentStop):
    """As the parent class, for the agent's telemetry process."""

    name = "telemetry-stop"
    meaning = "… only its telemetry process is frozen"
    of = (telemetry_name,)


class _ControllerFault(_DaemonFault):
    """A fault of the controller that is in charge when the fault begins."""

    target = TargetKind.CONTROLLER

    def __init__(self, site: FaultContext, number: int, order: FaultOrder) -> None:
        super().__init__(site, number, order)
        self._in_charge = socket_in_charge(site.directory).stem

    def names(self) -> tuple[str, ...]:
        return (self._in_charge,)


class ControllerKill(_ControllerFault, AgentKill):
    """As the parent class, for the controller in charge."""

    name = "controller-kill"
    meaning = "the controller in charge is killed, and started again at the end"


class ControllerPause(_ControllerFault, AgentStop):
    """As the parent class, for the controller in charge."""

    name = "controller-pause"
    meaning = "the controller in charge is frozen (SIGSTOP)"


class _GatewayFault(_DaemonFault):
    """A fault of the gateway that is named."""

    target = TargetKind.GATEWAY

    def names(self) -> tuple[str, ...]:
        return (self.order.target,)


class GatewayKill(_GatewayFault, AgentKill):
    """As the parent class, for a gateway."""

    name = "gateway-kill"
    meaning = "the gateway is killed, and started again at the end"


class GatewayPause(_GatewayFault, AgentStop):
    """As the parent class, for a gateway."""

    name = "gateway-pause"
    meaning = "the gateway is frozen (SIGSTOP)"


class CpuHog(LabFault):
    """Processes of the host that never sleep."""

    name = "cpu-hog"
    target = TargetKind.HOST
    meaning = "--procs busy loops compete with the host's agent"
    options: ClassVar[Mapping[str, str]] = {"procs": "1"}

    def __init__(self, site: FaultContext, number: int, order: FaultOrder) -> None:
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

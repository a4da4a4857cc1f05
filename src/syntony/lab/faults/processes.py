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
    """Kills daemons, or freezes them by SIGSTOP; `undo` starts or resumes them.

    Of a host: the daemons of `of`. Of controllers: the one in charge when the fault begins.
    """

    of: ClassVar[tuple[Callable[[str], str], ...]]
    """Names of a host's daemons, from its own."""
    freezes: ClassVar[bool]

    def __init__(self, site: FaultContext, number: int, order: FaultOrder) -> None:
        super().__init__(site, number, order)
        self._names = tuple(name(order.target) for name in self.of)
        if self.target is TargetKind.CONTROLLER:
            self._names = (socket_in_charge(site.directory).stem,)
        elif self.target is TargetKind.GATEWAY:
            self._names = (order.target,)

    def apply(self) -> None:
        daemons = self.site.daemons
        for name in self._names:
            (daemons.pause if self.freezes else daemons.hold)(self.number, name)

    def undo(self) -> None:
        daemons = self.site.daemons
        for name in self._names:
            (daemons.resume if self.freezes else daemons.release)(self.number, name)


def _kill_and_freeze(
    kill: tuple[str, str],
    freeze: tuple[str, str],
    at: TargetKind = TargetKind.HOST,
    daemons: tuple[Callable[[str], str], ...] = (),
) -> tuple[type[LabFault], type[LabFault]]:
    """Both faults of the same daemons, from their names and meanings."""

    class Kill(_DaemonFault):
        name, meaning = kill
        target, of, freezes = at, daemons, False

    class Freeze(_DaemonFault):
        name, meaning = freeze
        target, of, freezes = at, daemons, True

    return Kill, Freeze


AGENT_FAULTS = (
    *_kill_and_freeze(
        ("agent-kill", "the host's agent is killed, and started again at the end"),
        ("agent-stop", "the host's agent is frozen (SIGSTOP)"),
        daemons=(reactor_name, telemetry_name),
    ),
    *_kill_and_freeze(
        (
            "reactor-kill",
            "… only its reactor: that host does not probe, answer probes or move jobs",
        ),
        ("reactor-stop", "… only its reactor is frozen"),
        daemons=(reactor_name,),
    ),
    *_kill_and_freeze(
        (
            "telemetry-kill",
            "… only its telemetry process: nothing is reported, jobs are moved all the same",
        ),
        ("telemetry-stop", "… only its telemetry process is frozen"),
        daemons=(telemetry_name,),
    ),
)
SERVER_FAULTS = (
    *_kill_and_freeze(
        ("controller-kill", "the controller in charge is killed, and started again at the end"),
        ("controller-pause", "the controller in charge is frozen (SIGSTOP)"),
        TargetKind.CONTROLLER,
    ),
    *_kill_and_freeze(
        ("gateway-kill", "the gateway is killed, and started again at the end"),
        ("gateway-pause", "the gateway is frozen (SIGSTOP)"),
        TargetKind.GATEWAY,
    ),
)


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

"""Messages on a lab's control socket: one JSON line each way, tagged records."""

from __future__ import annotations

from typing import Any

import msgspec

from syntony.lab.plan import FabricSpec
from syntony.model import SyntheticClockSpec
from syntony.traffic.classes import JobClass


class ConsoleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Where a lab's controller serves its API and console: on loopback outside the lab."""

    fd: int
    """Of the listening socket, which the lab's processes inherit."""
    port: int
    login_digest: str
    """SHA-256 of the first login token."""
    user: str


class LabFile(msgspec.Struct, frozen=True, kw_only=True):
    """``lab.json``: everything a lab was made from."""

    name: str
    spec: FabricSpec
    family: str = "ipv4"
    agents: bool = True
    clocks: dict[str, SyntheticClockSpec]
    options: dict[str, str | int | float] = {}
    """Of the daemons: ``mesh_peers``, ``probe_interval_ns``, ``store``."""
    agent_options: dict[str, Any] = {}
    """Keys of the agents' configuration, beside those that a lab sets."""
    placement: str = "observe"
    """Of the controller: ``off``, ``observe``, ``act``."""
    classes: tuple[JobClass, ...] = ()
    """Of jobs, for placement."""
    anchors: tuple[str, ...] = ()
    """Hosts with a UTC source: fleet time is steered to their clocks."""
    controllers: int = 1
    """Number of controllers: one is in charge, the others are standbys."""
    gateways: int = 0
    """Number of gateways, to which agents attach instead of the controllers."""
    image: str = ""
    """Folder of what the hosts boot, where they are virtual machines (`syntony.lab.verbs`)."""
    console_port: int = 0
    """Asked for; 0: any."""
    console: ConsoleSpec | None = None
    """Once it starts; None without agents."""
    session: str = ""
    """The terminal session that started it; see `state.terminal_session`."""


class StatusRequest(msgspec.Struct, frozen=True, tag="status"):
    """Everything about the running lab."""


class InjectRequest(msgspec.Struct, frozen=True, kw_only=True, tag="inject"):
    """Start a fault; 0 in `for_ns` is until cleared."""

    kind: str
    target: str
    options: dict[str, str]
    for_ns: int = 0


class ClearRequest(msgspec.Struct, frozen=True, kw_only=True, tag="clear"):
    """End a fault by its number, or all of them (0)."""

    fault: int


class PathRequest(msgspec.Struct, frozen=True, kw_only=True, tag="path"):
    """Ask for the path of a flow."""

    src: str
    dst: str
    proto: str
    sports: tuple[int, ...]
    dport: int
    family: int = 4


class DownRequest(msgspec.Struct, frozen=True, tag="down"):
    """End the lab."""


Request = StatusRequest | InjectRequest | ClearRequest | PathRequest | DownRequest


class LabLink(msgspec.Struct, frozen=True, kw_only=True):
    """One link as its switches see it."""

    name: str
    kind: str
    ends: tuple[str, str]
    up: bool


class FaultStatus(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    kind: str
    target: str
    options: dict[str, str]
    requested_ns: int
    since_ns: int
    """CLOCK_MONOTONIC: when it was requested, and when it was in force for certain."""
    age_ns: int
    left_ns: int | None
    """None: until cleared."""


HELD = "held"
"""State of a daemon that a fault has killed."""


class DaemonStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One agent or the controller."""

    name: str
    node: str
    state: str
    """``running``, ``stopped`` (SIGSTOP), ``held`` (killed by a fault), ``waiting`` (back-off)."""
    pid: int | None
    """As seen inside the lab."""
    restarts: int
    cpu_ns: int


class LabStatus(msgspec.Struct, frozen=True, kw_only=True, tag="lab"):
    name: str
    directory: str
    age_ns: int
    spec: FabricSpec
    hosts: tuple[str, ...]
    leaves: tuple[str, ...]
    spines: tuple[str, ...]
    links: tuple[LabLink, ...]
    avoided: tuple[str, ...]
    """Fabric links that routes avoid at present."""
    faults: tuple[FaultStatus, ...]
    daemons: tuple[DaemonStatus, ...]


class Injected(msgspec.Struct, frozen=True, kw_only=True, tag="injected"):
    """The fault is in force."""

    fault: FaultStatus


class Cleared(msgspec.Struct, frozen=True, kw_only=True, tag="cleared"):
    """These faults have ended."""

    faults: tuple[int, ...]


class PathAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The path of one flow: the namespaces it passes, hosts included."""

    sport: int
    spine: str | None
    """None: it stays below one leaf; ``?``: the second switch does not answer."""
    hops: tuple[str, ...]


class PathReply(msgspec.Struct, frozen=True, kw_only=True, tag="paths"):
    """One answer per source port asked."""

    paths: tuple[PathAnswer, ...]


class Going(msgspec.Struct, frozen=True, kw_only=True, tag="going"):
    """The lab will be gone soon."""


class LabRefusal(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The request was not carried out."""

    kind: str
    """Name of the error in `syntony.errors`."""
    reason: str


Reply = LabStatus | Injected | Cleared | PathReply | Going | LabRefusal


class LabEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the supervisor's output while `lab up` watches."""

    kind: str
    """``ready``, ``failed`` or ``note``."""
    text: str

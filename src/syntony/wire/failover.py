"""Messages about managed connections and their paths; part of `syntony.wire.messages`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from syntony.model import HOUR_NS
from syntony.wire.bounds import MAX_REASONS, MAX_VIEWS, Count, Text, Unsigned, Word
from syntony.wire.query import Query

MAX_SUBFLOWS = 256
"""Maximum of one connection; the kernel allows fewer."""
MAX_PROCESSES = 256
"""In one report."""
MAX_PROCESS_FLOWS = 1_024
"""Of all processes in one report."""


class SubflowView(msgspec.Struct, frozen=True, kw_only=True):
    """One subflow of a connection."""

    path: Text
    """``host/nic:port > host/nic:port``."""
    state: Word
    """``up``, ``standby`` (slower than the others, carries data only when they cannot), ``coming``,
    ``stalled``; of plain connections ``plain``, ``redrawn`` (the same NICs,
    another port), ``detour``, ``stalled``."""
    rate_bps: Count
    """Rate acknowledged by the peer, over about the last second."""


class ConnectionView(msgspec.Struct, frozen=True, kw_only=True):
    """One connection of a managed job, seen from one host."""

    job: Word
    connection: Word
    """MPTCP token on that host, or the inode of a plain connection's socket; hexadecimal."""
    subflows: Annotated[tuple[SubflowView, ...], Meta(max_length=MAX_SUBFLOWS)]
    degraded: Text = ""
    """The reason, if it has had fewer live paths than rails for 5 s or more; else empty."""


class ProcessFlowView(msgspec.Struct, frozen=True, kw_only=True):
    """One flow, as reported by its process."""

    mechanism: Word
    """``rdma``, ``tcp`` or ``mptcp``."""
    number: Unsigned
    """Of its queue pair, or its socket's cookie: unique within process and mechanism."""
    nic: Word
    local: Word
    """``address:port``; without the port where it is unknown."""
    remote: Word
    bytes_done: Unsigned
    bytes_outstanding: Unsigned
    outstanding: Unsigned
    """Operations."""
    idle_ns: int
    """Time since its last operation; -1: there was none yet."""
    errors: Unsigned
    last_error: int
    """An errno, or an ``ibv_wc_status``."""
    failed: bool


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a job that is connected to its host's agent."""

    job: Word
    program: Word
    pid: Unsigned
    uid: Unsigned
    age_ns: int
    """Since it connected."""
    flows: Annotated[tuple[ProcessFlowView, ...], Meta(max_length=MAX_PROCESS_FLOWS)]
    left_out: Unsigned = 0
    """Number of further flows that did not fit."""
    malformed: Unsigned = 0
    """Number of flows with impossible values, or that could not be read."""


class PathsReport(msgspec.Struct, frozen=True, kw_only=True, tag="paths"):
    """The agent's managed connections now; newest only, never spooled."""

    mode: Text
    """``off``, ``observe``, ``act``; or why paths cannot be managed here."""
    stopped: bool
    """Whether the stop switch is on."""
    connections: Annotated[tuple[ConnectionView, ...], Meta(max_length=MAX_VIEWS)]
    left_out: Count = 0
    """Number of connections beyond `MAX_VIEWS`."""
    degraded: Count = 0
    """Number of all connections with fewer live paths than rails for 5 s or more."""
    processes: Annotated[tuple[ProcessView, ...], Meta(max_length=MAX_PROCESSES)] = ()
    """Processes connected to the agent's socket: at most 256, with 1,024 flows in all."""
    refused: Annotated[dict[Word, Count], Meta(max_length=MAX_REASONS)] = {}
    """Number of processes refused since the agent started, by reason."""


class Switch(msgspec.Struct, frozen=True, kw_only=True, tag="switch"):
    """The fleet-wide stop switch of traffic control; the newest counts, also after restarts."""

    stopped: bool
    at_ns: int
    """Fleet time of the command."""
    by: str
    epoch: int = 0
    """Epoch of the controller that took the command; 0: an earlier version, without epochs."""
    recorded: bool = True
    """Whether control state had recorded it when it was sent."""
    live: bool = False
    """Sent to an agent that was attached when it was ordered."""

    def outranks(self, other: Switch) -> bool:
        """Whether it is the later command: of a later controller, regardless of clocks, or
        later by the clock of the same one. A stop that was not recorded, perhaps because its
        controller had been replaced already, gives way only to a command that is later by the
        clock, or was ordered while the agent was attached to the later controller.
        """
        if self.epoch and other.epoch and self.epoch != other.epoch:
            follows = self.epoch > other.epoch
            if not follows or self.live or other.recorded:
                return follows
        return self.at_ns > other.at_ns


class ConnectionsQuery(Query["FleetConnections"], frozen=True, kw_only=True, tag="connections"):
    """Connections of managed jobs, as agents last reported them."""

    job: str = ""
    host: str = ""


class FailoverLogQuery(Query["FailoverLog"], frozen=True, kw_only=True, tag="failover-log"):
    """Actions on paths over the last `window_ns`, newest last."""

    window_ns: int = HOUR_NS
    job: str = ""
    host: str = ""
    limit: int = 1_000
    end_ns: int = 0
    """Fleet time at which the window ends; 0: now."""


class FailoverStatusQuery(
    Query["FailoverStatus"], frozen=True, kw_only=True, tag="failover-status"
):
    """The stop switch, and every agent's mode."""


class SwitchCommand(Query["FailoverStatus"], frozen=True, kw_only=True, tag="switch"):
    """Throw the stop switch."""

    stopped: bool
    by: str
    """The user, for the log; over TLS the certificate's name is prepended."""
    why: str = ""


class HostPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Newest report of one agent."""

    host: str
    age_ns: int
    report: PathsReport


class FleetConnections(msgspec.Struct, frozen=True, kw_only=True, tag="connections"):
    hosts: tuple[HostPaths, ...]


class PathEventRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `path_events`."""

    ts_ns: int
    host: str
    job: str
    connection: str
    cause: str
    evidence: str
    action: str
    old_path: str
    new_path: str
    detect_ns: int
    act_ns: int
    result: str


class FailoverLog(msgspec.Struct, frozen=True, kw_only=True, tag="failover-log"):
    events: tuple[PathEventRow, ...]


class FailoverStatus(msgspec.Struct, frozen=True, kw_only=True, tag="failover-status"):
    """The stop switch (None: never thrown), and hosts by mode; ``stopped`` as agents report it."""

    switch: Switch | None
    hosts: tuple[HostPaths, ...]

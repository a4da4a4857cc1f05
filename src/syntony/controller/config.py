"""What a controller must be told."""

from __future__ import annotations

import enum

import msgspec

from syntony.controller.notify import Receiver
from syntony.metrics.settings import MetricsConfig
from syntony.traffic.classes import JobClass
from syntony.traffic.moves import MovePolicy
from syntony.traffic.pacing import PacePolicy


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[alerts]``: which rules, and whom to tell."""

    rules: str = ""
    """TOML file of rules on top of the default ones."""
    cluster: str = "fleet"
    """Names the fleet in every message."""
    receivers: tuple[Receiver, ...] = ()


class AnchorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One clock that knows UTC."""

    node: str
    """A host, or ``host/nic`` for a NIC's own clock."""
    bound_ns: int = 1_000_000
    """How far its clock may be from UTC; beside what its agent reports, if it does."""
    reported: bool = False
    """Its agent reports UTC and the bound (``utc = "kernel"`` in its own configuration)."""


class PlacementMode(enum.StrEnum):
    """How far the controller goes against contention."""

    OFF = "off"
    OBSERVE = "observe"
    """Say which flows would be moved, move none."""
    ACT = "act"


class PlacementConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[placement]``: moves of jobs' flows between paths that work."""

    mode: PlacementMode = PlacementMode.OBSERVE
    max_moves: int = 64
    """Of one step, a quarter of a second: the most that one wrong decision can do."""
    max_moves_per_s: int = 64
    classes: tuple[JobClass, ...] = ()
    """Quality of service between jobs; the first that names a job counts."""
    policy: MovePolicy | None = None
    """When to move, and when a move has helped; None: as `MovePolicy` says."""


class PacingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[pacing]``: flows that crowd a link are held back; classes are those of placement."""

    mode: PlacementMode = PlacementMode.OBSERVE
    policy: PacePolicy | None = None
    """When and how hard; None: as `PacePolicy` says."""


class ControllerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`/etc/syntony/controller.toml`."""

    listen: str
    """``ADDRESS:PORT`` for agents and remote command lines; mutual TLS always."""
    tls_ca: str
    tls_cert: str
    tls_key: str
    local_socket: str = ""
    """Path of a Unix socket for command lines on this machine; empty for none."""
    store: str = "/var/lib/syntony/store"
    """A directory (embedded engine) or ``clickhouse://user@host:port/database``."""
    mesh_peers: int = 10
    """Peers of each NIC."""
    ecmp_paths: int = 2
    """How many equal-cost paths a pair has at most; decides the number of source ports."""
    probe_interval_ns: int = 500_000_000
    """Time between two probe pairs on one path."""
    state_dir: str = ""
    """Where the fleet timeline, incidents and messages not yet delivered are kept over restarts;
    empty for nowhere."""
    anchors: tuple[AnchorConfig, ...] = ()
    """Clocks that fleet time is slowly led by, three or more so that one may lie; none to leave
    fleet time to itself."""
    utc_step_ns: int = 0
    """Beyond this, fleet time is stepped to UTC even after the start; 0 for never."""
    seed: int = 1
    """Of the probe plan."""
    alerts: AlertSettings = AlertSettings()
    placement: PlacementConfig = PlacementConfig()
    pacing: PacingConfig = PacingConfig()
    metrics: MetricsConfig = MetricsConfig()
    sla: str = ""
    """TOML file of what latency should be (docs/reference/sla.md); empty: nothing is promised."""
    topology: str = ""
    """File that names the fabric's devices and their addresses (see docs/reference/fabric.md);
    empty: hops go by their addresses."""

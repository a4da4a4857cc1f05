"""What a controller must be told."""

from __future__ import annotations

import msgspec

from syntony.controller.notify import Receiver


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[alerts]``: which rules, and whom to tell."""

    rules: str = ""
    """TOML file of rules on top of the default ones."""
    cluster: str = "fleet"
    """Names the fleet in every message."""
    receivers: tuple[Receiver, ...] = ()


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
    seed: int = 1
    """Of the probe plan."""
    state_dir: str = "/var/lib/syntony/controller"
    """What a restart must not lose: incidents, messages not yet delivered."""
    alerts: AlertSettings = AlertSettings()
    topology: str = ""
    """File that names the fabric's devices and their addresses (see docs/reference/fabric.md);
    empty: hops go by their addresses."""

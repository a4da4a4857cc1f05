"""What an agent must be told; everything else it learns from the host and the controller."""

from __future__ import annotations

import msgspec

from syntony.model import SyntheticClockSpec
from syntony.traffic.policy import Policy


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PEM files for mutual TLS."""

    ca: str
    cert: str
    key: str


class NicConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One NIC to probe from."""

    name: str
    """Interface name."""
    rail: int
    stamping: str = "auto"
    """``auto`` (hardware if the NIC can, else kernel), ``hardware`` or ``kernel``."""


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`/etc/syntony/agent.toml`."""

    host: str
    controller: str
    """``HOST:PORT`` of the controller."""
    tls: TlsFiles
    nics: tuple[NicConfig, ...]
    spool_dir: str
    spool_bytes: int = 64 << 20
    """Bound of the disk spool; oldest rows are shed (and counted) beyond it."""
    probe_port: int = 8620
    """UDP port of the reflector."""
    family: str = "ipv4"
    """``ipv4`` or ``ipv6``: which address of each NIC is probed."""
    traffic: Policy = Policy()
    """``[traffic]``: what may be done to the paths of jobs."""
    synthetic_clock: SyntheticClockSpec | None = None
    """Lab only: this host's clock."""

"""The agent's configuration; everything else it learns from the host and the controller."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from syntony.errors import UsageError
from syntony.metrics.settings import MetricsConfig
from syntony.model import SyntheticClockSpec
from syntony.model.config_values import (
    MemberName,
    Natural,
    NetdevName,
    NonEmpty,
    Port,
    Positive,
    one_of,
)
from syntony.model.names import parse_endpoint
from syntony.model.tls_files import TlsFiles
from syntony.traffic.policy import Policy


class NicConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[nics]]``: one NIC to probe from."""

    name: NetdevName
    """Interface name."""
    rail: Natural
    """Number of its rail; NICs of one rail have the same number on all hosts."""
    stamping: Annotated[str, one_of("auto", "hardware", "kernel")] = "auto"
    """``auto`` (hardware if the NIC can, else kernel), ``hardware`` or ``kernel``."""


class ClockConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[clock]``: how the host's processes get fleet time (docs/reference/clock-page.md)."""

    dir: NonEmpty = "/run/syntony"
    """Directory of the page ``clock`` and of ``clock.json``."""
    clockbound_dir: str = ""
    """Where to write ``shm0`` and ``shm`` for ClockBound's clients, whose default is
    ``/var/run/clockbound``; empty: nowhere, because ClockBound's own daemon may run here."""
    step_ns: Natural = 0
    """Served time steps if fleet time differs from it by more than this; 0: it always slews."""


class DisciplineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[discipline]``: which clocks follow fleet time. By default none: Syntony only measures."""

    chrony_sock: str = ""
    """Socket of `refclock SOCK PATH` in chrony.conf, fed once a second."""
    host_clock: bool = False
    """Steer CLOCK_REALTIME. Stop other daemons that do so: chronyd, ntpd, phc2sys of ptp4l."""
    nic_clocks: bool = False
    """Steer the clocks of NICs with hardware stamps."""
    max_ppb: Annotated[float, Meta(gt=0, le=500_000)] = 200_000.0
    """Largest frequency correction; the kernel allows 500 ppm."""
    step_ns: Natural = 0
    """Step a clock that is off by more than this; 0: always slew, at most 20 µs a second."""


class VerbsMode(enum.StrEnum):
    """Whether NICs are also probed over verbs."""

    AUTO = "auto"
    """NICs that have an RDMA port."""
    ON = "on"
    """All NICs; one without an RDMA port is reported as a part that waits."""
    OFF = "off"


class VerbsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[verbs]``: probes over queue pairs (docs/reference/verbs-probes.md)."""

    mode: VerbsMode = VerbsMode.AUTO
    """``auto`` (NICs with an RDMA port), ``on`` or ``off``."""


class AuditMode(enum.StrEnum):
    """Which audits the controller may order on this host."""

    OFF = "off"
    PASSIVE = "passive"
    """Checks that only read."""
    ACTIVE = "active"
    """Also checks that load the host."""


class AuditConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[audit]``: audits through the agent (docs/how-to/audit.md)."""

    mode: AuditMode = AuditMode.PASSIVE
    """Which checks the controller may order: ``off``, ``passive`` (they only read) or ``active``
    (also those that load the host)."""


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`/etc/syntony/agent.toml`."""

    host: MemberName
    """This host's name in the fleet, as in its certificate."""
    controller: str | tuple[str, ...]
    """``HOST:PORT`` of the controller, or a list: with its standbys, or of gateways. The first one
    that answers is used (docs/how-to/high-availability.md)."""
    tls: TlsFiles
    nics: tuple[NicConfig, ...]
    spool_dir: NonEmpty
    """Directory of the rows that the controller has not stored yet."""
    spool_bytes: Positive = 64 << 20
    """Limit of the disk spool; beyond it the oldest rows are dropped (and counted)."""
    probe_port: Port = 8620
    """UDP port of the reflector."""
    family: Annotated[str, one_of("ipv4", "ipv6")] = "ipv4"
    """``ipv4`` or ``ipv6``: which address of each NIC is probed."""
    clock: ClockConfig = ClockConfig()
    reactor_dir: str = ""
    """Directory of the socket between the agent's two processes, and of the reactor's state; empty:
    ``[clock] dir``. Some file systems do not support sockets."""
    discipline: DisciplineConfig = DisciplineConfig()
    utc: Annotated[str, one_of("kernel", "off")] = "off"
    """``kernel`` or ``off``: whether to report this host's CLOCK_REALTIME as UTC. Its error is the
    one that the disciplining daemon (chrony, ptp4l with phc2sys) reports to the kernel."""
    metrics: MetricsConfig = MetricsConfig()
    traffic: Policy = Policy()
    """``[traffic]``: what may be done to the paths of jobs."""
    sample_segments: bool = True
    """Sample TCP segments of jobs, for one-way delays in band (docs/reference/jobs.md)."""
    read_gpus: bool = True
    """Query GPUs' drivers every 2 s, if there are any (docs/reference/gpus.md)."""
    audit: AuditConfig = AuditConfig()
    verbs: VerbsConfig = VerbsConfig()
    synthetic_clock: SyntheticClockSpec | None = None
    """Lab only: this host's clock."""

    def __post_init__(self) -> None:
        if not self.controllers:
            raise ValueError("controller: name at least one, as HOST:PORT")
        for each in self.controllers:
            try:
                parse_endpoint(each)
            except UsageError as error:
                raise ValueError(f"controller: {error}") from error
        names = [nic.name for nic in self.nics]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"nics: {name!r} is there twice")

    @property
    def controllers(self) -> tuple[str, ...]:
        """``HOST:PORT`` of each; one at least."""
        return (self.controller,) if isinstance(self.controller, str) else self.controller

    def socket_dir(self) -> Path:
        """Directory of the sockets of the reactor and for jobs."""
        return Path(self.reactor_dir or self.clock.dir)

"""Configuration of a controller."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated

import msgspec
from msgspec import Meta

from syntony.controller.notify import Receiver
from syntony.errors import ConfigError, UsageError
from syntony.mesh.plan import VerbsClass
from syntony.metrics.settings import MetricsConfig
from syntony.model import DAY_NS, HOUR_NS, S, SyntheticClockSpec, parse_duration_ns
from syntony.model.config_values import (
    ApiListener,
    ClockName,
    Endpoint,
    EndpointOrNone,
    Natural,
    NonEmpty,
    Positive,
    ProbeIntervalNs,
)
from syntony.model.tls_files import TlsFiles
from syntony.traffic.classes import JobClass
from syntony.traffic.moves import MovePolicy
from syntony.traffic.pace_policy import PacePolicy

MIN_DETAIL_NS = 6 * HOUR_NS
"""Latency is compared with the past hour, and an hour is aggregated by minute after its end."""
MAX_DETAIL_NS = 7 * DAY_NS
MIN_LIFETIME_NS = 10 * S
MAX_LIFETIME_NS = 366 * DAY_NS
_ANY_ADDRESS = {"0.0.0.0", "[::]"}  # noqa: S104 - compared only


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[alerts]``: rules and receivers of incidents (docs/reference/incidents.md)."""

    rules: str = ""
    """TOML file of rules that extend the default ones."""
    cluster: str = "fleet"
    """Name of the fleet in every message."""
    receivers: tuple[Receiver, ...] = ()


class AnchorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[anchors]]``: a clock that is UTC (docs/how-to/deploy.md)."""

    node: ClockName
    """A host, or ``host/nic`` for a NIC's own clock."""
    bound_ns: Natural = 1_000_000
    """Largest error of its clock against UTC, in addition to the error that its agent reports."""
    reported: bool = False
    """Its agent reports UTC and the bound (``utc = "kernel"`` in its own configuration)."""


class PlacementMode(enum.StrEnum):
    """What the controller does about contention: nothing, propose moves, or order them."""

    OFF = "off"
    OBSERVE = "observe"
    """Report the flows that would be moved, but move none."""
    ACT = "act"


class PlacementConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[placement]``: moves of jobs' flows off congested paths (docs/how-to/contention.md)."""

    mode: PlacementMode = PlacementMode.OBSERVE
    """``off``, ``observe`` or ``act``, until an operator sets another by `syntony traffic mode`."""
    max_moves: Natural = 64
    """Maximum moves in one step, a quarter of a second: limits the effect of a wrong decision."""
    max_moves_per_s: Natural = 64
    """Maximum moves in a second."""
    classes: tuple[JobClass, ...] = ()
    """Quality of service between jobs; the first class that names a job applies."""
    policy: MovePolicy | None = None
    """When to move, and when a move counts as successful; None: the defaults of `MovePolicy`."""


class PacingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[pacing]``: rates for flows that share a congested link; classes are those of placement."""

    mode: PlacementMode = PlacementMode.OBSERVE
    """``off``, ``observe`` or ``act``, until an operator sets another by `syntony traffic pacing`.
    """
    policy: PacePolicy | None = None
    """When to pace, and how much; None: the defaults of `PacePolicy`."""


class EnrolmentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[enrolment]``: the CA, and the port at which new members get their first certificate
    (docs/reference/security.md)."""

    listen: EndpointOrNone = ""
    """``ADDRESS:PORT`` where a join token is exchanged for a certificate; empty: nowhere."""
    authority: str = ""
    """Directory of the CA: ``ca.crt`` and ``ca.key``. Empty: this controller issues nothing, and
    certificates are renewed by other means."""
    lifetime_ns: Annotated[int, Meta(ge=MIN_LIFETIME_NS, le=MAX_LIFETIME_NS)] = DAY_NS
    """Validity of certificates; they are renewed after two thirds of it."""


class ApiConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[api]``: the HTTP API and the console (docs/reference/api.md)."""

    listen: ApiListener = ""
    """``ADDRESS:PORT``, over TLS with this controller's certificate unless it is loopback;
    ``fd:NUMBER`` for a socket that is listening already; empty: none."""
    login_digest: str = ""
    """SHA-256 of a token for one operator's session, for programs that start this controller;
    empty: none."""
    login_name: str = "login"
    """Name of that operator."""


class OidcConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[oidc]``: the console's login by an OpenID Connect provider (docs/how-to/oidc.md)."""

    issuer: str
    """The provider's issuer name: ``https://…``, plain ``http://`` only for loopback."""
    url: str
    """URL of this console for browsers; ``URL/api/v1/oidc/callback`` must be registered at the
    provider."""
    client_id: str
    """This console's client identifier at the provider."""
    client_secret_file: str = ""
    """A file that holds the client's secret; empty: a public client, by PKCE alone."""
    label: str = "single sign-on"
    """Text of the button on the login page, after "Log in with"."""
    scopes: tuple[str, ...] = ("openid", "profile")
    """Scopes requested from the provider."""
    name_claim: str = "preferred_username"
    """Claim of the ID token with the person's name for the audit log."""
    role_claim: str = "groups"
    """Claim of the ID token with the roles: a text or a list of texts; matched against the next
    two."""
    operators: tuple[str, ...] = ()
    """Roles at the provider that make a person an operator."""
    viewers: tuple[str, ...] = ()
    """Roles at the provider that make a person a viewer, who may only read."""
    ca: str = ""
    """PEM file of the CA of the provider's certificate; empty: those of the system."""


class ControllerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`/etc/syntony/controller.toml`."""

    listen: Endpoint
    """``ADDRESS:PORT`` for agents and remote command lines; mutual TLS always."""
    tls_ca: NonEmpty
    """PEM file of the CA that signs the certificates of the fleet."""
    tls_cert: NonEmpty
    """PEM file of this controller's certificate."""
    tls_key: NonEmpty
    """PEM file of its private key."""
    local_socket: str = ""
    """Path of a Unix socket for command lines on this machine; empty for none."""
    store: str = "/var/lib/syntony/store"
    """A directory (embedded engine) or ``clickhouse://user@host:port/database``."""
    detail_retention: str = "7d"
    """How long the store keeps rows of single seconds and traced paths, from ``6h`` to ``7d``; rows
    of minutes are kept for 90 days (docs/reference/scale.md#disk)."""
    mesh_peers: Positive = 10
    """Number of NICs that each NIC probes."""
    ecmp_paths: Positive = 2
    """Maximum number of equal-cost paths of a pair; decides the number of source ports."""
    probe_interval_ns: ProbeIntervalNs = 500_000_000
    """Time between two probe pairs on one path of two NICs."""
    verbs_classes: tuple[VerbsClass, ...] = (VerbsClass(),)
    """Classes in which NICs with RDMA are probed over verbs; empty: no such probes."""
    verbs_interval_ns: ProbeIntervalNs = 1_000_000_000
    """The same for probes over verbs, on one path in one class."""
    probe_key_period: str = "24h"
    """Time between two rotations of the probe keys, for example ``12h``; empty: only by
    `syntony probe keys --rotate`."""
    state_dir: str = ""
    """Directory of control state in SQLite (docs/reference/state.md). If this and `state` are
    empty, a restart forgets orders and incidents."""
    state: str = ""
    """``postgresql://user@host:port/database``: control state in PostgreSQL."""
    standby: bool = False
    """Wait while another controller leads, and take over when it is gone
    (docs/how-to/high-availability.md)."""
    gateway: bool = False
    """Be a gateway: store the rows of agents, and leave every decision to the leading controller
    (docs/how-to/high-availability.md#gateways)."""
    leaders: tuple[Endpoint, ...] = ()
    """For a gateway: ``ADDRESS:PORT`` of the controllers that may lead."""
    nic_prefixes: tuple[str, ...] = ()
    """Address ranges of the fleet's NICs, for example ``10.0.0.0/8``; NICs outside them are not
    probed, even if an agent reports them. Empty: any."""
    anchors: tuple[AnchorConfig, ...] = ()
    """Clocks that fleet time follows slowly, three or more so that one may be wrong; without any,
    fleet time is unrelated to UTC."""
    utc_step_ns: Natural = 0
    """Step fleet time to UTC if they differ by more than this, even after the start; 0: never."""
    seed: Natural = 1
    """Seed of the probe plan."""
    alerts: AlertSettings = AlertSettings()
    enrolment: EnrolmentConfig = EnrolmentConfig()
    placement: PlacementConfig = PlacementConfig()
    pacing: PacingConfig = PacingConfig()
    metrics: MetricsConfig = MetricsConfig()
    api: ApiConfig = ApiConfig()
    oidc: OidcConfig | None = None
    true_clocks: dict[str, SyntheticClockSpec] = {}
    """Host → its synthetic clock, to report errors; in labs only."""
    sla: str = ""
    """TOML file of latency objectives (docs/reference/sla.md); empty: none."""
    topology: str = ""
    """File that names the fabric's devices and their addresses (see docs/reference/fabric.md);
    empty: hops are named by their addresses."""

    def __post_init__(self) -> None:
        kept_ns = _duration_ns("detail_retention", self.detail_retention)
        if self.probe_key_period and not _duration_ns("probe_key_period", self.probe_key_period):
            raise ValueError("probe_key_period: give more than 0, or an empty text for never")
        _check_ports(
            {
                "listen": self.listen,
                "enrolment.listen": self.enrolment.listen,
                "api.listen": self.api.listen,
                "metrics.listen": self.metrics.listen,
            }
        )
        if not MIN_DETAIL_NS <= kept_ns <= MAX_DETAIL_NS:
            raise ValueError(f"detail_retention: {self.detail_retention}: from 6h to 7d")

    @property
    def detail_ns(self) -> int:
        return parse_duration_ns(self.detail_retention)

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key)


def check_gateway(config: ControllerConfig) -> None:
    """Raises `ConfigError`: a setting is not for a gateway, or a gateway's setting is missing."""
    if not config.gateway:
        if config.leaders:
            raise ConfigError("leaders: only for a gateway; add gateway = true")
        return
    if not config.leaders:
        raise ConfigError(
            'gateway: name its leaders, for example leaders = ["controller1.example:8443"]'
        )
    its_leaders = {
        "state": config.state,
        "state_dir": config.state_dir,
        "standby": config.standby,
        "local_socket": config.local_socket,
        "enrolment.listen": config.enrolment.listen,
        "enrolment.authority": config.enrolment.authority,
        "api.login_digest": config.api.login_digest,
        "oidc": config.oidc,
    }
    set_here = [name for name, value in its_leaders.items() if value]
    if set_here:
        raise ConfigError(
            f"{', '.join(set_here)}: not for a gateway, its leader has these settings; remove them"
        )


def _check_ports(listeners: Mapping[str, str]) -> None:
    """Raises `ValueError`: two of them would listen at one port of one address."""
    places = {
        name: at.rpartition(":")[::2]
        for name, at in listeners.items()
        if at and not at.startswith("fd:") and not at.endswith(":0")
    }
    for one, other in combinations(places, 2):
        (host, port), (other_host, other_port) = places[one], places[other]
        hosts = {host, other_host}
        if port == other_port and (len(hosts) == 1 or hosts & _ANY_ADDRESS):
            raise ValueError(f"{one} and {other} are both port {port}; give each its own")


def _duration_ns(key: str, text: str) -> int:
    try:
        return parse_duration_ns(text)
    except UsageError as error:
        raise ValueError(f"{key}: {error}") from error

"""Agent ↔ controller ↔ command line: msgpack-encoded tagged records over gRPC streams.

One gRPC service, ``syntony.Fleet``, with two methods and no generated code (see docs/decisions):

* ``Attach`` (stream ↔ stream): `AgentMessage` up, `ControllerMessage` down.
* ``Query`` (unary): `Query` up, `Answer` down.

Unknown fields are ignored, so that an older peer can read a newer one.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from syntony.errors import WireError
from syntony.model.clocks import ClockState, Edge, Timeline
from syntony.model.findings import Finding, Queue
from syntony.model.sla import SlaItem, SlaRow, SlaStatus
from syntony.model.utc import Utc, UtcReading
from syntony.wire.fabric import FabricChanges, FabricChangesQuery
from syntony.wire.traffic import (
    FlowsReport,
    MoveList,
    Moves,
    MovesQuery,
    Paces,
    PlacementCommand,
    Traffic,
    TrafficQuery,
)

PROTOCOL = 1
ATTACH = "/syntony.Fleet/Attach"
QUERY = "/syntony.Fleet/Query"
MAX_MESSAGE_BYTES = 16 << 20
MAX_VIEWS = 2_000
"""Connections one report may describe."""
MAX_UNACKED = 64
"""Batches an agent may have under way; a controller that is new to a stream looks this many up in
the store, so that what a predecessor stored but never acknowledged is not stored twice."""


# --- agent to controller ---------------------------------------------------------------------


class NicInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One NIC as its agent found it."""

    name: str
    rail: int
    addresses: tuple[str, ...]
    """The one to probe first."""
    clock: str
    """The clock its stamps are in: ``h3`` (host clock) or ``h3/rail0`` (its own)."""
    stamping: str
    """``kernel``, ``hardware`` or ``synthetic``; with the reason when degraded."""
    port: int
    """UDP port its reflector listens on."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """First message of every stream."""

    protocol: int
    version: str
    host: str
    nics: tuple[NicInfo, ...]
    stream: str
    """Identity of the agent's spool; batch numbers count within it."""


class Batch(msgspec.Struct, frozen=True, kw_only=True, tag="batch"):
    """Rows of one table; acknowledged when they are safe in the store."""

    seq: int
    table: str
    rows: int
    dropped: int
    """Rows this agent ever shed, all tables together."""
    arrow: bytes
    """One Arrow IPC stream."""


class Edges(msgspec.Struct, frozen=True, kw_only=True, tag="edges"):
    """What the agent's own pairs say about the clocks, newest window only; never spooled."""

    edges: tuple[Edge, ...]
    utc: tuple[UtcReading, ...] = ()
    """What the host says of UTC."""


class SubflowView(msgspec.Struct, frozen=True, kw_only=True):
    """One way of a connection."""

    path: str
    """``host/nic:port > host/nic:port``."""
    state: str
    """``up``, ``coming``, ``stalled``; of plain connections ``plain``, ``redrawn`` (the same NICs,
    another port), ``detour``, ``stalled``."""
    rate_bps: int
    """Acknowledged by the peer, over the last second or so."""


class ConnectionView(msgspec.Struct, frozen=True, kw_only=True):
    """One connection of a managed job, seen from one host."""

    job: str
    connection: str
    """MPTCP token on that host, or the inode of a plain connection's socket; hexadecimal."""
    subflows: tuple[SubflowView, ...]


class PathsReport(msgspec.Struct, frozen=True, kw_only=True, tag="paths"):
    """The agent's managed connections now; newest only, never spooled."""

    mode: str
    """``off``, ``observe``, ``act``; or why paths cannot be managed here."""
    stopped: bool
    """By the stop switch."""
    connections: tuple[ConnectionView, ...]
    left_out: int = 0
    """Connections beyond `MAX_VIEWS`."""


class AuditReport(msgspec.Struct, frozen=True, kw_only=True, tag="audit-report"):
    """What came of an audit's order; never spooled."""

    order: str
    report: bytes = b""
    """JSON of `syntony.audit.result.HostReport`."""
    refused: str = ""
    """Why there is none."""


AgentMessage = Hello | Batch | Edges | PathsReport | FlowsReport | AuditReport

# --- controller to agent ---------------------------------------------------------------------


class ProbeFlow(msgspec.Struct, frozen=True, kw_only=True):
    """One probed path: local NIC → remote NIC with one entropy."""

    flow_id: int
    """Unique within its agent, and the same in every plan that holds the path."""
    src: str
    """Local NIC's name."""
    dst: str
    """Remote NIC as ``host/nic``."""
    dst_nic_id: int
    dst_addr: str
    dst_port: int
    src_port: int
    flow_label: int = 0
    dscp: int = 0
    interval_ns: int
    """One probe pair per interval."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, tag="plan"):
    """Whom to probe. Replaces the previous plan; flows with a known id keep their state."""

    generation: int
    nic_ids: dict[str, int]
    """The agent's own NICs to their numbers on the wire."""
    nic_names: dict[int, str]
    """Every NIC that may probe this agent: number → ``host/nic``."""
    clocks: dict[str, str]
    """NIC (``host/nic``) → clock node, for every NIC in the flows."""
    key_id: int
    key: bytes
    """16 bytes: authenticates probe packets."""
    flows: tuple[ProbeFlow, ...]


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag="ack"):
    """Every batch of this stream up to `seq` is in the store."""

    seq: int


class Timelines(msgspec.Struct, frozen=True, kw_only=True, tag="timelines"):
    """The network solve's answer for the agent's clocks and its peers' clocks."""

    timelines: tuple[Timeline, ...]
    utc: Utc | None = None
    """Where UTC is on the fleet timeline; None where the fleet has no anchors."""
    step: int = 0
    """Another one than before: fleet time was stepped, and what is served steps with it. 0: not
    since this controller started."""


class Refuse(msgspec.Struct, frozen=True, kw_only=True, tag="refuse"):
    """The controller will not serve this agent; the reason is for a person."""

    reason: str


class Switch(msgspec.Struct, frozen=True, kw_only=True, tag="switch"):
    """The fleet-wide stop switch of traffic control; the newest counts, also after restarts."""

    stopped: bool
    at_ns: int
    """Fleet time of the command."""
    by: str


class AuditOrder(msgspec.Struct, frozen=True, kw_only=True, tag="audit-order"):
    """Run checks and report. Checks go by name: no command line crosses the wire."""

    order: str
    """Never used twice."""
    host: str
    """Whom it is for: no other agent obeys it."""
    checks: tuple[str, ...]
    """Ids or beginnings of them; empty for all."""
    limits: dict[str, dict[str, Any]]
    """Check → limits, as a spec sets them."""
    active: bool
    deadline_ns: int
    """For the checks together."""
    expires_ns: int
    """Fleet time after which nobody obeys it."""
    by: str


ControllerMessage = Plan | Ack | Timelines | Refuse | Switch | AuditOrder | Moves | Paces

# --- questions from the command line ---------------------------------------------------------


class MatrixQuery(msgspec.Struct, frozen=True, kw_only=True, tag="matrix"):
    """The delay matrix over the last `window_ns` of fleet time."""

    window_ns: int = 10_000_000_000


class SeriesQuery(msgspec.Struct, frozen=True, kw_only=True, tag="series"):
    """Per-second history of one NIC pair, or of every pair when `src`/`dst` are empty."""

    src: str = ""
    dst: str = ""
    window_ns: int = 60_000_000_000


class ClockQuery(msgspec.Struct, frozen=True, kw_only=True, tag="clock"):
    """Current timelines."""


class ClockHistoryQuery(msgspec.Struct, frozen=True, kw_only=True, tag="clock-history"):
    """Past solutions of one clock, or of every clock when `node` is empty."""

    node: str = ""
    window_ns: int = 600_000_000_000
    step_ns: int = 0
    """At most one sample per clock and this much time; 0: as fine as fits an answer."""


class PairsQuery(msgspec.Struct, frozen=True, kw_only=True, tag="clock-pairs"):
    """What agents last said of their own pairs of clocks."""


class FleetQuery(msgspec.Struct, frozen=True, kw_only=True, tag="fleet"):
    """Agents, their NICs, connection and counters."""


class FindingsQuery(msgspec.Struct, frozen=True, kw_only=True, tag="findings"):
    """What is to blame now."""


class PathsQuery(msgspec.Struct, frozen=True, kw_only=True, tag="paths"):
    """The learnt paths, as names of components."""


class PlanQuery(msgspec.Struct, frozen=True, kw_only=True, tag="probe-plan"):
    """The probe plan in force."""


class LinksQuery(msgspec.Struct, frozen=True, kw_only=True, tag="links"):
    """Every port, with its losses of carrier over the window."""

    window_ns: int = 3_600_000_000_000


class LinkHistoryQuery(msgspec.Struct, frozen=True, kw_only=True, tag="link-history"):
    """What happened to one port (``host/name``), or to all where `nic` is empty."""

    nic: str = ""
    window_ns: int = 86_400_000_000_000


class IncidentsQuery(msgspec.Struct, frozen=True, kw_only=True, tag="incidents"):
    """Incidents that are live, or one and what it explains."""

    number: int = 0
    resolved: bool = False
    """Also those that are over."""
    since_ns: int = 0
    """Those that anything happened to in so long, from the store: also long ago."""


class RulesQuery(msgspec.Struct, frozen=True, kw_only=True, tag="rules"):
    """The rules in force."""


class IncidentAction(msgspec.Struct, frozen=True, kw_only=True, tag="incident-action"):
    """A command: somebody is on an incident (``ack``), or says that it is over (``resolve``)."""

    number: int
    what: str
    by: str
    """Who says so, beside the name in the certificate."""
    comment: str = ""


class SilenceAction(msgspec.Struct, frozen=True, kw_only=True, tag="silence-action"):
    """A command: no pages for matching incidents for a while, or an end to that."""

    rule: str = ""
    """Shell pattern; empty for every one."""
    subject: str = ""
    in_ns: int = 0
    """Begins so much later: a maintenance window to come."""
    for_ns: int = 0
    by: str = ""
    comment: str = ""
    end: int = 0
    """Number of the silence to end."""


class ConnectionsQuery(msgspec.Struct, frozen=True, kw_only=True, tag="connections"):
    """Connections of managed jobs, as agents last reported them."""

    job: str = ""
    host: str = ""


class FailoverLogQuery(msgspec.Struct, frozen=True, kw_only=True, tag="failover-log"):
    """What was done to paths over the last `window_ns`, newest last."""

    window_ns: int = 3_600_000_000_000
    job: str = ""
    host: str = ""
    limit: int = 1_000


class FailoverStatusQuery(msgspec.Struct, frozen=True, kw_only=True, tag="failover-status"):
    """The stop switch, and every agent's mode."""


class SwitchCommand(msgspec.Struct, frozen=True, kw_only=True, tag="switch"):
    """Throw the stop switch."""

    stopped: bool
    by: str
    """Who says so, for the log; over TLS the certificate's name is put in front."""
    why: str = ""


class SlaReportQuery(msgspec.Struct, frozen=True, kw_only=True, tag="sla-report"):
    """Latency against what it should be."""

    by: str = "pair"
    """``pair``, ``host``, ``rail`` or ``job``."""
    window_ns: int = 60_000_000_000


class SlaCheckQuery(msgspec.Struct, frozen=True, kw_only=True, tag="sla-check"):
    """Is a host where the topology says, and as fast as its place?"""

    host: str
    window_ns: int = 60_000_000_000


class QueuesQuery(msgspec.Struct, frozen=True, kw_only=True, tag="queues"):
    """Links at which packets wait now."""


class AuditCommand(msgspec.Struct, frozen=True, kw_only=True, tag="audit-command"):
    """A command: agents audit their hosts."""

    hosts: tuple[str, ...] = ()
    """Empty: all that are connected."""
    checks: tuple[str, ...] = ()
    limits: dict[str, dict[str, Any]] = {}
    active: bool = False
    deadline_ns: int = 60_000_000_000
    by: str
    """Who says so, beside the name in the certificate."""


class AuditReportsQuery(msgspec.Struct, frozen=True, kw_only=True, tag="audit-reports"):
    """Reports of an audit that have come in since the first `after`."""

    order: str
    after: int = 0


Query = (
    MatrixQuery
    | SeriesQuery
    | ClockQuery
    | ClockHistoryQuery
    | PairsQuery
    | FleetQuery
    | PlanQuery
    | LinksQuery
    | LinkHistoryQuery
    | FindingsQuery
    | FabricChangesQuery
    | PathsQuery
    | IncidentsQuery
    | RulesQuery
    | IncidentAction
    | SilenceAction
    | ConnectionsQuery
    | FailoverLogQuery
    | FailoverStatusQuery
    | SwitchCommand
    | TrafficQuery
    | MovesQuery
    | PlacementCommand
    | SlaReportQuery
    | SlaCheckQuery
    | QueuesQuery
    | AuditCommand
    | AuditReportsQuery
)


class MatrixCell(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of one NIC pair over a window; OWD fields are None when nothing arrived."""

    src: str
    dst: str
    paths: int
    sent: int
    lost: int
    owd_min_ns: int | None
    owd_p50_ns: int | None
    owd_p99_ns: int | None
    clk_err_ns: int | None
    dropped: int
    """Probes left out because an engine itself was late (own stall), not the network."""


class SeriesPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One second of one direction of one NIC pair."""

    ts_ns: int
    src: str
    dst: str
    sent: int
    lost: int
    owd_min_ns: int | None
    owd_p50_ns: int | None
    owd_p99_ns: int | None


class ClockSample(msgspec.Struct, frozen=True, kw_only=True):
    """One clock's solutions within one step: the newest one's place and rate, and the worst sigmas,
    bound and state of all of them."""

    ts_ns: int
    node: str
    ref_ns: int
    offset_ns: float
    drift_ppb: float
    sigma_ns: float
    drift_sigma_ppb: float | None
    bound_ns: float | None
    """None: unbounded, or not stored by the version of then."""
    state: ClockState
    reason: str = ""


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One agent as the controller sees it."""

    host: str
    connected: bool
    nics: tuple[NicInfo, ...]
    version: str
    last_batch_ns: int
    """Fleet time of the newest stored row, 0 if none."""
    batches: int
    rows: int
    dropped: int
    probes_per_s: float


class Matrix(msgspec.Struct, frozen=True, kw_only=True, tag="matrix"):
    cells: tuple[MatrixCell, ...]


class Series(msgspec.Struct, frozen=True, kw_only=True, tag="series"):
    points: tuple[SeriesPoint, ...]


class Clocks(msgspec.Struct, frozen=True, kw_only=True, tag="clock"):
    timelines: tuple[Timeline, ...]
    utc: Utc | None = None
    """Where UTC is on the fleet timeline; None where the fleet has no anchors."""


class Pairs(msgspec.Struct, frozen=True, kw_only=True, tag="clock-pairs"):
    edges: tuple[Edge, ...]


class ClockHistory(msgspec.Struct, frozen=True, kw_only=True, tag="clock-history"):
    """Samples by clock, then in order of time; `step_ns` as it was applied."""

    samples: tuple[ClockSample, ...]
    step_ns: int


class Fleet(msgspec.Struct, frozen=True, kw_only=True, tag="fleet"):
    agents: tuple[AgentStatus, ...]
    rows_stored: int
    probes_per_s: float


class ProbePlan(msgspec.Struct, frozen=True, kw_only=True, tag="probe-plan"):
    generation: int
    flows: tuple[tuple[str, ProbeFlow], ...]
    """(source as ``host/nic``, flow)."""


class LinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One port as its agent last saw it."""

    nic: str
    netdev: str
    rdma: str
    link_layer: str
    driver: str
    role: str
    state: str
    gbps: float | None
    flaps: int
    """Losses of carrier within the asked window."""
    last_flap_ns: int | None
    seen_ns: int
    """Fleet time of the last look; an old one makes `state` a thing of the past."""
    watched_ns: int
    """Of the window, how long the port is known to have been watched."""
    temperature_c: float | None
    rx_dbm: float | None
    bias_ma: float | None


class LinkEventRow(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a port."""

    ts_ns: int
    nic: str
    kind: str
    losses: int
    before: str
    after: str
    detail: str
    remedy: str


class LinkCounterRow(msgspec.Struct, frozen=True, kw_only=True):
    """How far one counter went up over the window."""

    nic: str
    counter: str
    increase: int
    last_ns: int
    reading: str
    """The worst of the window: ``counted`` is exact, ``saturated`` a lower bound, ``unknown``
    not readable."""


class Links(msgspec.Struct, frozen=True, kw_only=True, tag="links"):
    ports: tuple[LinkStatus, ...]
    now_ns: int


class LinkHistory(msgspec.Struct, frozen=True, kw_only=True, tag="link-history"):
    events: tuple[LinkEventRow, ...]
    """Oldest first."""
    counters: tuple[LinkCounterRow, ...]
    now_ns: int


class Findings(msgspec.Struct, frozen=True, kw_only=True, tag="findings"):
    ts_ns: int
    """End of the newest window that was looked at, fleet time; 0 if none was yet."""
    findings: tuple[Finding, ...]


class LearntPath(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of one flow."""

    path_id: str
    src: str
    dst: str
    sport: int
    dport: int
    components: tuple[str, ...]
    """In order; ``a..b`` stands for what is not known."""


class LearntPaths(msgspec.Struct, frozen=True, kw_only=True, tag="paths"):
    paths: tuple[LearntPath, ...]


class IncidentsReply(msgspec.Struct, frozen=True, kw_only=True, tag="incidents"):
    incidents: tuple[dict[str, Any], ...]
    """As docs/reference/incidents.md describes them; newest first, or the one asked for and then
    those it explains."""
    silences: tuple[dict[str, Any], ...]
    waiting: int
    """Messages to receivers that have not been taken yet."""


class RulesReply(msgspec.Struct, frozen=True, kw_only=True, tag="rules"):
    rules: tuple[dict[str, Any], ...]


class HostPaths(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent last reported."""

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
    """The stop switch (None: never thrown), and hosts by mode; ``stopped`` is what agents say."""

    switch: Switch | None
    hosts: tuple[HostPaths, ...]


class SlaReport(msgspec.Struct, frozen=True, kw_only=True, tag="sla-report"):
    """Worst first."""

    by: str
    window_ns: int
    rows: tuple[SlaRow, ...]


class SlaChecked(msgspec.Struct, frozen=True, kw_only=True, tag="sla-check"):
    host: str
    status: SlaStatus
    items: tuple[SlaItem, ...]


class Queues(msgspec.Struct, frozen=True, kw_only=True, tag="queues"):
    queues: tuple[Queue, ...]
    looked: bool
    """False while too little was measured to say that there are none."""


class AuditStarted(msgspec.Struct, frozen=True, kw_only=True, tag="audit-started"):
    """The order is out."""

    order: str
    hosts: tuple[str, ...]
    """Agents that were told."""
    absent: tuple[str, ...]
    """Asked for, but not connected."""


class HostAudit(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent answered; `host` is the name in its certificate."""

    host: str
    report: bytes
    refused: str


class AuditReports(msgspec.Struct, frozen=True, kw_only=True, tag="audit-reports"):
    reports: tuple[HostAudit, ...]
    after: int
    """For the next question."""
    waiting: tuple[str, ...]
    """Hosts that have not answered; empty when all have."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """The query could not be answered; the reason is one line for a person."""

    reason: str


Answer = (
    Matrix
    | Series
    | Clocks
    | ClockHistory
    | Pairs
    | Fleet
    | ProbePlan
    | Links
    | LinkHistory
    | Findings
    | FabricChanges
    | LearntPaths
    | IncidentsReply
    | RulesReply
    | FleetConnections
    | FailoverLog
    | FailoverStatus
    | Traffic
    | MoveList
    | SlaReport
    | SlaChecked
    | Queues
    | AuditStarted
    | AuditReports
    | Failure
)  # fmt: skip
_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode
_agent: msgspec.msgpack.Decoder[AgentMessage] = msgspec.msgpack.Decoder(AgentMessage)
_controller: msgspec.msgpack.Decoder[ControllerMessage] = msgspec.msgpack.Decoder(ControllerMessage)
_query: msgspec.msgpack.Decoder[Query] = msgspec.msgpack.Decoder(Query)
_answer: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def encode(message: AgentMessage | ControllerMessage | Query | Answer) -> bytes:
    """Any message to bytes."""
    return _encode(message)


def decode_agent(data: bytes) -> AgentMessage:
    """What an agent sent. Raises `WireError` on anything that is not such a message."""
    return _decode(_agent, data)


def decode_controller(data: bytes) -> ControllerMessage:
    """What a controller sent. Raises `WireError`."""
    return _decode(_controller, data)


def decode_query(data: bytes) -> Query:
    """A question. Raises `WireError`."""
    return _decode(_query, data)


def decode_answer(data: bytes) -> Answer:
    """An answer. Raises `WireError`."""
    return _decode(_answer, data)


def _decode(decoder: msgspec.msgpack.Decoder[_T], data: bytes) -> _T:
    if len(data) > MAX_MESSAGE_BYTES:
        raise WireError(f"message of {len(data)} bytes is over the limit of {MAX_MESSAGE_BYTES}")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WireError(f"not a message of this protocol: {error}") from error

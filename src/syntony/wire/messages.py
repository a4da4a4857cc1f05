"""Agent ↔ controller ↔ command line: msgpack-encoded tagged records over gRPC streams.

One gRPC service, ``syntony.Fleet``, with two methods and no generated code (see docs/decisions):

* ``Attach`` (stream ↔ stream): `AgentMessage` up, `ControllerMessage` down.
* ``Query`` (unary): `Query` up, `Answer` down.

Unknown fields are ignored, so that an older peer can read a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from syntony.errors import WireError
from syntony.wire.audit import (
    AuditCommand,
    AuditOrder,
    AuditReport,
    AuditReports,
    AuditReportsQuery,
    AuditStarted,
)
from syntony.wire.clocks import (
    ClockHistory,
    ClockHistoryQuery,
    ClockQuery,
    Clocks,
    Edges,
    Pairs,
    PairsQuery,
    Timelines,
)
from syntony.wire.control import Changes, ChangesQuery
from syntony.wire.fabric import (
    FabricChanges,
    FabricChangesQuery,
    Findings,
    FindingsQuery,
    LearntPaths,
    PathsQuery,
)
from syntony.wire.failover import (
    ConnectionsQuery,
    FailoverLog,
    FailoverLogQuery,
    FailoverStatus,
    FailoverStatusQuery,
    FleetConnections,
    PathsReport,
    Switch,
    SwitchCommand,
)
from syntony.wire.incidents import (
    IncidentAction,
    IncidentsQuery,
    IncidentsReply,
    RulesQuery,
    RulesReply,
    SilenceAction,
)
from syntony.wire.links import LinkHistory, LinkHistoryQuery, Links, LinksQuery
from syntony.wire.probes import Matrix, MatrixQuery, Plan, PlanQuery, ProbePlan, Series, SeriesQuery
from syntony.wire.sla import (
    Queues,
    QueuesQuery,
    SlaChecked,
    SlaCheckQuery,
    SlaReport,
    SlaReportQuery,
)
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

PROTOCOL = 2
READABLE = frozenset({1, 2})
"""What a controller understands: agents of protocol 1 send each message by itself."""
ATTACH = "/syntony.Fleet/Attach"
QUERY = "/syntony.Fleet/Query"
MAX_MESSAGE_BYTES = 16 << 20
BUNDLE_BYTES = 256 << 10
"""Of messages that are sent as one; what is larger goes by itself."""
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


AgentMessage = Hello | Batch | Edges | PathsReport | FlowsReport | AuditReport


class Bundle(msgspec.Struct, frozen=True, kw_only=True, tag="bundle"):
    """Messages of one agent in their order, on one trip: to send one costs more than what is in
    most of them."""

    messages: tuple[bytes, ...]
    """Each as it would be sent by itself; no bundles."""


# --- controller to agent ---------------------------------------------------------------------


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag="ack"):
    """Every batch of this stream up to `seq` is in the store."""

    seq: int


class Refuse(msgspec.Struct, frozen=True, kw_only=True, tag="refuse"):
    """The controller will not serve this agent; the reason is for a person."""

    reason: str


ControllerMessage = Plan | Ack | Timelines | Refuse | Switch | AuditOrder | Moves | Paces

# --- questions from the command line ---------------------------------------------------------


class FleetQuery(msgspec.Struct, frozen=True, kw_only=True, tag="fleet"):
    """Agents, their NICs, connection and counters."""


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
    | ChangesQuery
)


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
    faults: tuple[str, ...] = ()
    """NICs that its agent reports and that are not used, with the reason."""


class Fleet(msgspec.Struct, frozen=True, kw_only=True, tag="fleet"):
    agents: tuple[AgentStatus, ...]
    rows_stored: int
    probes_per_s: float


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
    | Changes
    | Failure
)  # fmt: skip
_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode
_bundled: msgspec.msgpack.Decoder[AgentMessage | Bundle] = msgspec.msgpack.Decoder(
    AgentMessage | Bundle
)
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


def bundles(messages: Iterable[bytes]) -> Iterator[bytes]:
    """What to send instead of these, encoded ones of an agent: as little as may be."""
    waiting: list[bytes] = []
    for message in messages:
        if waiting and sum(map(len, waiting)) + len(message) > BUNDLE_BYTES:
            yield _bundle(waiting)
            waiting = []
        waiting.append(message)
    if waiting:
        yield _bundle(waiting)


def _bundle(messages: list[bytes]) -> bytes:
    return messages[0] if len(messages) == 1 else _encode(Bundle(messages=tuple(messages)))


def decode_bundle(data: bytes) -> Iterator[AgentMessage]:
    """What an agent sent, message by message. Raises `WireError` at the first that is none."""
    message = _decode(_bundled, data)
    if not isinstance(message, Bundle):
        yield message
        return
    yield from map(decode_agent, message.messages)


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

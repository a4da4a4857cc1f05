"""Agent ↔ controller ↔ command line: msgpack-encoded tagged records over gRPC streams.

One gRPC service, ``syntony.Fleet``, with two methods and no generated code (see docs/decisions):

* ``Attach`` (stream ↔ stream): `AgentMessage` up, `ControllerMessage` down.
* ``Query`` (request → stream): a `syntony.wire.query.Query` up, its answer down, in pages.

Peers of two successive versions understand each other: unknown fields are ignored, unknown kinds of
messages are skipped, and new fields have defaults (docs/decisions/0186).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, get_args

import msgspec

from syntony.errors import WireError
from syntony.wire.audit import (
    AuditOrder,
    AuditReport,
)
from syntony.wire.clocks import (
    Edges,
    Timelines,
)
from syntony.wire.coding import MAX_MESSAGE_BYTES, decode, encode
from syntony.wire.enrol import (
    AuthorityQuery,
    JoinRequest,
    Revocations,
)
from syntony.wire.failover import (
    PathsReport,
    Switch,
)
from syntony.wire.fragments import MAX_ASSEMBLED_BYTES, Fragment
from syntony.wire.parts import PartsReport, PartStatus
from syntony.wire.probes import (
    KeysHeld,
    Plan,
    ProbeKeys,
)
from syntony.wire.query import Query
from syntony.wire.queue_pairs import QueuePairsReport
from syntony.wire.segments import SegmentsReport
from syntony.wire.traffic import (
    FlowsReport,
    Moves,
    Paces,
)

PROTOCOL = 3
"""What this version speaks. It goes up where a peer must be answered differently, not for what it
can ignore."""
OLDEST = 3
"""What this version still understands: one below `PROTOCOL` at least, once there is a protocol 4.
Agents before protocol 3 know one probe key for the whole fleet."""
ATTACH = "/syntony.Fleet/Attach"
QUERY = "/syntony.Fleet/Query"
BUNDLE_BYTES = 256 << 10
"""Of messages that are sent as one; what is larger goes by itself."""
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
    rdma: str = ""
    """``roce`` or ``infiniband``: it can be probed over verbs; empty: it cannot."""
    verbs_clock: str = ""
    """The clock its stamps over verbs are in, ``h3/rail0:verbs``; empty: the host's."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """First message of every stream."""

    protocol: int
    """The newest that the agent speaks; with a controller of an older one, that one's."""
    oldest: int = 0
    """The oldest that the agent speaks; 0: no other than `protocol`."""
    version: str
    host: str
    nics: tuple[NicInfo, ...]
    stream: str
    """What the batches of this connection belong to; their numbers count within it."""
    backlog: bool = False
    """Whether an earlier process of the agent began the stream: then the store may have any batch
    of it, however many there are."""
    epoch: int = 0
    """The highest epoch of a controller that it has obeyed, 0 for none."""
    reads_device_stamps: bool = False
    """Whether it can read probes over verbs that a peer's RDMA device has stamped by its own
    clock."""
    reads_stored: bool = False
    """Whether it reads `Decision.stored`; else each acknowledgement is a message."""
    life: str = ""
    """Drawn by the agent's process at its start; empty: it does not number its connections."""
    attempt: int = 0
    """Number of the connection within that life: of two, the higher one was dialled later."""


class Batch(msgspec.Struct, frozen=True, kw_only=True, tag="batch"):
    """Rows of one table; acknowledged when they are safe in the store."""

    seq: int
    table: str
    rows: int
    dropped: int
    """Rows this agent ever shed, all tables together."""
    arrow: bytes
    """One Arrow IPC stream."""


AgentMessage = (
    Hello
    | Batch
    | Edges
    | PathsReport
    | FlowsReport
    | QueuePairsReport
    | SegmentsReport
    | AuditReport
    | PartsReport
    | KeysHeld
)


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


class Decision(msgspec.Struct, frozen=True, kw_only=True, tag="decision"):
    """One of `DECISIONS`, with who made it. Moves, paces and audit orders expire by themselves; of
    plans, timelines and the switch the newest counts. A plan holds until the next one: hosts whose
    controller is away go on probing."""

    issuer: str
    """The controller's name in its certificate."""
    epoch: int
    """Of the controller: raised at each start."""
    message: bytes
    """As it would be sent by itself."""
    stored: int = 0
    """Every batch of this stream up to this one is in the store, as `Ack` says; 0: does not say."""


DECISIONS = (Plan, Timelines, Switch, AuditOrder, Moves, Paces, ProbeKeys)
ControllerMessage = (
    Plan
    | ProbeKeys
    | Ack
    | Timelines
    | Refuse
    | Switch
    | AuditOrder
    | Moves
    | Paces
    | Decision
    | Revocations
    | Fragment
)

# --- questions from the command line ---------------------------------------------------------


class FleetQuery(Query["Fleet"], frozen=True, kw_only=True, tag="fleet"):
    """Agents, their NICs, connection and counters."""


Joining = JoinRequest | AuthorityQuery
"""What the enrolment port takes, without a client certificate."""


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
    parts: tuple[PartStatus, ...] = ()
    """As its agent last said."""


class Fleet(msgspec.Struct, frozen=True, kw_only=True, tag="fleet"):
    agents: tuple[AgentStatus, ...]
    rows_stored: int
    probes_per_s: float


class Unknown(msgspec.Struct, frozen=True):
    """A message of a kind that this version does not know: a newer peer sends it, and does without
    an effect."""

    kind: str


class _Tagged(msgspec.Struct):
    type: str


def kinds_of(*unions: Any) -> frozenset[str]:
    """How the messages of these unions are tagged."""
    return frozenset(kind.__struct_config__.tag for union in unions for kind in get_args(union))


_KINDS = kinds_of(AgentMessage | Bundle, ControllerMessage, Joining)
_T = TypeVar("_T")
_bundled: msgspec.msgpack.Decoder[AgentMessage | Bundle] = msgspec.msgpack.Decoder(
    AgentMessage | Bundle
)
_tagged = msgspec.msgpack.Decoder(_Tagged)
_agent: msgspec.msgpack.Decoder[AgentMessage] = msgspec.msgpack.Decoder(AgentMessage)
_controller: msgspec.msgpack.Decoder[ControllerMessage] = msgspec.msgpack.Decoder(ControllerMessage)
_joining: msgspec.msgpack.Decoder[Joining] = msgspec.msgpack.Decoder(Joining)


def decode_agent(data: bytes) -> AgentMessage:
    """What an agent sent. Raises `WireError` on anything that is not such a message."""
    return decode(_agent, data)


def bundles(messages: Iterable[bytes]) -> Iterator[bytes]:
    """What to send instead of these, encoded ones of an agent: as little as may be."""
    waiting, size = list[bytes](), 0
    for message in messages:
        if waiting and size + len(message) > BUNDLE_BYTES:
            yield _bundle(waiting)
            waiting, size = [], 0
        waiting.append(message)
        size += len(message)
    if waiting:
        yield _bundle(waiting)


def _bundle(messages: list[bytes]) -> bytes:
    return messages[0] if len(messages) == 1 else encode(Bundle(messages=tuple(messages)))


def decode_bundle(data: bytes) -> Iterator[AgentMessage | Unknown]:
    """What an agent sent, message by message. Raises `WireError` at the first that is none."""
    return unbundled(_bundled, _agent, data)


def decode_controller(data: bytes) -> ControllerMessage | Unknown:
    """What a controller sent, perhaps in fragments. Raises `WireError`."""
    return _decode_any(_controller, data, limit=MAX_ASSEMBLED_BYTES)


def decode_joining(data: bytes) -> Joining:
    """A request to the enrolment port. Raises `WireError`."""
    return decode(_joining, data)


def kind_of(data: bytes) -> str:
    """How an encoded message is tagged; empty: it is none."""
    try:
        return _tagged.decode(data).type
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""


def unbundled(
    outer: msgspec.msgpack.Decoder[_T | Bundle],
    inner: msgspec.msgpack.Decoder[_T],
    data: bytes,
    known: frozenset[str] = _KINDS,
) -> Iterator[_T | Unknown]:
    """A peer's messages, perhaps in a bundle. Raises `WireError` at the first that is none.

    Args:
        outer: of the kinds that may come, and of bundles …
        inner: … and without these.
        data: what was sent.
        known: how all kinds that this version knows are tagged.
    """
    message = _decode_any(outer, data, known)
    if not isinstance(message, Bundle):
        yield message
        return
    for part in message.messages:
        found = _decode_any(inner, part, known)
        yield found


def _decode_any(
    decoder: msgspec.msgpack.Decoder[_T],
    data: bytes,
    known: frozenset[str] = _KINDS,
    limit: int = MAX_MESSAGE_BYTES,
) -> _T | Unknown:
    try:
        return decode(decoder, data, limit)
    except WireError:
        kind = "" if len(data) > limit else kind_of(data)
        if not kind or kind in known:
            raise
        return Unknown(kind=kind)

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
from syntony.model import S
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
    LossReport,
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
"""Version of the protocol. It is raised when peers must be treated differently, not for additions
that they can ignore."""
OLDEST = 3
"""Oldest version that is still supported: at least one below `PROTOCOL`, from protocol 4 on. Agents
before protocol 3 know one probe key for the whole fleet."""
ATTACH = "/syntony.Fleet/Attach"
QUERY = "/syntony.Fleet/Query"
BUNDLE_BYTES = 256 << 10
"""Most bytes of a bundle; larger messages are sent separately."""
MAX_UNACKED = 64
"""Most unacknowledged batches of an agent, if its controller does not allow more. A controller that
is new to a stream looks up this many in the store, so that batches that its predecessor stored
without acknowledging are not stored twice."""
MAX_WINDOW = 1024
"""Most that a controller allows (`Ack.window`), while an agent delivers a backlog: with 0.5 s for
each cycle 2,000 batches a second."""
UNCHECKED_NS = 2 * S
"""For this long after a batch arrived a controller may store it without looking it up. The agent
gives it to no other controller before this is over."""


# --- agent to controller ---------------------------------------------------------------------


class NicInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One NIC, as reported by its agent."""

    name: str
    rail: int
    addresses: tuple[str, ...]
    """The address to probe is the first."""
    clock: str
    """The clock of its stamps: ``h3`` (the host's) or ``h3/rail0`` (the NIC's)."""
    stamping: str
    """``kernel``, ``hardware`` or ``synthetic``; with the reason when degraded."""
    port: int
    """UDP port its reflector listens on."""
    rdma: str = ""
    """``roce`` or ``infiniband``: it can be probed over verbs; empty: it cannot."""
    verbs_clock: str = ""
    """The clock of its stamps over verbs, ``h3/rail0:verbs``; empty: the host's."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """First message of every stream."""

    protocol: int
    """The newest version that the agent supports, or the controller's, if that is older."""
    oldest: int = 0
    """The oldest version that the agent supports; 0: only `protocol`."""
    version: str
    host: str
    nics: tuple[NicInfo, ...]
    stream: str
    """The stream of this connection's batches; batch numbers count within it."""
    backlog: bool = False
    """Whether an earlier process of the agent began the stream: then the store may already have
    any number of its batches."""
    epoch: int = 0
    """The highest epoch of a controller that it has obeyed, 0 for none."""
    reads_device_stamps: bool = False
    """Whether it can read probes over verbs with stamps of a peer's RDMA device."""
    reads_stored: bool = False
    """Whether it reads `Decision.stored`; else acknowledgements are separate messages."""
    life: str = ""
    """Random identifier of the agent's process; empty: it does not number its connections."""
    attempt: int = 0
    """Number of the connection of this process: a higher one was made later."""


class Batch(msgspec.Struct, frozen=True, kw_only=True, tag="batch"):
    """Rows of one table, acknowledged when they are stored."""

    seq: int
    table: str
    rows: int
    dropped: int
    """Rows that this agent has dropped, all tables together."""
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
    | LossReport
)


class Bundle(msgspec.Struct, frozen=True, kw_only=True, tag="bundle"):
    """Messages of one agent, in order, sent as one: sending costs more than the content of most
    messages."""

    messages: tuple[bytes, ...]
    """Encoded messages; no bundles."""


# --- controller to agent ---------------------------------------------------------------------


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag="ack"):
    """Every batch of this stream up to `seq` is in the store."""

    seq: int
    window: int = 0
    """So many batches may be unacknowledged on this connection from now on; 0: `MAX_UNACKED`."""


class Refuse(msgspec.Struct, frozen=True, kw_only=True, tag="refuse"):
    """The controller does not serve this agent; the reason is for operators."""

    reason: str


class Decision(msgspec.Struct, frozen=True, kw_only=True, tag="decision"):
    """One of `DECISIONS`, with its issuer. Moves, paces and audit orders expire; of plans,
    timelines and the switch the newest applies. A plan holds until the next one, so that hosts
    without a controller keep probing."""

    issuer: str
    """The controller's name in its certificate."""
    epoch: int
    """Epoch of the controller, which rises with each start."""
    message: bytes
    """The encoded message."""
    stored: int = 0
    """Every batch of this stream up to this one is stored, as in `Ack`; 0: not given."""


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
"""Requests that the enrolment port accepts without a client certificate."""


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, as known to the controller."""

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
    """Reported NICs that are not used, with the reason."""
    parts: tuple[PartStatus, ...] = ()
    """From its agent's last report."""


class Fleet(msgspec.Struct, frozen=True, kw_only=True, tag="fleet"):
    agents: tuple[AgentStatus, ...]
    rows_stored: int
    probes_per_s: float


class Unknown(msgspec.Struct, frozen=True):
    """A message of an unknown kind, from a newer peer; it is ignored."""

    kind: str


class _Tagged(msgspec.Struct):
    type: str


def kinds_of(*unions: Any) -> frozenset[str]:
    """The tags of the messages in these unions."""
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
    """Decode a message of an agent. Raises `WireError` for an invalid one."""
    return decode(_agent, data)


def bundles(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Combine encoded messages of an agent into as few as possible, each of `BUNDLE_BYTES` at most;
    a longer message goes alone."""
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
    """Decode a message or bundle of an agent, one by one. Raises `WireError` at an invalid one."""
    return unbundled(_bundled, _agent, data)


def decode_controller(data: bytes) -> ControllerMessage | Unknown:
    """Decode a message of a controller, possibly from fragments. Raises `WireError`."""
    return _decode_any(_controller, data, limit=MAX_ASSEMBLED_BYTES)


def decode_joining(data: bytes) -> Joining:
    """Decode a request to the enrolment port. Raises `WireError`."""
    return decode(_joining, data)


def kind_of(data: bytes) -> str:
    """The tag of an encoded message; empty: invalid."""
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
    """Decode a peer's message or bundle. Raises `WireError` at the first invalid message.

    Args:
        outer: decoder of the allowed kinds and of bundles.
        inner: decoder of the allowed kinds.
        known: tags of all kinds of this version.
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

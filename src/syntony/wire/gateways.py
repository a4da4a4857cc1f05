"""Gateway ↔ leader: the streams of many agents on one, and what of their rows has been stored.

A gateway relays what its agents say, except rows: these it stores itself, and tells the leader of
them as columns. What comes down is what each agent would be sent; acknowledgements are the
gateway's.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from syntony.wire.coding import decode
from syntony.wire.enrol import Revocations
from syntony.wire.messages import Bundle, Refuse, Unknown, kinds_of, unbundled
from syntony.wire.query import Failure

RELAY = "/syntony.Fleet/Relay"
RELAY_QUERY = "/syntony.Fleet/RelayQuery"
RELAY_PROTOCOL = 1
"""Goes up where a peer must be answered differently, as `messages.PROTOCOL` does."""


# --- gateway to leader -----------------------------------------------------------------------


class GatewayHello(msgspec.Struct, frozen=True, kw_only=True, tag="gateway-hello"):
    """First message of a gateway's stream."""

    protocol: int
    version: str
    epoch: int
    """The highest epoch of a leader that it has followed, 0 for none."""


class AgentOpened(msgspec.Struct, frozen=True, kw_only=True, tag="agent-opened"):
    """An agent has attached to the gateway."""

    agent: int
    """Names this stream of it from now on; never used again."""
    certificate: bytes
    """That it has shown, PEM; the gateway has checked that it holds the key."""
    peer: str
    """Its address as gRPC words it."""


class FromAgent(msgspec.Struct, frozen=True, kw_only=True, tag="from-agent"):
    """What it sent; the first is its hello."""

    agent: int
    data: bytes


class AgentClosed(msgspec.Struct, frozen=True, kw_only=True, tag="agent-closed"):
    """Its stream has ended."""

    agent: int


class StoredBatch(msgspec.Struct, frozen=True, array_like=True):
    """One batch of an agent that is in the store, or was refused."""

    host: str
    stream: str
    seq: int
    table: str
    rows: int
    dropped: int
    """See `messages.Batch`."""
    first_ns: int
    last_ns: int
    """Fleet time of its oldest and newest row; 0 if it was refused."""
    probes_per_s: float | None = None


class ProbedColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of probing of the batches of one table, one after the other."""

    fresh: tuple[int, ...]
    """Places of those batches whose rows are of other flows, or in another order, than those of the
    batch of this host and table that was told of last on this stream."""
    names: bytes
    """What the rows of those are of, an Arrow IPC stream …"""
    values: bytes
    """… and what all rows measured, as narrow as the numbers are; both compressed."""
    names_size: int
    values_size: int
    """Before they were compressed; 0 names: none is fresh."""


class RowsStored(msgspec.Struct, frozen=True, kw_only=True, tag="rows-stored"):
    """What of agents' rows has been stored."""

    batches: tuple[StoredBatch, ...]
    columns: dict[str, bytes]
    """Table to what the leader judges of its rows, an Arrow IPC stream: those of the batches above
    that are of this table, one after the other."""
    sizes: dict[str, int] = {}
    """Table to the length of its stream, of those that are compressed by zstd."""
    probed: dict[str, ProbedColumns] = {}
    """Rows of probing, which are most. To a leader that does not read this: in `columns`."""


class GatewayReport(msgspec.Struct, frozen=True, kw_only=True, tag="gateway-report"):
    """How it is, once a second."""

    queued_bytes: int
    """Batches that wait for the store."""
    waited_ns: int
    """For how long the oldest of them has."""
    store_up: bool
    rows: int
    """Stored since it started."""


class GatewayLeaving(msgspec.Struct, frozen=True, kw_only=True, tag="gateway-leaving"):
    """It is being stopped on purpose: its stream ends now, and nobody is to miss it."""


FromGateway = (
    GatewayHello
    | AgentOpened
    | FromAgent
    | AgentClosed
    | RowsStored
    | GatewayReport
    | GatewayLeaving
)

# --- leader to gateway -----------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """First message of the answer."""

    leader: str
    epoch: int
    probed: bool = False
    """Whether it reads `RowsStored.probed`; a leader of an older version does not."""


class ToAgent(msgspec.Struct, frozen=True, kw_only=True, tag="to-agent"):
    """What an agent is to be sent."""

    agent: int
    data: bytes


class AgentEnded(msgspec.Struct, frozen=True, kw_only=True, tag="agent-ended"):
    """The leader has ended its stream."""

    agent: int


class FleetNow(msgspec.Struct, frozen=True, kw_only=True, tag="fleet-now"):
    """Fleet time, once a second, where it is known."""

    fleet_ns: int


class ApiAccess(msgspec.Struct, frozen=True, array_like=True):
    """A token or session of the HTTP API that is good; see `state.access_tokens.Access`."""

    digest: str
    """SHA-256 of its secret, from which nothing follows: secrets have 256 random bits."""
    number: int
    kind: str
    parent: int
    role: str
    name: str
    expires_ns: int
    """Civil time."""


class AccessNews(msgspec.Struct, frozen=True, kw_only=True, tag="access-news"):
    """Tokens and sessions that came or changed, and digests of those that are not good any more."""

    known: tuple[ApiAccess, ...] = ()
    gone: tuple[str, ...] = ()
    first: bool = False
    """Of this stream: what was known before is forgotten."""


ToGateway = Welcome | ToAgent | AgentEnded | FleetNow | Revocations | AccessNews | Refuse

# --- requests --------------------------------------------------------------------------------


class RelayedRequest(msgspec.Struct, frozen=True, kw_only=True, tag="relayed-request"):
    """A request that came to a gateway, with who makes it; answered as if it had come here."""

    query: bytes
    certificate: bytes
    """PEM."""
    peer: str


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True, tag="api-request"):
    """An HTTP request that came to a gateway, with the credentials that it came with: the leader
    checks them itself. The answer is an `ApiHead` and the body, in pages."""

    method: str
    scheme: str
    host: str
    port: int
    """Where the gateway serves it: the session's cookie is named after that."""
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    client: str
    """Address of the client, as the gateway says."""
    client_port: int


class ApiHead(msgspec.Struct, frozen=True, kw_only=True, tag="api-head"):
    """Of the answer to an `ApiRequest`."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]


class EventsAfter(msgspec.Struct, frozen=True, kw_only=True, tag="events-after"):
    """Live events after one that is known, as soon as there are any; none after some seconds."""

    last_id: str


class LiveEvent(msgspec.Struct, frozen=True, kw_only=True, tag="live-event"):
    """One of them."""

    epoch: str
    number: int
    topic: str
    data: bytes
    """As browsers are sent it."""


_UP = msgspec.msgpack.Decoder(FromGateway | Bundle), msgspec.msgpack.Decoder(FromGateway)
_DOWN = msgspec.msgpack.Decoder(ToGateway | Bundle), msgspec.msgpack.Decoder(ToGateway)
Relayed = RelayedRequest | ApiRequest | EventsAfter
_request: msgspec.msgpack.Decoder[Relayed] = msgspec.msgpack.Decoder(Relayed)
_head: msgspec.msgpack.Decoder[ApiHead | Failure] = msgspec.msgpack.Decoder(ApiHead | Failure)
_event: msgspec.msgpack.Decoder[LiveEvent | Failure] = msgspec.msgpack.Decoder(LiveEvent | Failure)
_KINDS = kinds_of(FromGateway | Bundle, ToGateway)


def from_gateway(data: bytes) -> Iterator[FromGateway | Unknown]:
    """What a gateway sent, message by message. Raises `WireError`."""
    return unbundled(*_UP, data, _KINDS)


def to_gateway(data: bytes) -> Iterator[ToGateway | Unknown]:
    """What a leader sent, message by message. Raises `WireError`."""
    return unbundled(*_DOWN, data, _KINDS)


def decode_relayed(data: bytes) -> Relayed:
    """What a gateway asks. Raises `WireError`."""
    return decode(_request, data)


def decode_head(data: bytes) -> ApiHead | Failure:
    """First page of the answer to an `ApiRequest`. Raises `WireError`."""
    return decode(_head, data)


def decode_event(data: bytes) -> LiveEvent | Failure:
    """A page of the answer to `EventsAfter`. Raises `WireError`."""
    return decode(_event, data)

"""Gateway ↔ leader: many agents' streams multiplexed on one, and reports on stored rows.

A gateway relays its agents' messages except rows, which it stores; the leader gets a summary of
them as columns. The leader's messages are relayed to each agent; the gateway acknowledges batches.
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
"""Version of this protocol, raised under the same conditions as `messages.PROTOCOL`."""


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
    """Identifies this stream of the agent; never reused."""
    certificate: bytes
    """Its certificate, PEM; the gateway has verified that it has the key."""
    peer: str
    """Its address in gRPC's notation."""


class FromAgent(msgspec.Struct, frozen=True, kw_only=True, tag="from-agent"):
    """A message of the agent; the first is its `Hello`."""

    agent: int
    data: bytes


class AgentClosed(msgspec.Struct, frozen=True, kw_only=True, tag="agent-closed"):
    """The agent's stream has ended."""

    agent: int


class StoredBatch(msgspec.Struct, frozen=True, array_like=True):
    """One batch of an agent that was stored or refused."""

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
    """Probe rows of the batches of one table, concatenated."""

    fresh: tuple[int, ...]
    """Indices of batches whose rows have other flows, or another order, than the host's previous
    batch of this table on this stream."""
    names: bytes
    """Names of the flows of these batches, an Arrow IPC stream …"""
    values: bytes
    """… and the measurements of all rows, in the narrowest types; both compressed."""
    names_size: int
    values_size: int
    """Size before compression; 0 names: no batch is fresh."""


class RowsStored(msgspec.Struct, frozen=True, kw_only=True, tag="rows-stored"):
    """Report on stored rows of agents."""

    batches: tuple[StoredBatch, ...]
    columns: dict[str, bytes]
    """For each table the columns that the leader evaluates, an Arrow IPC stream: rows of the
    batches above, concatenated."""
    sizes: dict[str, int] = {}
    """For each table whose stream is compressed by zstd, its original length."""
    probed: dict[str, ProbedColumns] = {}
    """Probe rows, the majority; for a leader that does not read this field, in `columns`."""


class GatewayReport(msgspec.Struct, frozen=True, kw_only=True, tag="gateway-report"):
    """State of the gateway, once a second."""

    queued_bytes: int
    """Size of the batches that wait for the store."""
    waited_ns: int
    """How long the oldest of them has waited."""
    store_up: bool
    rows: int
    """Stored since it started."""


class GatewayLeaving(msgspec.Struct, frozen=True, kw_only=True, tag="gateway-leaving"):
    """The gateway is stopped on purpose: the end of its stream is no incident."""


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
    """A message to relay to an agent."""

    agent: int
    data: bytes


class AgentEnded(msgspec.Struct, frozen=True, kw_only=True, tag="agent-ended"):
    """The leader has ended its stream."""

    agent: int


class FleetNow(msgspec.Struct, frozen=True, kw_only=True, tag="fleet-now"):
    """Fleet time, once a second, if it is known."""

    fleet_ns: int


class ApiAccess(msgspec.Struct, frozen=True, array_like=True):
    """A valid token or session of the HTTP API; see `state.access_tokens.Access`."""

    digest: str
    """SHA-256 of its secret, which cannot be inverted: secrets have 256 random bits."""
    number: int
    kind: str
    parent: int
    role: str
    name: str
    expires_ns: int
    """Civil time."""


class AccessNews(msgspec.Struct, frozen=True, kw_only=True, tag="access-news"):
    """New and changed tokens and sessions, and digests of those that are no longer valid."""

    known: tuple[ApiAccess, ...] = ()
    gone: tuple[str, ...] = ()
    first: bool = False
    """First message of this stream: it replaces earlier knowledge."""


ToGateway = Welcome | ToAgent | AgentEnded | FleetNow | Revocations | AccessNews | Refuse

# --- requests --------------------------------------------------------------------------------


class RelayedRequest(msgspec.Struct, frozen=True, kw_only=True, tag="relayed-request"):
    """A request to a gateway, with its sender; answered as if it had been sent to the leader."""

    query: bytes
    certificate: bytes
    """PEM."""
    peer: str


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True, tag="api-request"):
    """An HTTP request to a gateway, with credentials that the leader verifies. The answer is an
    `ApiHead` and the body, in pages."""

    method: str
    scheme: str
    host: str
    port: int
    """Port of the gateway's API, which is part of the name of the session's cookie."""
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    client: str
    """Address of the client, as reported by the gateway."""
    client_port: int


class ApiHead(msgspec.Struct, frozen=True, kw_only=True, tag="api-head"):
    """Status and headers of the answer to an `ApiRequest`."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]


class EventsAfter(msgspec.Struct, frozen=True, kw_only=True, tag="events-after"):
    """Live events after a known one, as soon as there are any; none after some seconds."""

    last_id: str


class ProbeLinksRequest(msgspec.Struct, frozen=True, kw_only=True, tag="probe-links"):
    """A gateway asks for the links that probes cross, to record a job."""

    probes: tuple[tuple[str, str, str, int], ...]
    """Source and destination of the direction, prober, and source port of the request."""


class ProbeLinks(msgspec.Struct, frozen=True, kw_only=True, tag="probe-links-known"):
    """The answer to a `ProbeLinksRequest`."""

    links: tuple[str, ...]
    """For each probe its directed links, separated by blanks; empty: not known."""


class LiveEvent(msgspec.Struct, frozen=True, kw_only=True, tag="live-event"):
    """One live event."""

    epoch: str
    number: int
    topic: str
    data: bytes
    """In the form that browsers get."""


_UP = msgspec.msgpack.Decoder(FromGateway | Bundle), msgspec.msgpack.Decoder(FromGateway)
_DOWN = msgspec.msgpack.Decoder(ToGateway | Bundle), msgspec.msgpack.Decoder(ToGateway)
Relayed = RelayedRequest | ApiRequest | EventsAfter | ProbeLinksRequest
_request: msgspec.msgpack.Decoder[Relayed] = msgspec.msgpack.Decoder(Relayed)
_head: msgspec.msgpack.Decoder[ApiHead | Failure] = msgspec.msgpack.Decoder(ApiHead | Failure)
_event: msgspec.msgpack.Decoder[LiveEvent | Failure] = msgspec.msgpack.Decoder(LiveEvent | Failure)
_links: msgspec.msgpack.Decoder[ProbeLinks | Failure] = msgspec.msgpack.Decoder(
    ProbeLinks | Failure
)
_KINDS = kinds_of(FromGateway | Bundle, ToGateway)


def from_gateway(data: bytes) -> Iterator[FromGateway | Unknown]:
    """Decode messages of a gateway, one by one. Raises `WireError`."""
    return unbundled(*_UP, data, _KINDS)


def to_gateway(data: bytes) -> Iterator[ToGateway | Unknown]:
    """Decode messages of a leader, one by one. Raises `WireError`."""
    return unbundled(*_DOWN, data, _KINDS)


def decode_relayed(data: bytes) -> Relayed:
    """Decode a gateway's request. Raises `WireError`."""
    return decode(_request, data)


def decode_head(data: bytes) -> ApiHead | Failure:
    """Decode the first page of the answer to an `ApiRequest`. Raises `WireError`."""
    return decode(_head, data)


def decode_event(data: bytes) -> LiveEvent | Failure:
    """Decode a page of the answer to `EventsAfter`. Raises `WireError`."""
    return decode(_event, data)


def decode_links(data: bytes) -> ProbeLinks | Failure:
    """Decode the answer to a `ProbeLinksRequest`. Raises `WireError`."""
    return decode(_links, data)

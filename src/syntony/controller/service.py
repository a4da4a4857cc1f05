"""The gRPC service: admits agents and decodes their streams. The controller decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

from syntony.controller.access import Caller, caller, presented
from syntony.controller.dispatch import decode_query
from syntony.controller.hello_check import IpNetwork, RefusedError, check_hello, plausible_parts
from syntony.controller.listen import first_message
from syntony.controller.sessions import AgentSession, Opening
from syntony.errors import DeniedError, SyntonyError, UsageError, WireError
from syntony.io.transport import grpc
from syntony.wire.audit import AuditReport
from syntony.wire.clocks import Edges
from syntony.wire.coding import encode
from syntony.wire.failover import PathsReport
from syntony.wire.fragments import Fragmenter
from syntony.wire.gateways import (
    RELAY,
    RELAY_QUERY,
    ApiRequest,
    EventsAfter,
    ProbeLinks,
    ProbeLinksRequest,
    RelayedRequest,
    decode_relayed,
)
from syntony.wire.messages import (
    ATTACH,
    QUERY,
    AgentMessage,
    Batch,
    ControllerMessage,
    Hello,
    Refuse,
    Unknown,
    decode_agent,
    decode_bundle,
)
from syntony.wire.parts import PartsReport
from syntony.wire.probes import KeysHeld, LossReport
from syntony.wire.query import Failure, Query
from syntony.wire.queue_pairs import QueuePairsReport
from syntony.wire.roles import Identity, Role
from syntony.wire.segments import SegmentsReport
from syntony.wire.traffic import FlowsReport
from syntony.wire.x509 import Certificate

_log = logging.getLogger(__name__)


Write = Callable[[bytes], Awaitable[None]]
Serve = Callable[[AsyncIterator[bytes], Callable[[], Caller], str, Write], Awaitable[None]]
"""`FleetService.serve`."""
OfFlows = FlowsReport | QueuePairsReport | SegmentsReport | LossReport
"""Agents' reports of flows: of jobs, and of probes that are lost."""
Report = Edges | PathsReport | AuditReport | PartsReport | KeysHeld | OfFlows
"""What agents send besides rows."""
HELLO_S = 20.0
"""A stream whose agent has not sent its hello within this time ends: each uses memory."""
MAX_REFUSED = 4096
"""Refused addresses remembered, so that each is logged once."""


class GatewayLinks(Protocol):
    """Streams of gateways, which carry those of many agents."""

    async def serve(
        self, who: Caller, requests: AsyncIterator[bytes], serve: Serve, write: Write
    ) -> None: ...


class RelayedApi(Protocol):
    """The HTTP API, for gateways that serve it too. The answers are pages."""

    async def relayed(self, request: ApiRequest, via: str) -> list[bytes]: ...

    async def events_after(self, last_id: str) -> list[bytes]: ...


class Hub(Protocol):
    """Receives messages from the service. All methods are called on the event loop."""

    def admit(self, who: Caller) -> None: ...

    def refused(self) -> None: ...

    def check(self, hello: Hello) -> None: ...

    def seal(self, message: ControllerMessage, stored: int) -> bytes: ...

    def attached(self, session: AgentSession, hello: Hello, faults: Sequence[str]) -> None: ...

    async def batch(self, session: AgentSession, batch: Batch) -> None: ...

    async def report(self, session: AgentSession, report: Report) -> None: ...

    def detached(self, session: AgentSession) -> None: ...

    def gateways(self) -> GatewayLinks: ...

    def api(self) -> RelayedApi: ...

    async def probe_links(self, request: ProbeLinksRequest) -> ProbeLinks: ...

    async def answer(self, query: Query[Any], who: Caller) -> list[bytes]: ...


class FleetService:
    """Both methods over TLS; on the local socket only questions are accepted.

    Args:
        hub: receives messages and questions.
        prefixes: address ranges of the fleet's NICs; none: any.
    """

    def __init__(self, hub: Hub, prefixes: Sequence[IpNetwork] = ()) -> None:
        self._hub = hub
        self._prefixes = prefixes
        self._refused: dict[str, str] = {}

    def handlers(self) -> grpc.GenericRpcHandler:
        """The methods under their names, bytes in and bytes out."""
        methods = {
            ATTACH: grpc.stream_stream_rpc_method_handler(self._attach),
            QUERY: grpc.unary_stream_rpc_method_handler(self._query),
            RELAY: grpc.stream_stream_rpc_method_handler(self._relay),
            RELAY_QUERY: grpc.unary_stream_rpc_method_handler(self._relay_query),
        }
        service, _ = ATTACH.strip("/").split("/")
        return grpc.method_handlers_generic_handler(
            service, {path.rpartition("/")[2]: each for path, each in methods.items()}
        )

    async def _attach(self, requests: AsyncIterator[bytes], context: Any) -> None:
        await self.serve(requests, lambda: caller(context), str(context.peer()), context.write)

    async def serve(
        self,
        requests: AsyncIterator[bytes],
        identify: Callable[[], Caller],
        peer: str,
        write: Write,
    ) -> None:
        """Serve one stream of one agent until it ends.

        Args:
            requests: received messages.
            identify: returns the caller; raises `WireError`: its certificate is invalid.
            peer: its address, for the log.
            write: sends to it.
        """
        try:
            who = identify()
            first = await _first(requests)
            self._hub.admit(who)  # now: it may have been revoked since the stream was opened
            hello, faults = check_hello(
                None if first is None else decode_agent(first), who, self._prefixes
            )
            self._hub.check(hello)
            certificate = _certificate(who)
        except (RefusedError, UsageError, WireError) as error:
            self._hub.refused()
            self._log_refusal(peer, str(error))
            await write(encode(Refuse(reason=str(error))))
            return
        self._refused.pop(peer.rpartition(":")[0], None)
        for fault in faults:
            _log.warning("NIC refused host=%s %s", hello.host, fault)
        session = AgentSession(hello, certificate, Opening(who.pem, peer, first or b"", who.via))
        self._hub.attached(session, hello, faults)
        receiving = asyncio.create_task(self._receive(requests, session))
        serving = asyncio.current_task()
        session.tasks = (receiving,) if serving is None else (receiving, serving)
        try:
            fragmenter = Fragmenter()
            async for message, stored in session.outbox:
                for data in fragmenter.divide(self._hub.seal(message, stored)):
                    await write(data)
        finally:
            receiving.cancel()
            self._hub.detached(session)
            await asyncio.gather(receiving, return_exceptions=True)

    def _log_refusal(self, peer: str, reason: str) -> None:
        """Log once for each address and reason: a refused agent retries every few seconds."""
        address = peer.rpartition(":")[0]
        if self._refused.get(address) == reason:
            return
        if len(self._refused) >= MAX_REFUSED:
            self._refused.clear()
        self._refused[address] = reason
        _log.warning("agent refused peer=%s reason=%s", address, reason)

    async def _receive(self, requests: AsyncIterator[bytes], session: AgentSession) -> None:
        try:
            async for data in requests:
                for message in decode_bundle(data):
                    await self._take(session, message)
        except (RefusedError, WireError) as error:
            _log.warning("stream ended host=%s reason=%s", session.host, error)
            session.outbox.put(Refuse(reason=str(error)))
        finally:
            session.outbox.close()

    async def _take(self, session: AgentSession, message: AgentMessage | Unknown) -> None:
        if isinstance(message, Batch):
            await self._hub.batch(session, message)
        elif isinstance(message, PartsReport):
            await self._hub.report(session, PartsReport(parts=plausible_parts(message)))
        elif isinstance(message, Report):
            await self._hub.report(session, message)
        elif isinstance(message, Unknown):
            if not session.unknown:
                session.unknown = message.kind
                _log.warning(
                    "messages skipped host=%s kind=%.40r reason=of a newer version",
                    session.host, message.kind,
                )  # fmt: skip
        else:
            raise RefusedError("a second hello on one stream")

    async def _relay(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Serve a gateway's stream."""
        try:
            who = _gateway(caller(context))
            self._hub.admit(who)
            links = self._hub.gateways()
        except (RefusedError, UsageError, WireError) as error:
            self._log_refusal(str(context.peer()), str(error))
            await context.write(encode(Refuse(reason=str(error))))
            return
        await links.serve(who, requests, self.serve, context.write)

    async def _query(self, data: bytes, context: Any) -> AsyncIterator[bytes]:
        async for page in self._answer(data, lambda: caller(context)):
            yield page

    async def _relay_query(self, data: bytes, context: Any) -> AsyncIterator[bytes]:
        """A request that an agent or a browser has sent to a gateway, or of a gateway itself."""
        try:
            gateway = _gateway(caller(context))
            self._hub.admit(gateway)
            relayed = decode_relayed(data)
            via = gateway.identity.name
            if isinstance(relayed, ProbeLinksRequest):
                yield encode(await self._hub.probe_links(relayed))
                return
            if not isinstance(relayed, RelayedRequest):
                for page in await self._of_api(relayed, via):
                    yield page
                return
            who = presented(relayed.certificate, f"{relayed.peer} through {via}", via)
            check_relayed(who, gateway.identity)
        except SyntonyError as error:
            yield encode(Failure(reason=str(error)))
            return
        async for page in self._answer(relayed.query, lambda: who):
            yield page

    async def _of_api(self, request: ApiRequest | EventsAfter, via: str) -> list[bytes]:
        """Raises `SyntonyError`: there is no API here."""
        api = self._hub.api()
        if isinstance(request, ApiRequest):
            return await api.relayed(request, via)
        return await api.events_after(request.last_id)

    async def _answer(self, data: bytes, identify: Callable[[], Caller]) -> AsyncIterator[bytes]:
        try:
            query, who = decode_query(data), identify()
            self._hub.admit(who)
            for page in await self._hub.answer(query, who):
                yield page
        except SyntonyError as error:
            yield encode(Failure(reason=str(error)))


def check_relayed(who: Caller, gateway: Identity | None = None) -> None:
    """Check a request through a gateway: the gateway names the caller, so it must not act for
    operators.

    Raises:
        DeniedError: the caller is neither an agent nor the gateway itself.
    """
    if who.identity.role is not Role.AGENT and who.identity != gateway:
        raise DeniedError("gateways relay requests of agents only; ask the leader")


def _gateway(who: Caller) -> Caller:
    """The gateway's certificate. Raises `RefusedError`: it is not a gateway."""
    role, name = who.identity
    if role is not Role.GATEWAY:
        raise RefusedError(f"the certificate of {name!r} is of role {role}; only gateways relay")
    return who


def _certificate(who: Caller) -> Certificate:
    if who.certificate is None:  # `greet` has refused the local socket
        raise RefusedError("agents attach over TLS, with a certificate of their own")
    return who.certificate


async def _first(requests: AsyncIterator[bytes]) -> bytes | None:
    """A stream's first message; None if it ended before. Raises `RefusedError`: none arrived."""
    try:
        return await first_message(requests, HELLO_S)
    except TimeoutError:
        raise RefusedError(f"no hello within {HELLO_S:g} s") from None

"""The gRPC edge: who may attach, what a stream's bytes mean. Decisions are the controller's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from syntony.controller.access import Caller, caller
from syntony.controller.dispatch import decode_query
from syntony.controller.greeting import IpNetwork, RefusedError, believable, greet
from syntony.controller.sessions import Session
from syntony.errors import SyntonyError, UsageError, WireError
from syntony.io.transport import grpc
from syntony.wire.audit import AuditReport
from syntony.wire.clocks import Edges
from syntony.wire.coding import encode
from syntony.wire.failover import PathsReport
from syntony.wire.fragments import Fragmenter
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
from syntony.wire.parts import PartsReport, PartStatus
from syntony.wire.probes import KeysHeld
from syntony.wire.query import Failure, Query
from syntony.wire.queue_pairs import QueuePairsReport
from syntony.wire.segments import SegmentsReport
from syntony.wire.traffic import FlowsReport
from syntony.wire.x509 import Certificate

_log = logging.getLogger(__name__)


OfFlows = FlowsReport | QueuePairsReport | SegmentsReport
"""What agents report of jobs' flows."""
MAX_REFUSED = 4096
"""Refused addresses remembered, so that each is logged once."""


class Hub(Protocol):
    """What the edge hands on. All methods are called on the event loop."""

    def admit(self, who: Caller) -> None: ...

    def refused(self) -> None: ...

    def check(self, hello: Hello) -> None: ...

    def seal(self, message: ControllerMessage, stored: int) -> bytes: ...

    def attached(self, session: Session, hello: Hello, faults: Sequence[str]) -> None: ...

    async def batch(self, session: Session, batch: Batch) -> None: ...

    def edges(self, session: Session, edges: Edges) -> None: ...

    def paths(self, session: Session, report: PathsReport) -> None: ...

    def parts(self, session: Session, parts: tuple[PartStatus, ...]) -> None: ...

    def keys_held(self, session: Session, report: KeysHeld) -> None: ...

    async def audited(self, session: Session, report: AuditReport) -> None: ...

    def flows(self, session: Session, report: OfFlows) -> None: ...

    def detached(self, session: Session) -> None: ...

    async def answer(self, query: Query[Any], who: Caller) -> list[bytes]: ...


class FleetService:
    """Both methods over TLS; on the local socket only questions are taken.

    Args:
        hub: what streams and questions are handed on to.
        prefixes: where NICs of the fleet have their addresses; none: anywhere.
    """

    def __init__(self, hub: Hub, prefixes: Sequence[IpNetwork] = ()) -> None:
        self._hub = hub
        self._prefixes = prefixes
        self._refused: dict[str, str] = {}

    def handlers(self) -> grpc.GenericRpcHandler:
        """The methods under their names, bytes in and bytes out."""
        service, attach = ATTACH.strip("/").split("/")
        _, query = QUERY.strip("/").split("/")
        return grpc.method_handlers_generic_handler(
            service,
            {
                attach: grpc.stream_stream_rpc_method_handler(self._attach),
                query: grpc.unary_stream_rpc_method_handler(self._query),
            },
        )

    async def _attach(self, requests: AsyncIterator[bytes], context: Any) -> None:
        try:
            who = caller(context)
            self._hub.admit(who)
            hello, faults = greet(await _first(requests), who, self._prefixes)
            self._hub.check(hello)
            certificate = _certificate(who)
        except (RefusedError, UsageError, WireError) as error:
            self._hub.refused()
            self._log_refusal(str(context.peer()), str(error))
            await context.write(encode(Refuse(reason=str(error))))
            return
        self._refused.pop(str(context.peer()).rpartition(":")[0], None)
        for fault in faults:
            _log.warning("NIC refused host=%s %s", hello.host, fault)
        session = Session(hello, certificate)
        self._hub.attached(session, hello, faults)
        receiving = asyncio.create_task(self._receive(requests, session))
        serving = asyncio.current_task()
        session.tasks = (receiving,) if serving is None else (receiving, serving)
        try:
            fragmenter = Fragmenter()
            async for message, stored in session.outbox:
                for data in fragmenter.divide(self._hub.seal(message, stored)):
                    await context.write(data)
        finally:
            receiving.cancel()
            self._hub.detached(session)
            await asyncio.gather(receiving, return_exceptions=True)

    def _log_refusal(self, peer: str, reason: str) -> None:
        """Once for each address and reason: a refused agent comes again every few seconds."""
        address = peer.rpartition(":")[0]
        if self._refused.get(address) == reason:
            return
        if len(self._refused) >= MAX_REFUSED:
            self._refused.clear()
        self._refused[address] = reason
        _log.warning("agent refused peer=%s reason=%s", peer, reason)

    async def _receive(self, requests: AsyncIterator[bytes], session: Session) -> None:
        try:
            async for data in requests:
                for message in decode_bundle(data):
                    await self._take(session, message)
        except (RefusedError, WireError) as error:
            _log.warning("stream ended host=%s reason=%s", session.host, error)
            session.outbox.put(Refuse(reason=str(error)))
        finally:
            session.outbox.close()

    async def _take(self, session: Session, message: AgentMessage | Unknown) -> None:
        if isinstance(message, Batch):
            await self._hub.batch(session, message)
        elif isinstance(message, Edges):
            self._hub.edges(session, message)
        elif isinstance(message, PathsReport):
            self._hub.paths(session, message)
        elif isinstance(message, AuditReport):
            await self._hub.audited(session, message)
        elif isinstance(message, OfFlows):
            self._hub.flows(session, message)
        elif isinstance(message, PartsReport):
            self._hub.parts(session, believable(message))
        elif isinstance(message, KeysHeld):
            self._hub.keys_held(session, message)
        elif isinstance(message, Unknown):
            if not session.unknown:
                session.unknown = message.kind
                _log.warning(
                    "messages skipped host=%s kind=%.40r reason=of a newer version",
                    session.host, message.kind,
                )  # fmt: skip
        else:
            raise RefusedError("a second hello on one stream")

    async def _query(self, data: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            query, who = decode_query(data), caller(context)
            self._hub.admit(who)
            for page in await self._hub.answer(query, who):
                yield page
        except SyntonyError as error:
            yield encode(Failure(reason=str(error)))


def _certificate(who: Caller) -> Certificate:
    if who.certificate is None:  # `greet` has refused the local socket
        raise RefusedError("agents attach over TLS, with a certificate of their own")
    return who.certificate


async def _first(requests: AsyncIterator[bytes]) -> AgentMessage | None:
    """A stream's first message; None where it ended before."""
    async for data in requests:
        return decode_agent(data)
    return None

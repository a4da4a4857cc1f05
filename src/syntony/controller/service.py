"""The gRPC edge: who may attach, what a stream's bytes mean. Decisions are the controller's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import grpc

from syntony.controller.access import Caller, authorise, caller
from syntony.controller.greeting import RefusedError, greet
from syntony.controller.sessions import Session
from syntony.errors import SyntonyError, WireError
from syntony.wire.audit import AuditReport
from syntony.wire.clocks import Edges
from syntony.wire.failover import PathsReport
from syntony.wire.messages import (
    ATTACH,
    QUERY,
    AgentMessage,
    Answer,
    Batch,
    Failure,
    Hello,
    Query,
    Refuse,
    decode_agent,
    decode_bundle,
    decode_query,
    encode,
)
from syntony.wire.traffic import FlowsReport

_log = logging.getLogger(__name__)


class Hub(Protocol):
    """What the edge hands on. All methods are called on the event loop."""

    def attached(self, session: Session, hello: Hello, faults: Sequence[str]) -> None: ...

    async def batch(self, session: Session, batch: Batch) -> None: ...

    def edges(self, session: Session, edges: Edges) -> None: ...

    def paths(self, session: Session, report: PathsReport) -> None: ...

    def audited(self, session: Session, report: AuditReport) -> None: ...
    def flows(self, session: Session, report: FlowsReport) -> None: ...

    def detached(self, session: Session) -> None: ...

    async def answer(self, query: Query, who: Caller) -> Answer: ...


class FleetService:
    """Both methods over TLS; on the local socket only questions are taken."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def handlers(self) -> grpc.GenericRpcHandler:
        """The methods under their names, bytes in and bytes out."""
        service, attach = ATTACH.strip("/").split("/")
        _, query = QUERY.strip("/").split("/")
        return grpc.method_handlers_generic_handler(
            service,
            {
                attach: grpc.stream_stream_rpc_method_handler(self._attach),
                query: grpc.unary_unary_rpc_method_handler(self._query),
            },
        )

    async def _attach(self, requests: AsyncIterator[bytes], context: Any) -> None:
        try:
            who = caller(context)
            hello, faults = greet(await _first(requests), who)
        except (RefusedError, WireError) as error:
            _log.warning("agent refused peer=%s reason=%s", context.peer(), error)
            await context.write(encode(Refuse(reason=str(error))))
            return
        for fault in faults:
            _log.warning("NIC refused host=%s %s", hello.host, fault)
        session = Session(hello.host, hello.stream)
        self._hub.attached(session, hello, faults)
        receiving = asyncio.create_task(self._receive(requests, session))
        try:
            async for message in session.outbox:
                await context.write(encode(message))
        finally:
            receiving.cancel()
            self._hub.detached(session)
            await asyncio.gather(receiving, return_exceptions=True)

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

    async def _take(self, session: Session, message: AgentMessage) -> None:
        if isinstance(message, Batch):
            await self._hub.batch(session, message)
        elif isinstance(message, Edges):
            self._hub.edges(session, message)
        elif isinstance(message, PathsReport):
            self._hub.paths(session, message)
        elif isinstance(message, AuditReport):
            self._hub.audited(session, message)
        elif isinstance(message, FlowsReport):
            self._hub.flows(session, message)
        else:
            raise RefusedError("a second hello on one stream")

    async def _query(self, data: bytes, context: Any) -> bytes:
        try:
            query, who = decode_query(data), caller(context)
            authorise(query, who)
            return encode(await self._hub.answer(query, who))
        except SyntonyError as error:
            return encode(Failure(reason=str(error)))


async def _first(requests: AsyncIterator[bytes]) -> AgentMessage | None:
    """A stream's first message; None where it ended before."""
    async for data in requests:
        return decode_agent(data)
    return None

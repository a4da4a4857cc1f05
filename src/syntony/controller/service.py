"""The gRPC edge: who may attach, what a stream's bytes mean. Decisions are the controller's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Protocol

import grpc

from syntony.controller.access import LOCAL, Caller, authorise, caller
from syntony.controller.sessions import Session
from syntony.errors import SyntonyError, WireError
from syntony.model.names import is_name
from syntony.wire.audit import AuditReport
from syntony.wire.clocks import Edges
from syntony.wire.failover import PathsReport
from syntony.wire.messages import (
    ATTACH,
    PROTOCOL,
    QUERY,
    READABLE,
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
from syntony.wire.roles import Role
from syntony.wire.traffic import FlowsReport

_log = logging.getLogger(__name__)
MAX_NICS = 256
"""Of one host: above any machine built, below what would make a plan explode."""


class Hub(Protocol):
    """What the edge hands on. All methods are called on the event loop."""

    def attached(self, session: Session, hello: Hello) -> None: ...

    async def batch(self, session: Session, batch: Batch) -> None: ...

    def edges(self, session: Session, edges: Edges) -> None: ...

    def paths(self, session: Session, report: PathsReport) -> None: ...

    def audited(self, session: Session, report: AuditReport) -> None: ...
    def flows(self, session: Session, report: FlowsReport) -> None: ...

    def detached(self, session: Session) -> None: ...

    async def answer(self, query: Query, who: Caller) -> Answer: ...


class RefusedError(SyntonyError):
    """An agent that will not be served; the message is for its operator."""


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
            hello = await _greeting(requests, caller(context))
        except (RefusedError, WireError) as error:
            _log.warning("agent refused peer=%s reason=%s", context.peer(), error)
            await context.write(encode(Refuse(reason=str(error))))
            return
        session = Session(hello.host, hello.stream)
        self._hub.attached(session, hello)
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


async def _greeting(requests: AsyncIterator[bytes], who: Caller) -> Hello:
    """The first message, if it may be served."""
    role, name = who.identity
    if who.origin == LOCAL:
        raise RefusedError("agents attach over TLS, with a certificate of their own")
    if role is not Role.AGENT:
        raise RefusedError(f"the certificate of {name!r} is of role {role}; only agents attach")
    message: object = None
    async for data in requests:
        message = decode_agent(data)
        break
    if not isinstance(message, Hello):
        raise RefusedError("the first message of a stream must be a hello")
    if message.protocol not in READABLE:
        raise RefusedError(
            f"protocol {message.protocol} here is {PROTOCOL}; install the same version on both"
        )
    if message.host != name:
        raise RefusedError(
            f"host {message.host!r} attached with the certificate of {name!r}; "
            "each agent needs its own"
        )
    if not all(map(is_name, (message.host, message.stream, *(nic.name for nic in message.nics)))):
        raise RefusedError("a host, stream or NIC has a name that cannot be one")
    _check_nics(message)
    return message


def _check_nics(hello: Hello) -> None:
    names = {nic.name for nic in hello.nics}
    if len(hello.nics) > MAX_NICS or len(names) != len(hello.nics):
        raise RefusedError(f"{len(hello.nics)} NICs, {len(names)} different; {MAX_NICS} at most")
    for nic in hello.nics:
        if nic.clock != hello.host and not nic.clock.startswith(f"{hello.host}/"):
            raise RefusedError(f"NIC {nic.name} claims the clock of {nic.clock[:80]!r}")

"""The enrolment port: exchanges a join token for a first certificate. Clients have no certificate
yet.

Any host that reaches the port can connect, so sizes, times and numbers of connections are limited,
and no client can block others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from syntony.controller.enrolment import Enrolment
from syntony.controller.listen import (
    HANDSHAKE_MS,
    ServerCertificate,
    add_port,
    connection_limit,
    first_message,
)
from syntony.errors import BusyError, SyntonyError, UsageError
from syntony.io.descriptors import Share
from syntony.io.transport import grpc
from syntony.model import S
from syntony.wire.coding import encode
from syntony.wire.enrol import JOIN, MAX_JOIN_BYTES, AuthorityQuery, Issued
from syntony.wire.messages import Joining, decode_joining
from syntony.wire.query import Failure

_log = logging.getLogger(__name__)
AT_ONCE = 16
"""Maximum requests carried out at the same time."""
MAX_CALLS = 4_096
"""Maximum open calls: nearly all of them are still sending."""
MAX_CALLS_OF_ADDRESS = 16
MAX_LINES = 16
"""Maximum log lines per second about refused requests."""
SEND_S = HANDSHAKE_MS / 1e3
"""A call that has not sent its request within this time ends."""
_OPTIONS = (
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ("grpc.max_receive_message_length", MAX_JOIN_BYTES),
    ("grpc.max_connection_idle_ms", HANDSHAKE_MS),
    ("grpc.max_connection_age_ms", 4 * HANDSHAKE_MS),
    ("grpc.max_connection_age_grace_ms", HANDSHAKE_MS),
    ("grpc.max_concurrent_streams", MAX_CALLS_OF_ADDRESS),
    ("grpc.so_reuseport", 0),
)


class JoinServer:
    """Bound, not started.

    Args:
        listen: ``ADDRESS:PORT``.
        certificate: of the port.
        enrolment: decides.
        now: fleet time, for the audit log.

    Raises:
        MissingError: an address that cannot be bound.
    """

    def __init__(
        self,
        listen: str,
        certificate: ServerCertificate,
        enrolment: Enrolment,
        now: Callable[[], int],
    ) -> None:
        self._enrolment = enrolment
        self._now = now
        self._open = Counter[str]()
        self._logged_ns: dict[str, int] = {}
        """Addresses that a line was logged about within the last second."""
        self._not_logged = 0
        self._turns = asyncio.Semaphore(AT_ONCE)
        options = (*_OPTIONS, connection_limit(Share.ENROLMENT))
        self.server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_CALLS)
        service, method = JOIN.strip("/").split("/")
        # For a unary call gRPC would wait for the request without limit.
        handler = grpc.stream_unary_rpc_method_handler(self._join)
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        self.port = add_port(self.server, listen, certificate.credentials(mutual=False))

    async def _join(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        peer = str(context.peer())
        address = peer.rpartition(":")[0]
        try:
            with self._one_more(address):
                request = decode_joining(await _first(requests))
                async with self._turns:
                    return await self._answer(request, peer)
        except SyntonyError as error:
            self._enrolment.refusals += 1
            self._log_refusal(peer, address, str(error))
            return encode(Failure(reason=str(error)))

    async def _answer(self, request: Joining, peer: str) -> bytes:
        if isinstance(request, AuthorityQuery):
            return encode(Issued(certificate=b"", ca=self._enrolment.ca()))
        return encode(await asyncio.to_thread(self._enrolment.join, request, peer, self._now()))

    def _log_refusal(self, peer: str, address: str, reason: str) -> None:
        """At most one line a second and address: unauthenticated clients must not fill the disk."""
        now_ns = time.monotonic_ns()
        self._logged_ns = {each: at for each, at in self._logged_ns.items() if now_ns - at < 1 * S}
        if address in self._logged_ns or len(self._logged_ns) >= MAX_LINES:
            self._not_logged += 1
            return
        self._logged_ns[address], not_logged, self._not_logged = now_ns, self._not_logged, 0
        more = f" not_logged_before={not_logged}" if not_logged else ""
        _log.warning("enrolment refused peer=%s reason=%s%s", peer, reason, more)

    @contextlib.contextmanager
    def _one_more(self, address: str) -> Iterator[None]:
        """Raises `BusyError`: this address has so many open calls that it keeps them open
        itself."""
        if self._open[address] >= MAX_CALLS_OF_ADDRESS:
            raise BusyError(
                f"{MAX_CALLS_OF_ADDRESS} requests from this address are waiting; try again"
            )
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]


async def _first(requests: AsyncIterator[bytes]) -> bytes:
    """Raises `UsageError`: no request arrived."""
    with contextlib.suppress(TimeoutError):
        data = await first_message(requests, SEND_S)
        if data is not None:
            return data
    raise UsageError(f"no request within {SEND_S:g} s")

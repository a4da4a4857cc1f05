"""The enrolment port: a join token for a first certificate. Clients have none to show yet.

Whoever can reach the port can send bytes to it, so everything is small and few are served at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from syntony.controller.enrolment import Enrolment
from syntony.controller.listen import HANDSHAKE_MS, ServerCertificate, add_port
from syntony.errors import SyntonyError
from syntony.io.transport import grpc
from syntony.wire.coding import encode
from syntony.wire.enrol import JOIN, MAX_JOIN_BYTES, AuthorityQuery, Issued
from syntony.wire.messages import decode_joining
from syntony.wire.query import Failure

_log = logging.getLogger(__name__)
AT_ONCE = 16
_OPTIONS = (
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ("grpc.max_receive_message_length", MAX_JOIN_BYTES),
    ("grpc.max_connection_idle_ms", HANDSHAKE_MS),
    ("grpc.max_connection_age_ms", 4 * HANDSHAKE_MS),
    ("grpc.so_reuseport", 0),
)


class JoinServer:
    """Bound, not started.

    Args:
        listen: ``ADDRESS:PORT``.
        certificate: what the port shows.
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
        self.server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=AT_ONCE)
        service, method = JOIN.strip("/").split("/")
        handler = grpc.unary_unary_rpc_method_handler(self._join)
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        self.port = add_port(self.server, listen, certificate.credentials(mutual=False))

    async def _join(self, data: bytes, context: Any) -> bytes:
        peer = str(context.peer())
        try:
            request = decode_joining(data)
            if isinstance(request, AuthorityQuery):
                return encode(Issued(certificate=b"", ca=self._enrolment.ca()))
            issued = await asyncio.to_thread(self._enrolment.join, request, peer, self._now())
        except SyntonyError as error:
            _log.warning("enrolment refused peer=%s reason=%s", peer, error)
            return encode(Failure(reason=str(error)))
        return encode(issued)

"""Forwards requests from a gateway to its leader, which carries them out.

The leader runs them through the same application as its own requests, and so checks credentials,
roles and CSRF tokens itself; it does not rely on the gateway for that.
"""

from __future__ import annotations

import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message

from syntony.api.identity import PEER_CERTIFICATE, VIA
from syntony.errors import RemoteError
from syntony.wire.coding import encode
from syntony.wire.gateways import ApiHead, ApiRequest
from syntony.wire.query import PAGE_BYTES
from syntony.wire.rest import CSRF, EVENTS, PREFIX

_log = logging.getLogger(__name__)
FORWARDED_HEADERS = frozenset({"accept", "authorization", "content-type", "cookie", CSRF.lower()})
"""Headers of a request that are forwarded."""
_CONNECTION_HEADERS = frozenset({b"content-length", b"connection", b"transfer-encoding"})
"""Headers of a response that belong to one connection, and are not forwarded."""


def to_leader(request: Request, body: bytes) -> ApiRequest:
    """Convert a gateway's request for its leader."""
    host, port = request.scope.get("server") or ("", 0)
    client, client_port = request.client or ("", 0)
    return ApiRequest(
        method=request.method,
        scheme=request.url.scheme,
        host=host,
        port=port or 0,
        path=request.url.path,
        query=request.scope.get("query_string", b""),
        headers=tuple(
            (name, value)
            for name, value in request.headers.raw
            if name.decode() in FORWARDED_HEADERS
        ),
        body=body,
        client=client,
        client_port=client_port,
    )


def from_leader(head: ApiHead, body: bytes) -> Response:
    """Convert the leader's answer to the gateway's response."""
    response = Response(body, head.status)
    length = [each for each in response.raw_headers if each[0] == b"content-length"]
    response.raw_headers = [
        each for each in head.headers if each[0].lower() not in _CONNECTION_HEADERS
    ] + length
    return response


async def carry_out(app: ASGIApp, request: ApiRequest, via: str) -> list[bytes]:
    """Carry out a forwarded request; returns head and body, in pages.

    Args:
        app: the API.
        via: the gateway's name.

    Raises:
        RemoteError: a request that gateways may not forward.
    """
    if not request.path.startswith(f"{PREFIX}/") or request.path == EVENTS:
        raise RemoteError(f"gateways pass on requests of the API alone, not {request.path[:80]!r}")
    head, chunks = ApiHead(status=500, headers=()), []
    incoming = [{"type": "http.request", "body": request.body, "more_body": False}]

    async def receive() -> Message:
        return incoming.pop() if incoming else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal head
        if message["type"] == "http.response.start":
            headers = tuple((bytes(name), bytes(value)) for name, value in message["headers"])
            head = ApiHead(status=message["status"], headers=headers)
        else:
            chunks.append(message.get("body", b""))

    try:
        await app(_scope(request, via), receive, send)
    except Exception:  # noqa: BLE001 — it has been answered, and logged, as a defect
        _log.debug("relayed request failed", exc_info=True)
    body = b"".join(chunks)
    return [
        encode(head), *(body[at : at + PAGE_BYTES] for at in range(0, len(body), PAGE_BYTES))
    ]  # fmt: skip


def _scope(request: ApiRequest, via: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": "",
        "query_string": request.query,
        "headers": [(name.lower(), value) for name, value in request.headers],
        "client": (request.client, request.client_port),
        "server": (request.host, request.port),
        "state": {PEER_CERTIFICATE: None, VIA: via},
    }

"""Requests that a gateway passes on: what goes to the leader, and how the leader carries it out.

The leader runs them through the same application as its own, so that it checks credentials, roles
and CSRF tokens itself: a gateway vouches for nobody.
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
PASSED_ON = frozenset({"accept", "authorization", "content-type", "cookie", CSRF.lower()})
"""Headers of a request."""
_OWN = frozenset({b"content-length", b"connection", b"transfer-encoding"})
"""Headers of a response that are of one connection."""


def to_leader(request: Request, body: bytes) -> ApiRequest:
    """What a gateway passes on."""
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
            (name, value) for name, value in request.headers.raw if name.decode() in PASSED_ON
        ),
        body=body,
        client=client,
        client_port=client_port,
    )


def from_leader(head: ApiHead, body: bytes) -> Response:
    """What a gateway answers."""
    response = Response(body, head.status)
    length = [each for each in response.raw_headers if each[0] == b"content-length"]
    response.raw_headers = [each for each in head.headers if each[0].lower() not in _OWN] + length
    return response


async def carry_out(app: ASGIApp, asked: ApiRequest, via: str) -> list[bytes]:
    """Head and body, in pages.

    Args:
        app: the API.
        via: the gateway's name.

    Raises:
        RemoteError: nothing that is passed on.
    """
    if not asked.path.startswith(f"{PREFIX}/") or asked.path == EVENTS:
        raise RemoteError(f"gateways pass on requests of the API alone, not {asked.path[:80]!r}")
    head, chunks = ApiHead(status=500, headers=()), []
    coming = [{"type": "http.request", "body": asked.body, "more_body": False}]

    async def receive() -> Message:
        return coming.pop() if coming else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal head
        if message["type"] == "http.response.start":
            headers = tuple((bytes(name), bytes(value)) for name, value in message["headers"])
            head = ApiHead(status=message["status"], headers=headers)
        else:
            chunks.append(message.get("body", b""))

    try:
        await app(_scope(asked, via), receive, send)
    except Exception:  # noqa: BLE001 — it has been answered, and logged, as a defect
        _log.debug("relayed request failed", exc_info=True)
    body = b"".join(chunks)
    return [
        encode(head), *(body[at : at + PAGE_BYTES] for at in range(0, len(body), PAGE_BYTES))
    ]  # fmt: skip


def _scope(asked: ApiRequest, via: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": asked.method,
        "scheme": asked.scheme,
        "path": asked.path,
        "raw_path": asked.path.encode(),
        "root_path": "",
        "query_string": asked.query,
        "headers": [(name.lower(), value) for name, value in asked.headers],
        "client": (asked.client, asked.client_port),
        "server": (asked.host, asked.port),
        "state": {PEER_CERTIFICATE: None, VIA: via},
    }

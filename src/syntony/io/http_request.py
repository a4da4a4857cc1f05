"""Sends one HTTP request to an external system, with limits on time and size."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import NamedTuple

TIMEOUT_S = 10.0
"""For connecting, and between two packets …"""
DEADLINE_S = 20.0
"""… and for the whole answer, so that a slow trickle ends too."""
ERRORS = (OSError, http.client.HTTPException, ValueError)
"""What `http_request` raises."""


class HttpAnswer(NamedTuple):
    """What came back; `body` is cut off where the caller wished."""

    status: int
    reason: str
    body: bytes


def http_request(
    method: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    most_bytes: int,
    tls: ssl.SSLContext | None = None,
) -> HttpAnswer:
    """Blocks. Redirects are not followed: they would take secrets elsewhere.

    Args:
        most_bytes: of the answer's body that are read.
        tls: for ``https``; None: the system's CAs.

    Raises:
        OSError, HTTPException, ValueError: no whole answer; see `ERRORS`.
    """
    parts = urllib.parse.urlsplit(url)
    target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    began_s = time.monotonic()
    connection = _connection(parts, tls)
    with contextlib.closing(connection), _deadline(connection):
        connection.request(method, target, body or None, dict(headers))
        answer = connection.getresponse()
        found = answer.read(most_bytes)
    if time.monotonic() - began_s >= DEADLINE_S:
        raise TimeoutError(f"no complete answer within {DEADLINE_S:g} s")
    return HttpAnswer(answer.status, answer.reason, found)


@contextlib.contextmanager
def _deadline(connection: http.client.HTTPConnection) -> Iterator[None]:
    """Connects, and cuts the connection off when `DEADLINE_S` is over."""
    connection.connect()
    cut = threading.Timer(DEADLINE_S, socket.socket.shutdown, (connection.sock, socket.SHUT_RDWR))
    cut.daemon = True
    cut.start()
    try:
        yield
    finally:
        cut.cancel()


def _connection(
    parts: urllib.parse.SplitResult, tls: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = tls or ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)

"""Client of the HTTP API: one connection, one request at a time. Imports no controller code."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode, urlsplit

import msgspec

from syntony.errors import MissingError, RefusalError, RemoteError, UsageError, WireError
from syntony.input_files import MAX_SECRET_BYTES, check_file, read_text
from syntony.model import S
from syntony.model.names import is_loopback
from syntony.wire.query import A, Query, answer_type, join_pages
from syntony.wire.rest import (
    CURSOR,
    EVENTS,
    NEXT_CURSOR,
    OIDC,
    OIDC_DEVICE,
    OIDC_DEVICE_TOKEN,
    PAGE_SIZE,
    PREFIX,
    SESSION,
    DeviceLogin,
    DeviceToken,
    DeviceTokenRequest,
    OidcView,
    Problem,
    SessionView,
    body,
    has_rows,
    is_question,
    parameters,
    route_name,
)

DEFAULT_TIMEOUT_NS = 10 * S
PAGE_ROWS = 10_000
MAX_RESPONSE_BYTES = 128 << 20
SILENCE_NS = 45 * S
"""Timeout of an event stream: three heartbeats, which are sent every 15 s."""
_PORTS = {"http": 80, "https": 443}
_PLAIN = {"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"}
"""How TLS libraries call an answer in plain text."""


class Access(NamedTuple):
    """Credentials. Paths are of PEM files."""

    token: str = ""
    ca: str = ""
    """The fleet's CA; empty: the CAs that this machine trusts."""
    cert: str = ""
    key: str = ""


class ServerEvent(NamedTuple):
    """One live event: a topic has changed."""

    id: str
    topic: str
    """``incidents``, ``fleet``, ``switch`` or ``jobs``."""
    data: dict[str, Any]


class Client:
    """A client of a controller's API. Not thread-safe.

    Args:
        url: ``https://HOST:PORT``, or ``http://…`` on this machine.
        access: token, certificate.
        timeout_ns: for each step of a request.

    Raises:
        UsageError: a URL that is none, or one that would show the token to others.
        MissingError: a certificate file that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        access: Access | None = None,
        token: str = "",
        ca: str = "",
        timeout_ns: int = DEFAULT_TIMEOUT_NS,
    ) -> None:
        self._access = access or Access(token=token, ca=ca)
        self.url, self._connection = url, _connection(url, self._access, timeout_ns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        self._connection.close()

    def ask(self, query: Query[A]) -> A:
        """Send a request and return its answer, with all pages.

        Raises:
            RemoteError: no controller there, or no answer in time.
            RefusalError: the controller says why it does not do it.
            WireError: the answer is not one.
        """
        kind = type(query)
        answer, path = answer_type(kind), f"{PREFIX}/{route_name(kind)}"
        if not is_question(kind):
            data, _ = self._request("POST", path, body(query))
            done: A = _decode(data, answer)
            return done
        pairs = parameters(query)
        if has_rows(answer):
            pairs.append((PAGE_SIZE, str(PAGE_ROWS)))
        found: list[A] = []
        cursor: str | None = None
        while cursor is None or cursor:
            sent = pairs if cursor is None else [(CURSOR, cursor)]
            data, cursor = self._request("GET", f"{path}?{urlencode(sent)}")
            found.append(_decode(data, answer))
        return join_pages(found)

    def session(self) -> SessionView:
        """The caller's identity and role at the controller. Raises as `ask` does."""
        return _decode(self._request("GET", SESSION)[0], SessionView)

    def begin_device_login(self) -> DeviceLogin:
        """Begin a login at the controller's identity provider, completed by a person in a browser.

        Raises:
            UsageError: the controller has none.
            RemoteError, WireError: as `ask` does; the provider has no such logins.
        """
        if not _decode(self._request("GET", OIDC)[0], OidcView).offered:
            raise UsageError(f"{self.url} has no identity provider; log in with a token")
        return _decode(self._request("POST", OIDC_DEVICE, b"{}")[0], DeviceLogin)

    def device_token(self, device_code: str) -> DeviceToken:
        """Result of a login by device. Raises as `ask` does: it was refused, or has expired."""
        body = msgspec.json.encode(DeviceTokenRequest(device_code=device_code))
        return _decode(self._request("POST", OIDC_DEVICE_TOKEN, body)[0], DeviceToken)

    def events(self, last_id: str = "") -> Generator[ServerEvent]:
        """Live events, until the connection ends.

        Args:
            last_id: of the last event received: later ones are sent first.

        Raises:
            RemoteError: no controller there, it refuses, or it has fallen silent.
        """
        connection = _connection(self.url, self._access, SILENCE_NS)
        headers = self._headers() | ({"Last-Event-ID": last_id} if last_id else {})
        try:
            connection.request("GET", EVENTS, headers=headers)
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise self._refusal(response.status, response.read())
            yield from _events(response)
        except (OSError, http.client.HTTPException) as error:
            raise RemoteError(f"no controller answers at {self.url} ({_line(error)})") from error
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        token = self._access.token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[bytes, str]:
        """The body of the answer, and the cursor of the next page."""
        headers = self._headers()
        if body is not None:
            headers["Content-Type"] = "application/json"
        fresh = self._connection.sock is None
        try:
            try:
                response = self._send(method, path, body, headers)
            except (http.client.RemoteDisconnected, ConnectionError, BrokenPipeError):
                # A kept connection may have been closed meanwhile. An order is not given twice.
                if fresh or method != "GET":
                    raise
                self.close()
                response = self._send(method, path, body, headers)
            data = response.read(MAX_RESPONSE_BYTES + 1)
        except TimeoutError as error:
            self.close()
            raise RemoteError(
                f"the controller at {self.url} did not answer in time; try again, and check "
                "its load"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if isinstance(error, ssl.SSLError) and error.reason in _PLAIN:
                raise RemoteError(self._speaks_http()) from error
            raise RemoteError(
                f"no controller answers at {self.url}; is it running? ({_line(error)})"
            ) from error
        if len(data) > MAX_RESPONSE_BYTES:
            self.close()
            raise WireError(f"the controller at {self.url} sent over {MAX_RESPONSE_BYTES} bytes")
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise self._refusal(response.status, data)
        return data, response.getheader(NEXT_CURSOR) or ""

    def _speaks_http(self) -> str:
        what = f"{self.url}: https:// to a port that speaks http"
        parts = urlsplit(self.url)
        if is_loopback(parts.hostname or ""):
            return f"{what}; use {parts._replace(scheme='http').geturl()}"
        return f"{what}; give the controller's API a certificate, or use http:// on its own host"

    def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        self._connection.request(method, path, body, headers)
        return self._connection.getresponse()

    def _refusal(self, status: int, data: bytes) -> RemoteError:
        try:
            problem = msgspec.json.decode(data, type=Problem)
        except (msgspec.DecodeError, ValueError):
            return RemoteError(f"{self.url} answers {status} and is no controller's API")
        if status == http.HTTPStatus.NOT_FOUND:
            return RemoteError(
                f"the controller at {self.url} is older than this command and does not know its "
                "question; install the same version there"
            )
        return RefusalError(f"{problem.detail} (the controller at {self.url})")


def _connection(url: str, access: Access, timeout_ns: int) -> http.client.HTTPConnection:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is not a URL: {error}") from error
    if (
        parts.scheme not in _PORTS
        or not host
        or not _is_host(host)
        or parts.username is not None
        or parts.path.strip("/")
        or parts.query
    ):
        raise UsageError(
            f"{url!r} is not the URL of a controller; write for example https://HOST:8445"
        )
    timeout_s = timeout_ns / S
    port = port or _PORTS[parts.scheme]
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=_tls(access))
    if not is_loopback(host):
        raise UsageError(f"{url}: use https, or others can read the token")
    return http.client.HTTPConnection(host, port, timeout=timeout_s)


def _is_host(host: str) -> bool:
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def _tls(access: Access) -> ssl.SSLContext:
    files = access.ca
    try:
        authority = read_text(access.ca, MAX_SECRET_BYTES) if access.ca else None
        context = ssl.create_default_context(cadata=authority)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if access.cert:
            files = f"{access.cert} with {access.key}" if access.key else access.cert
            check_file(access.cert, MAX_SECRET_BYTES)
            if access.key:
                check_file(access.key, MAX_SECRET_BYTES)
            context.load_cert_chain(access.cert, access.key or None)
    except OSError as error:  # ssl.SSLError is one
        reason = " ".join((error.strerror or str(error)).split())
        raise MissingError(f"{files}: cannot be used: {reason}") from error
    return context


def _decode(data: bytes, kind: type[A]) -> A:
    try:
        answer: A = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise WireError(f"not an answer of this version: {error}") from error
    return answer


def _events(response: http.client.HTTPResponse) -> Iterator[ServerEvent]:
    fields: dict[str, str] = {}
    for raw in iter(response.readline, b""):
        line = raw.decode().rstrip("\r\n")
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            data = msgspec.json.decode(fields["data"], type=dict[str, Any])
            yield ServerEvent(fields.get("id", ""), fields.get("event", ""), data)
        fields = {}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]

"""Serves the API from a thread with an event loop of its own, inside the process of a controller or
gateway.

TLS 1.3 with the controller's certificate unless the address is loopback. A client may show a
certificate of the fleet's CA; it does not have to.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import h11
import msgspec
import uvicorn
import uvloop
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from syntony.api.app import HEADERS, Api, LeaderApi
from syntony.api.gate import Gate
from syntony.api.gateway_app import GatewayApi
from syntony.api.identity import PEER_CERTIFICATE
from syntony.api.oidc import Provider
from syntony.api.problems import ProblemError, ProblemType
from syntony.api.relay import carry_out
from syntony.controller.api_hub import ApiHub, on_loop
from syntony.controller.config import ControllerConfig
from syntony.controller.gateway_api import GatewayApiHub
from syntony.errors import BusyError, ConfigError, MissingError
from syntony.io.credentials import certificate_file
from syntony.io.descriptors import Share
from syntony.io.listening import listening_socket
from syntony.model import MS, S
from syntony.model.names import parse_listener
from syntony.model.tls_files import TlsFiles
from syntony.wire.coding import encode
from syntony.wire.gateways import ApiRequest

_log = logging.getLogger(__name__)
HEAD_TIMEOUT_S = 10.0
"""Time limit for the head of a request."""
IDLE_S = 60
"""A connection is closed after this time without a request."""
STUCK_NS = 30 * S
"""A peer that acknowledges nothing for this long is disconnected."""
MAX_CONNECTIONS = 1000
REFUSED_PART = 8
"""This fraction of further connections is accepted, to answer that there are too many."""
MAX_HEAD_BYTES = 32 << 10
RELOAD_S = 5.0
"""Interval of checks whether the certificate's files have changed."""
START_S = 30.0
GRACE_S = 1
_INHERITED = "fd:"
CONNECTIONS = "connections"
"""Key of a request's state: the open connections."""
FIXED_HEADERS = tuple((name.lower().encode(), value.encode()) for name, value in HEADERS.items())


def leader_api(hub: ApiHub) -> HttpServer:
    """Make the API of a controller that leads. Raises as `HttpServer` does; `ConfigError`: an
    unusable identity provider."""
    config = hub.config
    if config.api.login_digest:
        hub.access.admit_first(config.api.login_digest, config.api.login_name)
    provider = Provider(config.oidc) if config.oidc else None
    return HttpServer(config, lambda: LeaderApi(hub, provider))


def gateway_api(hub: GatewayApiHub) -> HttpServer:
    """Make a gateway's API. Raises as `HttpServer` does."""
    return HttpServer(hub.config, lambda: GatewayApi(hub))


class HttpServer:
    """Serves the API in a thread. Implements `api_hub.ApiService`.

    Args:
        config: where to listen, and the certificate.
        make: makes the API; called in the serving thread.

    Raises:
        ConfigError: an invalid address, or an unusable certificate.
        MissingError: the address cannot be listened on.
    """

    def __init__(self, config: ControllerConfig, make: Callable[[], Api]) -> None:
        self._socket = open_socket(config.api.listen)
        address, port = self._socket.getsockname()[:2]
        self.port = int(port)
        self._tls = None if ipaddress.ip_address(address).is_loopback else _Tls(config.tls)
        self._make = make
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)
        self._ready = threading.Event()
        self._server: _Server | None = None
        self._api: Api | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to serve. Raises `MissingError`: the thread did not start."""
        self._thread.start()
        if not self._ready.wait(START_S) or self._server is None:
            raise MissingError("the API did not start; see the log")
        scheme = "http" if self._tls is None else "https"
        _log.info("api up url=%s://%s:%d", scheme, self._socket.getsockname()[0], self.port)

    def stop(self) -> None:
        """End every connection; blocks for slightly more than `GRACE_S`."""
        loop, server, api = self._loop, self._server, self._api
        if loop is not None and server is not None and api is not None:
            server.should_exit = True
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(api.events.close)
            self._thread.join(GRACE_S + 5)
        self._socket.close()

    async def relayed(self, request: ApiRequest, via: str) -> list[bytes]:
        """See `ApiService`."""
        loop, api = self._led()
        return await on_loop(loop, lambda: carry_out(api.app, request, via))

    async def events_after(self, last_id: str) -> list[bytes]:
        """See `ApiService`."""
        loop, api = self._led()
        return [encode(each) for each in await on_loop(loop, lambda: api.event_hub.after(last_id))]

    def _led(self) -> tuple[asyncio.AbstractEventLoop, LeaderApi]:
        loop, api = self._loop, self._api
        if loop is None or not isinstance(api, LeaderApi) or not self._thread.is_alive():
            raise BusyError("the API is not up; ask again in a while")
        return loop, api

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except Exception:  # noqa: BLE001 - the thread's boundary: the controller goes on
            _log.exception("the API has ended")
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        api = self._make()
        config = uvicorn.Config(
            with_headers(limited(api.app, _most_connections())),
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            ssl_context_factory=self._tls.context if self._tls else None,
        )
        self._api, self._loop = api, asyncio.get_running_loop()
        self._server = _Server(config, self._socket)
        tasks = [asyncio.create_task(api.events.run())]
        if self._tls is not None:
            tasks.append(asyncio.create_task(self._tls.keep_current()))
        self._ready.set()
        try:
            await self._server.serve(sockets=[])
        finally:
            for task in tasks:
                task.cancel()


def open_socket(listen: str) -> socket.socket:
    """A listening TCP socket.

    Args:
        listen: ``ADDRESS:PORT``, or ``fd:NUMBER`` of one that this process was started with.

    Raises:
        ConfigError: it is neither.
        MissingError: the address cannot be listened on.
    """
    if listen.startswith(_INHERITED):
        number = listen.removeprefix(_INHERITED)
        try:
            return socket.socket(fileno=os.dup(int(number)))
        except (ValueError, OSError) as error:
            raise ConfigError(f"api: {listen!r} is no socket of this process") from error
    address, port = parse_listener("api", listen)
    try:
        return listening_socket(address, port, backlog=256)
    except OSError as error:
        raise MissingError(f"api: cannot listen on {listen}: {error.strerror}") from error


def with_headers(app: ASGIApp) -> ASGIApp:
    """Add the security headers to every response."""

    async def strict(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *FIXED_HEADERS]
            await send(message)

        await app(scope, receive, sending)

    return strict


def limited(app: ASGIApp, most: int) -> ASGIApp:
    """Answer as busy while more than `most` connections are open."""
    busy = ProblemError(
        ProblemType.BUSY, f"{most} connections are open; try again", {"Retry-After": "5"}
    )

    async def admitting(scope: Scope, receive: Receive, send: Send) -> None:
        full = len(scope["state"].get(CONNECTIONS, ())) > most
        await (busy.response() if full else app)(scope, receive, send)

    return admitting


class _Server(uvicorn.Server):
    """A server that accepts connections through a `Gate`."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket) -> None:
        super().__init__(config)
        self._listening = listening
        self._gate: Gate | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        most = _most_connections()
        most += most // REFUSED_PART + 1
        opened = self.server_state.connections
        self._gate = Gate(self._listening, self._protocol, self.config.ssl, opened, most)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._gate is not None:
            self._gate.close()
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        state = self.lifespan.state
        return _Protocol(config=self.config, server_state=self.server_state, app_state=state)


def _most_connections() -> int:
    """Maximum number of connections served at once."""
    return min(MAX_CONNECTIONS, Share.API.connections)


class _Protocol(H11Protocol):
    """One connection, with the client's certificate and time limits."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        der = tls.getpeercert(binary_form=True) if tls is not None else None
        own = {PEER_CERTIFICATE: der, CONNECTIONS: self.connections}
        self.app_state = {**self.app_state, **own}
        connection = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_NS // MS)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._serving:
            self._head_received()
        elif self._deadline is None:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_received()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with a problem, and end the connection."""
        found = ProblemError(ProblemType.INVALID, msg).response()
        headers = [*found.raw_headers, *FIXED_HEADERS, (b"connection", b"close")]
        phrase = HTTPStatus.BAD_REQUEST.phrase.encode()
        for event in (
            h11.Response(status_code=HTTPStatus.BAD_REQUEST, headers=headers, reason=phrase),
            h11.Data(data=bytes(found.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    @property
    def _serving(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _wait_for_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self._too_slow)

    def _head_received(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if not self._serving:
            self.transport.close()


class _Tls:
    """The controller's certificate, reloaded when its files change. Raises `ConfigError`: it is
    unusable."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.verify_mode = ssl.CERT_OPTIONAL
        self._signature: tuple[int, ...] = ()
        try:
            self._load()
        except (OSError, MissingError) as error:
            raise ConfigError(f"api: {files.cert}: {error}") from error

    def context(self, _config: object, _default: Callable[[], object]) -> ssl.SSLContext:
        return self._context

    async def keep_current(self) -> None:
        """Check the files periodically, until cancelled."""
        failed = ""
        while True:
            await asyncio.sleep(RELOAD_S)
            try:
                await asyncio.to_thread(self._load)
            except (OSError, MissingError) as error:
                if str(error) != failed:
                    failed = str(error)
                    _log.error("certificate not reloaded, using the old one reason=%s", error)

    def _load(self) -> None:
        signature = tuple(
            value
            for path in msgspec.structs.astuple(self._files)
            for stat in [Path(path).stat()]
            for value in (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        )
        if signature != self._signature:
            self._context.load_cert_chain(certificate_file(self._files), self._files.key)
            self._context.load_verify_locations(self._files.ca)
            self._signature = signature

"""The ASGI application: requests to answers, sessions, live events, the console."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount
from starlette.routing import Route as HttpRoute

from syntony.api.bodies import json_answer, json_body, json_view
from syntony.api.console import ConsoleFiles
from syntony.api.cursors import Cursors
from syntony.api.events import EventHub, Events
from syntony.api.identity import (
    Authenticated,
    Identifier,
    cookie_name,
    cookie_rules,
    origin,
    set_session,
)
from syntony.api.oidc import Provider
from syntony.api.oidc_login import OidcLogin
from syntony.api.openapi import document
from syntony.api.problems import Endpoint, ProblemError, ProblemType, guarded
from syntony.api.routes import ROUTES, Route
from syntony.api.topics import observe
from syntony.controller.access_tokens import csrf_token
from syntony.controller.api_hub import ApiHub, Served
from syntony.errors import UsageError
from syntony.wire.access_tokens import RevokeAccessCommand
from syntony.wire.query import Query
from syntony.wire.rest import (
    CURSOR,
    EVENTS,
    MAX_PAGE_ROWS,
    OPENAPI,
    PAGE_SIZE,
    SESSION,
    SessionRequest,
    SessionView,
    from_body,
    from_parameters,
    split_rows,
)
from syntony.wire.roles import Role

_log = logging.getLogger(__name__)
MAX_ANSWER_BYTES = 64 << 20
"""Limit of one answer as JSON, all its pages together."""
HEARTBEAT_S = 15.0
"""Interval of comments on a stream without events; proxies close silent streams."""
MAX_VIEWERS = 400
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every response."""
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
"""Accepted by every route, so that the API itself answers those that a path does not have."""


class Api(ABC):
    """The HTTP API. One per controller or gateway, on its own event loop."""

    def __init__(self, hub: Served, events: Events) -> None:
        self._hub = hub
        self._identifier = Identifier(hub.access, hub.refusal, time.monotonic_ns)
        self._cursors = Cursors()
        self.events = events
        routes = [
            HttpRoute(path, guarded(self._served(path)), methods=_METHODS)
            for path in dict.fromkeys(route.path for route in ROUTES.values())
        ]
        self.app = Starlette(
            routes=[
                *routes,
                HttpRoute(SESSION, guarded(self._session), methods=["GET", "POST", "DELETE"]),
                HttpRoute(EVENTS, guarded(self._stream), methods=["GET"]),
                HttpRoute(OPENAPI, guarded(self._openapi), methods=["GET"]),
                *self._login_routes(),
                Mount("/api", _guarded_app),
                Mount("/", ConsoleFiles()),
            ],
            exception_handlers={HTTPException: _http_problem, Exception: _defect},
        )

    @abstractmethod
    async def _session(self, request: Request) -> Response:
        """Return who the caller is, begin a session, or end it."""

    @abstractmethod
    def _login_routes(self) -> list[HttpRoute]:
        """Routes of other ways to begin a session."""

    # --- requests of the registry ---

    def _served(self, path: str) -> Endpoint:
        async def serve(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            route = ROUTES.get((method, path))
            if route is None:
                allowed = next(each.method for each in ROUTES.values() if each.path == path)
                raise ProblemError(
                    ProblemType.METHOD, f"{path} is asked by {allowed}", {"Allow": allowed}
                )
            authenticated = self._identifier.identify(request)
            return await self._serve(request, route, authenticated)

        return serve

    async def _serve(
        self, request: Request, route: Route, authenticated: Authenticated
    ) -> Response:
        role, name = authenticated.caller.identity
        if role not in route.roles:
            wanted = " or ".join(sorted(route.roles))
            raise ProblemError(
                ProblemType.DENIED, f"{route.path} needs the role {wanted}; {name!r} has {role}"
            )
        if route.method == "POST":
            body = await json_body(request)
            query = from_body(route.request, body)
            return json_answer(await self._carry_out(query, authenticated, _whole))
        pairs = request.query_params.multi_items()
        size, cursor, rest = _paging(pairs) if route.paged else (0, None, pairs)
        key = (role, name, route.path)
        now_ns = time.monotonic_ns()
        if cursor is not None:
            page = self._cursors.page(key, cursor, now_ns)
            if page is None:
                raise ProblemError(
                    ProblemType.CURSOR,
                    f"the answer of this {CURSOR} is not kept any more; ask again",
                )
        else:
            query = from_parameters(route.request, rest)
            render = _pages_of(size) if size else _whole
            pages = await self._carry_out(query, authenticated, render)
            page = self._cursors.first(key, pages, time.monotonic_ns())
        return json_answer([page.body], page.next_cursor)

    async def _carry_out(
        self, query: Query[Any], authenticated: Authenticated, render: Callable[[Any], list[bytes]]
    ) -> list[bytes]:
        return await self._hub.carry_out(query, authenticated.caller, render)

    # --- live events ---

    async def _stream(self, request: Request) -> Response:
        authenticated = self._identifier.identify(request)
        if authenticated.caller.identity.role not in {Role.VIEWER, Role.OPERATOR}:
            raise ProblemError(ProblemType.DENIED, "live events need the role viewer or operator")
        if self.events.viewers >= MAX_VIEWERS:
            raise ProblemError(
                ProblemType.BUSY,
                f"{MAX_VIEWERS} live views are open; close some",
                {"Retry-After": "10"},
            )
        last_id = request.headers.get("last-event-id", "")
        return StreamingResponse(
            self._events(authenticated, last_id),
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
            media_type="text/event-stream",
        )

    async def _events(self, authenticated: Authenticated, last_id: str) -> AsyncIterator[bytes]:
        viewer = self.events.join(last_id)
        try:
            yield b"retry: 2000\n\n"
            while True:
                try:
                    data = await asyncio.wait_for(viewer.queue.get(), HEARTBEAT_S)
                except TimeoutError:
                    data = b": heartbeat\n\n"
                if data is None or not self._identifier.is_valid(authenticated):
                    return
                yield data
        finally:
            self.events.leave(viewer)

    async def _openapi(self, request: Request) -> Response:
        self._identifier.identify(request)
        return json_answer([document()])


class LeaderApi(Api):
    """The API of a controller that leads.

    Args:
        provider: for people's logins; None: only tokens are accepted.
    """

    def __init__(self, hub: ApiHub, provider: Provider | None = None) -> None:
        self._leader, self._provider = hub, provider
        self._access = hub.access
        self.event_hub = EventHub(lambda: hub.call(lambda: observe(hub.services)))
        super().__init__(hub, self.event_hub)

    def _login_routes(self) -> list[HttpRoute]:
        return OidcLogin(self._leader, self._identifier, self._provider).routes()

    async def _session(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._begin_session(request)
        authenticated = self._identifier.identify(request)
        if request.method == "DELETE":
            if authenticated.access is None or not authenticated.session:
                raise ProblemError(
                    ProblemType.INVALID, "there is no session to end: this is a token"
                )
            end = RevokeAccessCommand(
                number=authenticated.access.number, by="", comment="logged out"
            )
            issuer = authenticated.caller.issuer("")
            await asyncio.to_thread(self._access.revoke, end, issuer, self._leader.now())
            response = Response(status_code=204)
            response.delete_cookie(cookie_name(request), **cookie_rules(request))
            return response
        return json_view(authenticated.view())

    async def _begin_session(self, request: Request) -> Response:
        try:
            login = msgspec.json.decode(await json_body(request), type=SessionRequest)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise UsageError(f'the body must be {{"token": "…"}}: {error}') from error
        begin = self._access.begin_session
        try:
            session = await asyncio.to_thread(
                begin, login.token[:200], origin(request), self._leader.now()
            )
        except UsageError as error:
            raise self._identifier.failed(request, error) from error
        access = session.access
        view = SessionView(
            role=access.role, name=access.name, csrf=csrf_token(session.secret),
            expires_ns=access.expires_ns,
        )  # fmt: skip
        response = json_view(view)
        set_session(request, response, session.secret)
        return response


def _whole(answer: msgspec.Struct) -> list[bytes]:
    return _bounded([msgspec.json.encode(answer)])


def _pages_of(size: int) -> Callable[[msgspec.Struct], list[bytes]]:
    return lambda answer: _bounded([msgspec.json.encode(each) for each in split_rows(answer, size)])


def _bounded(pages: list[bytes]) -> list[bytes]:
    size = sum(map(len, pages))
    if size > MAX_ANSWER_BYTES:
        raise UsageError(
            f"an answer of {size >> 20} MiB is over the limit of {MAX_ANSWER_BYTES >> 20}; "
            "ask for a shorter window or fewer rows"
        )
    return pages


def _paging(pairs: list[tuple[str, str]]) -> tuple[int, str | None, list[tuple[str, str]]]:
    """Page size (0: none), cursor (None: none), and the remaining parameters. Raises `UsageError`:
    an invalid or repeated page size, or a cursor with other parameters."""
    sizes = [value for name, value in pairs if name == PAGE_SIZE]
    cursors = [value for name, value in pairs if name == CURSOR]
    if cursors:
        if len(pairs) > 1:
            raise UsageError(f"{CURSOR} stands alone: it continues an answer as it was asked for")
        return 0, cursors[0], []
    if not sizes:
        return 0, None, pairs
    if len(sizes) > 1:
        raise UsageError(f"parameter {PAGE_SIZE!r} is given twice; give it once")
    (value,) = sizes
    size = int(value) if value.isascii() and value.isdecimal() and len(value) < 9 else 0
    if not 0 < size <= MAX_PAGE_ROWS:
        raise UsageError(f"{PAGE_SIZE}={value[:20]!r}: give 1 to {MAX_PAGE_ROWS} rows")
    return size, None, [pair for pair in pairs if pair[0] != PAGE_SIZE]


async def _guarded_app(scope: Any, receive: Any, send: Any) -> None:
    detail = f"there is no {scope['path']}; see {OPENAPI}"
    await ProblemError(ProblemType.UNKNOWN, detail).response()(scope, receive, send)


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
    reasons = {404: ProblemType.UNKNOWN, 405: ProblemType.METHOD}
    reason = reasons.get(error.status_code, ProblemType.INVALID)
    detail = f"{request.method} {request.url.path}: {error.detail}; see {OPENAPI}"
    return ProblemError(reason, detail, error.headers).response()


async def _defect(request: Request, error: Exception) -> Response:
    _log.error("request failed path=%s", request.url.path, exc_info=error)
    return ProblemError(
        ProblemType.INTERNAL, f"{type(error).__name__}; the controller's log has more (a bug)"
    ).response()

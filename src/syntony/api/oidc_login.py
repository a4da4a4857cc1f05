"""Routes for logging in and out with an OpenID Connect provider.

All state of a login is derived from a secret in a cookie of the browser, valid for ten minutes, so
that a login can begin at one controller and end at another.
"""

from __future__ import annotations

import asyncio
import html
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from syntony.api.bodies import json_body, json_view
from syntony.api.identity import Identifier, cookie_name, cookie_rules, origin, set_session
from syntony.api.oidc import (
    DEVICE_PENDING,
    DEVICE_SLOW_DOWN,
    GrantRefusedError,
    Login,
    Person,
    Provider,
)
from syntony.api.problems import Endpoint, ProblemError, ProblemType, guarded, problem_of
from syntony.controller.access_tokens import SESSION_NS
from syntony.controller.api_hub import ApiHub
from syntony.errors import SyntonyError, UsageError
from syntony.wire.access_tokens import AccessTokenCommand
from syntony.wire.control import Issuer
from syntony.wire.rest import (
    OIDC,
    OIDC_CALLBACK,
    OIDC_DEVICE,
    OIDC_DEVICE_TOKEN,
    OIDC_LOGIN,
    OIDC_LOGOUT,
    DeviceToken,
    DeviceTokenRequest,
    OidcView,
)

_log = logging.getLogger(__name__)
LOGIN_S = 600
"""Time for a person to log in at the provider."""
MAX_PENDING = 16
"""Maximum logins that wait for the provider; further ones are refused as busy."""
_THREADS = 4
"""Separate threads: a provider that hangs does not delay logins with tokens."""
_SECRET_BYTES = 32
_T = TypeVar("_T")
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Not logged in – Syntony</title>
<h1>Not logged in</h1>
<p>{why}</p>
<p><a href="/">Back to the login page</a></p></html>
"""


class OidcLogin:
    """Handlers of logins with a provider. One per API.

    Args:
        identifier: counts failed logins.
        provider: None: none is configured.
    """

    def __init__(self, hub: ApiHub, identifier: Identifier, provider: Provider | None) -> None:
        self._hub, self._identifier, self._provider = hub, identifier, provider
        self._threads = ThreadPoolExecutor(_THREADS, "oidc")
        self._pending = 0

    def routes(self) -> list[Route]:
        return [
            Route(OIDC, self._offer, methods=["GET"]),
            Route(OIDC_LOGIN, _as_page(self._begin), methods=["GET"]),
            Route(OIDC_CALLBACK, _as_page(self._end), methods=["GET"]),
            Route(OIDC_LOGOUT, _as_page(self._log_out), methods=["GET"]),
            Route(OIDC_DEVICE, guarded(self._begin_device), methods=["POST"]),
            Route(OIDC_DEVICE_TOKEN, guarded(self._device_token), methods=["POST"]),
        ]

    async def _offer(self, _: Request) -> Response:
        label = self._provider.label if self._provider else ""
        return json_view(OidcView(offered=self._provider is not None, label=label))

    async def _begin(self, request: Request) -> Response:
        provider = self._configured()
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        url = await self._wait(lambda: provider.login_url(Login.of(secret)))
        response = RedirectResponse(url, 303, {"Cache-Control": "no-store"})
        response.set_cookie(_cookie(request), secret, max_age=LOGIN_S, **_rules(request))
        return response

    async def _end(self, request: Request) -> Response:
        """Complete a login: the provider has redirected the browser here."""
        provider = self._configured()
        try:
            code, login = _code(request, provider.issuer)
            person = await self._wait(lambda: provider.person(code, login))
        except ProblemError as error:
            if error.reason is ProblemType.UNAUTHENTICATED:
                raise self._identifier.failed(request, UsageError(error.detail)) from error
            _log.warning("login refused from=%s reason=%s", origin(request), error.detail)
            raise
        secret = await asyncio.to_thread(self._session, person, origin(request), provider.issuer)
        response = RedirectResponse("/", 303, {"Cache-Control": "no-store"})
        response.delete_cookie(_cookie(request), **_rules(request))
        set_session(request, response, secret)
        return response

    async def _log_out(self, _: Request) -> Response:
        """Redirect the browser to end its login at the provider; its session here has ended."""
        url = await self._wait(self._configured().logout_url)
        return RedirectResponse(url or "/", 303, {"Cache-Control": "no-store"})

    async def _begin_device(self, request: Request) -> Response:
        """Begin a login for a command line, which a person completes in any browser."""
        provider = self._configured()
        self._identifier.device_login(request)
        return json_view(await self._wait(provider.device_login))

    async def _device_token(self, request: Request) -> Response:
        """Return a token once the person has completed such a login."""
        provider = self._configured()
        try:
            body = msgspec.json.decode(await json_body(request), type=DeviceTokenRequest)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise UsageError(f'the body must be {{"device_code": "…"}}: {error}') from error
        try:
            person = await self._wait(lambda: provider.device_person(body.device_code))
        except GrantRefusedError as error:
            if error.code in {DEVICE_PENDING, DEVICE_SLOW_DOWN}:
                return json_view(DeviceToken(slow_down=error.code == DEVICE_SLOW_DOWN))
            raise self._identifier.failed(request, UsageError(error.detail)) from error
        where = origin(request)
        return json_view(await asyncio.to_thread(self._token, person, where, provider.issuer))

    def _token(self, person: Person, where: str, issuer: str) -> DeviceToken:
        """Make a token that is valid as long as a browser's session. Blocks."""
        role, name = person.identity
        command = AccessTokenCommand(
            role=role, name=name, valid_ns=SESSION_NS, by="",
            comment=f"OIDC subject {person.subject} of {issuer}, by device",
        )  # fmt: skip
        access = self._hub.services.access
        return DeviceToken(token=access.make(command, Issuer(name, where), self._hub.now()).token)

    def _session(self, person: Person, where: str, issuer: str) -> str:
        """Begin a browser's session; returns its secret. Blocks."""
        return self._hub.services.access.begin_person_session(
            person.identity, where, self._hub.now(), f"OIDC subject {person.subject} of {issuer}"
        ).secret

    def _configured(self) -> Provider:
        if self._provider is None:
            raise ProblemError(
                ProblemType.UNKNOWN, "no identity provider is set up here; log in with a token"
            )
        return self._provider

    async def _wait(self, work: Callable[[], _T]) -> _T:
        """Run a request to the provider in one of the separate threads."""
        if self._pending >= MAX_PENDING:
            raise ProblemError(
                ProblemType.BUSY,
                f"{MAX_PENDING} logins wait for the identity provider; try again",
                {"Retry-After": "5"},
            )
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._pending -= 1


def _code(request: Request, issuer: str) -> tuple[str, Login]:
    """The provider's code, and the login; checks that the login began in this browser."""
    parameters = request.query_params
    secret = request.cookies.get(_cookie(request), "")
    if not secret:
        raise _unknown_login("this browser has begun no login in the last ten minutes")
    login = Login.of(secret)
    if not secrets.compare_digest(parameters.get("state", "").encode(), login.state.encode()):
        raise _unknown_login("this is not the login that this browser began last (state)")
    if parameters.get("iss", issuer) != issuer:  # RFC 9207
        raise _unknown_login("another identity provider has answered (iss)")
    if error := parameters.get("error", ""):
        why = " ".join(f"{error} {parameters.get('error_description', '')}".split())[:200]
        raise ProblemError(
            ProblemType.UNAUTHENTICATED, f"the identity provider refuses the login: {why}"
        )
    if not parameters.get("code"):
        raise _unknown_login("the identity provider sent no code")
    return parameters["code"], login


def _unknown_login(why: str) -> ProblemError:
    return ProblemError(ProblemType.UNAUTHENTICATED, f"{why}; begin again at the login page")


def _cookie(request: Request) -> str:
    return f"{cookie_name(request)}-oidc"


def _rules(request: Request) -> dict[str, Any]:
    """Attributes of the cookie: lax, because the provider's redirect comes from another site."""
    return cookie_rules(request) | {"samesite": "lax"}


def _as_page(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint that a browser opens: problems become a page."""

    async def paged(request: Request) -> Response:
        try:
            return await endpoint(request)
        except SyntonyError as error:
            problem = problem_of(error)
        except ProblemError as error:
            problem = error
        status = problem.reason.value[1]
        headers = {**problem.headers, "Cache-Control": "no-store"}
        return HTMLResponse(_PAGE.format(why=html.escape(problem.detail)), status, headers)

    return paged

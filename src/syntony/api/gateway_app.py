"""A gateway's API: what the store knows is answered here, everything else by the leader.

Requests are passed on with the token or session that they came with, over the gateway's own
connection to the leader, which checks it as if the request had come there.
"""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from syntony.api.app import Api
from syntony.api.bodies import bounded_body, json_view
from syntony.api.events import FollowedEvents
from syntony.api.identity import PEER_CERTIFICATE, shown
from syntony.api.problems import Endpoint, ProblemError, ProblemType, guarded
from syntony.api.relay import from_leader, to_leader
from syntony.api.routes import ROUTES
from syntony.controller.gateway_api import GatewayApiHub
from syntony.wire.rest import (
    OIDC,
    OIDC_CALLBACK,
    OIDC_DEVICE,
    OIDC_DEVICE_TOKEN,
    OIDC_LOGIN,
    OIDC_LOGOUT,
)

MAX_PASSED_ON = 64
"""Requests that wait for the leader; more are told to come again."""
HEARD_WITHIN_S = 3.0
"""A session that has just begun is known here within about a second."""


class GatewayApi(Api):
    """One per gateway.

    Args:
        hub: the gateway.
    """

    def __init__(self, hub: GatewayApiHub) -> None:
        self._gateway = hub
        self._passed_on = 0
        super().__init__(hub, FollowedEvents(hub.events_after))

    def _served(self, path: str) -> Endpoint:
        route = ROUTES.get(("GET", path))
        if route is None or not route.question.shared:
            return self._of_leader
        return self._known_here(super()._served(path))

    async def _session(self, request: Request) -> Response:
        return await self._known_here(self._who)(request)

    async def _who(self, request: Request) -> Response:
        view = self._identifier.identify(request).view()
        return json_view(view)

    def _login_routes(self) -> list[HttpRoute]:
        asked = ((OIDC, OIDC_LOGIN, OIDC_CALLBACK, OIDC_LOGOUT), (OIDC_DEVICE, OIDC_DEVICE_TOKEN))
        return [
            HttpRoute(path, guarded(self._pass_on), methods=[method])
            for method, paths in zip(("GET", "POST"), asked, strict=True)
            for path in paths
        ]

    async def _openapi(self, request: Request) -> Response:
        return await self._known_here(super()._openapi)(request)

    async def _stream(self, request: Request) -> Response:
        if not self._gateway.led:
            raise self._leaders_own("live events come from the leader;")
        until_s = time.monotonic() + HEARD_WITHIN_S
        while shown(request)[0] and not self._identifier.knows(request):
            if time.monotonic() >= until_s:
                break
            await asyncio.sleep(0.1)
        return await super()._stream(request)

    def _known_here(self, endpoint: Endpoint) -> Endpoint:
        """Questions of those who are known here are answered here; of others, the leader says who
        they are: a session may be younger than what was heard of it."""

        async def serve(request: Request) -> Response:
            by_certificate = not shown(request)[0]
            asks = request.method in {"GET", "HEAD"}
            if asks and (by_certificate or self._identifier.knows(request)):
                return await endpoint(request)
            return await self._pass_on(request)

        return serve

    async def _of_leader(self, request: Request) -> Response:
        if not shown(request)[0]:
            self._identifier.identify(request)
            if request.scope.get("state", {}).get(PEER_CERTIFICATE) is not None:
                raise self._leaders_own(
                    "a certificate proves who you are to this gateway alone; use a token, or"
                )
        return await self._pass_on(request)

    async def _pass_on(self, request: Request) -> Response:
        if not self._gateway.led:
            raise self._leaders_own(f"{request.url.path} is answered by the leader;")
        if self._passed_on >= MAX_PASSED_ON:
            raise ProblemError(
                ProblemType.BUSY, f"{MAX_PASSED_ON} requests wait for the leader; try again",
                {"Retry-After": "1"},
            )  # fmt: skip
        self._passed_on += 1
        try:
            body = await bounded_body(request)
            return from_leader(*await self._gateway.ask_leader(to_leader(request, body)))
        finally:
            self._passed_on -= 1

    def _leaders_own(self, why: str) -> ProblemError:
        detail = f"{why} ask {self._gateway.leader_hint}"
        return ProblemError(ProblemType.LEADER, detail, {"Retry-After": "2"})

"""A gateway's API: answers from the store where possible, and forwards all else to the leader.

Requests are forwarded with their token or session, over the gateway's own connection to the leader,
which verifies it as for requests of its own.
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
from syntony.api.identity import PEER_CERTIFICATE, presented_secret
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

MAX_FORWARDED = 64
"""Maximum requests that wait for the leader; further ones are refused as busy."""
SESSION_DELAY_S = 3.0
"""Longest wait for a new session, which arrives here within about a second."""


class GatewayApi(Api):
    def __init__(self, hub: GatewayApiHub) -> None:
        self._gateway = hub
        self._forwarded = 0
        super().__init__(hub, FollowedEvents(hub.events_after))

    def _served(self, path: str) -> Endpoint:
        route = ROUTES.get(("GET", path))
        if route is None or not route.question.shared:
            return self._of_leader
        return self._local_if_known(super()._served(path))

    async def _session(self, request: Request) -> Response:
        return await self._local_if_known(self._own_session)(request)

    async def _own_session(self, request: Request) -> Response:
        view = self._identifier.identify(request).view()
        return json_view(view)

    def _login_routes(self) -> list[HttpRoute]:
        paths_by_method = (
            (OIDC, OIDC_LOGIN, OIDC_CALLBACK, OIDC_LOGOUT),
            (OIDC_DEVICE, OIDC_DEVICE_TOKEN),
        )
        return [
            HttpRoute(path, guarded(self._forward), methods=[method])
            for method, paths in zip(("GET", "POST"), paths_by_method, strict=True)
            for path in paths
        ]

    async def _openapi(self, request: Request) -> Response:
        return await self._local_if_known(super()._openapi)(request)

    async def _stream(self, request: Request) -> Response:
        if not self._gateway.led:
            raise self._needs_leader("live events come from the leader;")
        until_s = time.monotonic() + SESSION_DELAY_S
        while presented_secret(request)[0] and not self._identifier.has_valid_secret(request):
            if time.monotonic() >= until_s:
                break
            await asyncio.sleep(0.1)
        return await super()._stream(request)

    def _local_if_known(self, endpoint: Endpoint) -> Endpoint:
        """Answer reads of callers that are known here; forward others, because the leader may know
        a session that has not arrived here yet."""

        async def serve(request: Request) -> Response:
            by_certificate = not presented_secret(request)[0]
            is_read = request.method in {"GET", "HEAD"}
            if is_read and (by_certificate or self._identifier.has_valid_secret(request)):
                return await endpoint(request)
            return await self._forward(request)

        return serve

    async def _of_leader(self, request: Request) -> Response:
        if not presented_secret(request)[0]:
            self._identifier.identify(request)
            if request.scope.get("state", {}).get(PEER_CERTIFICATE) is not None:
                raise self._needs_leader(
                    "a certificate proves who you are to this gateway alone; use a token, or"
                )
        return await self._forward(request)

    async def _forward(self, request: Request) -> Response:
        if not self._gateway.led:
            raise self._needs_leader(f"{request.url.path} is answered by the leader;")
        if self._forwarded >= MAX_FORWARDED:
            raise ProblemError(
                ProblemType.BUSY, f"{MAX_FORWARDED} requests wait for the leader; try again",
                {"Retry-After": "1"},
            )  # fmt: skip
        self._forwarded += 1
        try:
            body = await bounded_body(request)
            return from_leader(*await self._gateway.ask_leader(to_leader(request, body)))
        finally:
            self._forwarded -= 1

    def _needs_leader(self, why: str) -> ProblemError:
        detail = f"{why} ask {self._gateway.leader_hint}"
        return ProblemError(ProblemType.LEADER, detail, {"Retry-After": "2"})

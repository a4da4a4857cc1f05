"""The interface between the HTTP API, on its own event loop, and a controller or gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

from syntony.controller.access import Caller
from syntony.controller.access_tokens import AccessControl, AccessLookup
from syntony.controller.config import ControllerConfig
from syntony.controller.services import Services
from syntony.wire.gateways import ApiRequest
from syntony.wire.query import Query
from syntony.wire.x509 import Certificate

_T = TypeVar("_T")


async def on_loop(
    loop: asyncio.AbstractEventLoop, begin: Callable[[], Coroutine[Any, Any, _T]]
) -> _T:
    """Run a coroutine on another event loop."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(begin(), loop))


class Respond(Protocol):
    """Carries out a request, see `Dispatcher.respond`; on the controller's event loop."""

    async def __call__(
        self, query: Query[Any], who: Caller, render: Callable[[Any], list[bytes]], /
    ) -> list[bytes]: ...


class Served(Protocol):
    """A leader or a gateway, as its API uses it."""

    @property
    def access(self) -> AccessLookup: ...

    def refusal(self, certificate: Certificate) -> str: ...

    async def carry_out(
        self, query: Query[Any], who: Caller, render: Callable[[Any], list[bytes]]
    ) -> list[bytes]: ...


class ApiHub(NamedTuple):
    """A controller that leads. Implements `Served`."""

    config: ControllerConfig
    services: Services
    loop: asyncio.AbstractEventLoop
    respond: Respond
    now: Callable[[], int]
    """Fleet time, or this host's time if that is unknown."""

    @property
    def access(self) -> AccessControl:
        return self.services.access

    def refusal(self, certificate: Certificate) -> str:
        """Why a certificate is refused; empty: it is accepted."""
        return self.services.membership.enrolment.refusal(certificate)

    async def carry_out(
        self, query: Query[Any], who: Caller, render: Callable[[Any], list[bytes]]
    ) -> list[bytes]:
        """Admit the caller's certificate, if it presented one, and carry out its request; from
        another event loop. Raises as `Dispatcher.respond` and `Enrolment.admit` do."""

        async def admitted() -> list[bytes]:
            self.services.membership.enrolment.admit(who)
            return await self.respond(query, who, render)

        return await self.call(admitted)

    async def call(self, begin: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine on the controller's event loop, from another."""
        return await on_loop(self.loop, begin)


class ApiService(Protocol):
    """A controller's API: starts and stops it."""

    def start(self) -> None:
        """Begin to serve. Raises `SyntonyError`: it cannot."""

    def stop(self) -> None:
        """End every connection; blocks."""

    async def relayed(self, request: ApiRequest, via: str) -> list[bytes]:
        """Carry out a request forwarded by a gateway: head and body, in pages. On the controller's
        event loop. Raises `SyntonyError`."""

    async def events_after(self, last_id: str) -> list[bytes]:
        """Live events after a given one, as soon as there are any. On the controller's event
        loop."""


OpenApi = Callable[[ApiHub], ApiService]

"""What the HTTP API needs of a controller: it runs on an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

from syntony.controller.access import Caller
from syntony.controller.config import ControllerConfig
from syntony.controller.services import Services
from syntony.wire.query import Query

_T = TypeVar("_T")


class Respond(Protocol):
    """Carries out a request, see `Dispatcher.respond`; on the controller's event loop."""

    async def __call__(
        self, query: Query[Any], who: Caller, render: Callable[[Any], list[bytes]], /
    ) -> list[bytes]: ...


class ApiHub(NamedTuple):
    """One controller."""

    config: ControllerConfig
    services: Services
    loop: asyncio.AbstractEventLoop
    respond: Respond
    now: Callable[[], int]
    """Fleet time, or this host's before there is any."""

    async def carry_out(
        self, query: Query[Any], who: Caller, render: Callable[[Any], list[bytes]]
    ) -> list[bytes]:
        """Admit the caller's certificate, if it showed one, and carry out its request; from another
        event loop. Raises as `Dispatcher.respond` and `Enrolment.admit` do."""

        async def admitted() -> list[bytes]:
            self.services.membership.enrolment.admit(who)
            return await self.respond(query, who, render)

        return await self.call(admitted)

    async def call(self, begin: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine on the controller's event loop, from another."""
        future = asyncio.run_coroutine_threadsafe(begin(), self.loop)
        return await asyncio.wrap_future(future)


class ApiService(Protocol):
    """What a controller does with its API."""

    def start(self) -> None:
        """Begin to serve. Raises `SyntonyError`: it cannot."""

    def stop(self) -> None:
        """End every connection; blocks."""


OpenApi = Callable[[ApiHub], ApiService]

"""The interface between a gateway's HTTP API and the gateway's store and leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from syntony.controller.access import Caller
from syntony.controller.access_tokens import ReplicatedAccess
from syntony.controller.api_hub import ApiService, on_loop
from syntony.controller.config import ControllerConfig
from syntony.controller.gateway import Gateway
from syntony.errors import BusyError, UsageError
from syntony.wire.gateways import (
    ApiHead,
    ApiRequest,
    EventsAfter,
    LiveEvent,
    decode_event,
    decode_head,
)
from syntony.wire.query import Failure, Query
from syntony.wire.x509 import Certificate


class GatewayApiHub(NamedTuple):
    """One gateway. Implements `api_hub.Served`; all methods are called from another event loop."""

    config: ControllerConfig
    gateway: Gateway
    loop: asyncio.AbstractEventLoop

    @property
    def access(self) -> ReplicatedAccess:
        return self.gateway.access

    @property
    def led(self) -> bool:
        """Whether there is a leader now."""
        return self.gateway.link.connected

    @property
    def leader_hint(self) -> str:
        """The leader to ask, for error messages."""
        return self.gateway.link.leader_hint

    def refusal(self, certificate: Certificate) -> str:
        """Why a certificate is refused; empty: it is accepted."""
        try:
            self.gateway.admit_certificate(certificate)
        except UsageError as error:
            return str(error)
        return ""

    async def carry_out(
        self, query: Query[Any], who: Caller, render: Callable[[Any], list[bytes]]
    ) -> list[bytes]:
        """Answer from the store. Raises as `Dispatcher.respond` does."""
        return await on_loop(self.loop, lambda: self.gateway.respond(query, who, render))

    async def ask_leader(self, request: ApiRequest) -> tuple[ApiHead, bytes]:
        """Raises `BusyError`: there is no leader, or it does not answer."""
        first, *body = await on_loop(self.loop, lambda: self.gateway.link.ask(request)) or [b""]
        head = decode_head(first)
        if isinstance(head, Failure):
            raise BusyError(f"{self.leader_hint}: {head.reason}")
        return head, b"".join(body)

    async def events_after(self, last_id: str) -> list[LiveEvent]:
        """Raises `BusyError`: there is no leader, or it does not answer."""
        request = EventsAfter(last_id=last_id)
        found = []
        for page in await on_loop(self.loop, lambda: self.gateway.link.ask(request)):
            event = decode_event(page)
            if isinstance(event, Failure):
                raise BusyError(f"{self.leader_hint}: {event.reason}")
            found.append(event)
        return found


OpenGatewayApi = Callable[[GatewayApiHub], ApiService]

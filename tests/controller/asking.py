"""Requests put to a dispatcher without a controller."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec

from syntony.controller.access import Caller
from syntony.controller.dispatch import Dispatcher, Instant
from syntony.controller.services import Services
from syntony.wire.query import Failure, Query, answer_type, decode_answer, join_pages
from syntony.wire.roles import Identity, Role

A = TypeVar("A", bound=msgspec.Struct)
NOBODY = Caller(Identity(Role.VIEWER, "anybody"), "ipv4:10.0.0.9:1")


def services_with(**known: Any) -> Services:
    """With these desks only."""
    fields: dict[str, Any] = dict.fromkeys(Services._fields)
    return Services(**(fields | known))


def decoded(query: Query[A], pages: list[bytes]) -> A:
    """What a client makes of the pages."""
    found: list[A] = []
    for page in pages:
        answer = decode_answer(page, answer_type(type(query)))
        assert not isinstance(answer, Failure)
        found.append(answer)
    return join_pages(found)


def answer(services: Services, query: Query[A], who: Caller, *, fleet_ns: int | None) -> A:
    """The answer to one request. Raises what the dispatcher does."""

    async def ask() -> list[bytes]:
        dispatcher = Dispatcher(services, lambda: Instant(fleet_ns, fleet_ns or 0))
        try:
            return await dispatcher.carry_out(query, who)
        finally:
            dispatcher.close()

    return decoded(query, asyncio.run(ask()))

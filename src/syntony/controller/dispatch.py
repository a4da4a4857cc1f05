"""Carries out requests from all sources: checks them and limits their number, time and size.

Requests that read much run on two separate threads, so that they delay neither ingest nor
decisions. The number of requests that wait for a thread is limited too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from syntony.controller import answers, orders
from syntony.controller.access import Caller
from syntony.controller.questions import QUESTIONS, Question, RequestContext, Runs
from syntony.controller.services import Services, StoreOnly
from syntony.errors import BusyError, DeniedError
from syntony.model import format_ns
from syntony.store.engine import STATEMENT_LIMIT, StatementLimit
from syntony.wire.coding import decode
from syntony.wire.query import Query, pages

__all__ = ["QUESTIONS", "Dispatcher", "Instant", "answers", "authorise", "decode_query", "orders"]
THREADS = 2
MAX_WAITING = 32
"""Requests for one kind of thread that run or wait; further ones are refused."""
_T = TypeVar("_T")
_decoder: msgspec.msgpack.Decoder[Query[Any]] = msgspec.msgpack.Decoder(reduce(or_, QUESTIONS))


def decode_query(data: bytes) -> Query[Any]:
    """Decode a request. Raises `WireError`: it is invalid, or unknown here."""
    return decode(_decoder, data)


def authorise(query: Query[Any], who: Caller) -> Question:
    """The rules for the request. Raises `DeniedError`: the caller's role may not make it."""
    known = QUESTIONS[type(query)]
    role, name = who.identity
    if role not in known.roles:
        wanted = " or ".join(sorted(known.roles))
        article = "an" if role[0] in "aeiou" else "a"
        raise DeniedError(
            f"this needs a certificate of role {wanted}; {name!r} is {article} {role}"
        )
    return known


class Instant(NamedTuple):
    """The time at which a request is carried out; see `RequestContext`."""

    fleet_ns: int | None
    now_ns: int


class Dispatcher:
    """Checks requests, limits their number, time and size, and carries them out.

    One per controller or gateway, on its event loop.

    Args:
        services: what requests refer to; fewer for a gateway, which handles `shared` ones only.
        instant: the current time.
    """

    def __init__(self, services: Services | StoreOnly, instant: Callable[[], Instant]) -> None:
        self._services = cast("Services", services)
        self._instant = instant
        self._quick = _Threads("requests-disk", quick=True)
        self._store = _Threads("requests-store", quick=False)
        self._one_order = asyncio.Lock()
        self._order: asyncio.Task[Any] | None = None
        """The newest one: the event loop keeps no reference."""

    async def carry_out(self, query: Query[Any], who: Caller) -> list[bytes]:
        """The answer's pages. Raises as `respond` does."""
        return await self.respond(query, who, lambda answer: list(pages(answer)))

    async def respond(self, query: Query[Any], who: Caller, render: Callable[[Any], _T]) -> _T:
        """The answer.

        Args:
            render: converts it to bytes; called where the handler runs, off the event loop for
                questions.

        Raises:
            DeniedError: the caller may not ask.
            BusyError: there is too much to do, or it takes too long.
            SyntonyError: it asks for too much, or fails.
        """
        known = authorise(query, who)
        known.check(query)
        context = RequestContext(self._services, who, *self._instant())
        if known.runs is Runs.ORDERED:
            return render(await self._carry_out_alone(known.handler(context, query)))
        threads, budget_ns = self._quick, known.budget_ns
        if known.runs is Runs.LOOP:
            answer = known.handler(context, query)
            return await threads.run(lambda: render(answer), query, budget_ns)
        if known.runs is Runs.STORE:
            threads = self._store
        return await threads.run(lambda: render(known.handler(context, query)), query, budget_ns)

    async def _carry_out_alone(self, order: Coroutine[Any, Any, _T]) -> _T:
        """Carry out an order once the earlier ones are finished. If its sender stops waiting before
        it has begun, it is dropped; after that it is finished nevertheless."""
        try:
            await self._one_order.acquire()
        except asyncio.CancelledError:
            order.close()
            raise
        self._order = asyncio.create_task(order)
        self._order.add_done_callback(lambda _: self._one_order.release())
        return await asyncio.shield(self._order)

    def close(self) -> None:
        """Cancel waiting requests."""
        self._quick.close()
        self._store.close()


class _Threads:
    """A few threads with a bounded queue.

    Args:
        name: of the threads.
        quick: whether their statements to the store do not wait for those of the others.
    """

    def __init__(self, name: str, *, quick: bool) -> None:
        self._quick = quick
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=name)
        self._places = threading.BoundedSemaphore(MAX_WAITING)

    async def run(self, work: Callable[[], _T], query: Query[Any], budget_ns: int) -> _T:
        name = type(query).__name__
        if not self._places.acquire(blocking=False):
            raise BusyError(
                f"{name}: the controller is busy with {MAX_WAITING} requests like it; "
                "ask again in a while"
            )
        context = copy_context()
        limit = StatementLimit(time.monotonic_ns() + budget_ns, self._quick)
        context.run(STATEMENT_LIMIT.set, limit)
        future = self._pool.submit(context.run, work)
        future.add_done_callback(lambda _: self._places.release())
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), budget_ns / 1e9)
        except TimeoutError as error:
            raise BusyError(
                f"{name}: no answer within {format_ns(budget_ns)}; ask for a shorter window or "
                "fewer rows"
            ) from error

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

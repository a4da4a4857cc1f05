"""The registry of requests: a new request needs its messages and a decorated handler.

``@question`` and ``@order`` set the allowed role, the thread of the handler, and the limits of
size and time. The dispatcher, the allow-list and the page in the docs follow from them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from syntony.errors import UsageError
from syntony.model import DAY_NS, S
from syntony.wire.query import Query
from syntony.wire.roles import Role

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from syntony.controller.access import Caller
    from syntony.controller.services import Services
    from syntony.wire.control import Issuer

A = TypeVar("A", bound=msgspec.Struct)
READ = frozenset({Role.VIEWER, Role.OPERATOR})
ORDER = frozenset({Role.OPERATOR})
BUDGET_NS = 10 * S
"""Default time limit of a request: command lines wait this long for an answer."""
STORE_BUDGET_NS = 60 * S
"""… of one that reads the store."""
_SLACK_NS = 1 * S
"""Rows of hosts slightly ahead of the median belong to the window, too."""


class Runs(enum.Enum):
    """Where a handler runs."""

    LOOP = "event loop"
    """It only reads memory."""
    DISK = "disk"
    """A few threads for control state."""
    STORE = "store"
    """Two threads for requests that read much; their statements end with the time limit."""
    ORDERED = "order"
    """A coroutine on the event loop, one at a time; never aborted half-done."""


class RequestContext(NamedTuple):
    """One request being carried out."""

    services: Services
    who: Caller
    fleet_ns: int | None
    """Fleet time, or that of the newest stored row; None: nothing was ever measured."""
    now_ns: int
    """Fleet time, or this host's time if that is unknown."""

    def window(self, length_ns: int, end_ns: int = 0) -> tuple[int, int]:
        """Whole seconds, from this long ago to slightly after now, or of the past up to
        `end_ns`."""
        now_ns = self.fleet_ns or 0
        if 0 < end_ns < now_ns:
            return (end_ns - length_ns) // S * S, end_ns
        return (now_ns - length_ns) // S * S, now_ns + _SLACK_NS

    def measured_ns(self) -> int:
        """Fleet time. Raises `UsageError`: there is none."""
        if self.fleet_ns is None:
            raise UsageError("there is no fleet time yet; nothing has been measured")
        return self.fleet_ns


class Question(NamedTuple):
    """Properties of one kind of request."""

    request: type[Query[Any]]
    roles: frozenset[Role]
    runs: Runs
    handler: Callable[[RequestContext, Any], Any]
    budget_ns: int
    longest_ns: int
    """Maximum of its ``window_ns``; 0: it has none."""
    most: int
    """Maximum of its ``limit``; 0: it has none."""
    shared: bool = False
    """Whether its handler needs only the store: gateways answer it, too."""

    def check(self, query: Query[Any]) -> None:
        """Raises `UsageError`: it exceeds a limit."""
        name = type(query).__name__
        window_ns, limit = getattr(query, "window_ns", 0), getattr(query, "limit", 0)
        if self.longest_ns and not 0 < window_ns <= self.longest_ns:
            days = self.longest_ns / DAY_NS
            raise UsageError(f"{name}: a window of {window_ns} ns; ask for up to {days:g} days")
        if self.most and not 0 < limit <= self.most:
            raise UsageError(f"{name}: {limit} rows; ask for 1 to {self.most}")


QUESTIONS: dict[type[Query[Any]], Question] = {}
"""Every supported request; importing `syntony.controller.dispatch` registers all of them."""


def question(
    request: type[Query[A]],
    roles: frozenset[Role],
    runs: Runs,
    *,
    longest_ns: int = 0,
    most: int = 0,
    shared: bool = False,
) -> Callable[[Callable[[RequestContext, Any], A]], Callable[[RequestContext, Any], A]]:
    """Register the handler of a request without effects on others.

    Args:
        request: its type, which names the answer's.
        roles: who may make it.
        runs: where the handler runs.
        longest_ns: maximum of its ``window_ns``.
        most: maximum of its ``limit``.
        shared: the handler needs only the store (`services.StoreOnly`).
    """

    def register(handler: Callable[[RequestContext, Any], A]) -> Callable[[RequestContext, Any], A]:
        budget_ns = STORE_BUDGET_NS if runs is Runs.STORE else BUDGET_NS
        QUESTIONS[request] = Question(
            request, roles, runs, handler, budget_ns, longest_ns, most, shared
        )
        return handler

    return register


Carry = Callable[["RequestContext", Any, "Issuer"], "Coroutine[Any, Any, A]"]


def order(request: type[Query[A]]) -> Callable[[Carry[A]], Carry[A]]:
    """Register the handler of an order of operators, which changes something: one at a time."""

    def register(handler: Carry[A]) -> Carry[A]:
        async def carry_out(context: RequestContext, query: Any) -> A:
            issuer = context.who.issuer(query.by)
            return await handler(context, query, issuer)

        QUESTIONS[request] = Question(request, ORDER, Runs.ORDERED, carry_out, 0, 0, 0)
        return handler

    return register

"""Errors of HTTP requests: their RFC 9457 problem types and HTTP statuses."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from syntony.errors import BusyError, DeniedError, StateError, StoreError, SyntonyError
from syntony.wire.rest import Problem

TYPE_PREFIX = "urn:syntony:problem:"
Endpoint = Callable[[Request], Awaitable[Response]]


class ProblemType(enum.Enum):
    """Name of the problem type, and its status."""

    INVALID = ("invalid", HTTPStatus.BAD_REQUEST)
    """Unknown or wrong parameters, or a limit that is exceeded."""
    UNAUTHENTICATED = ("unauthenticated", HTTPStatus.UNAUTHORIZED)
    DENIED = ("denied", HTTPStatus.FORBIDDEN)
    CSRF = ("csrf", HTTPStatus.FORBIDDEN)
    UNKNOWN = ("unknown", HTTPStatus.NOT_FOUND)
    METHOD = ("method", HTTPStatus.METHOD_NOT_ALLOWED)
    SLOW = ("slow", HTTPStatus.REQUEST_TIMEOUT)
    CURSOR = ("cursor", HTTPStatus.GONE)
    """The rest of a paged answer has expired."""
    TOO_LARGE = ("too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    MEDIA_TYPE = ("media-type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    RATE = ("rate", HTTPStatus.TOO_MANY_REQUESTS)
    INTERNAL = ("internal", HTTPStatus.INTERNAL_SERVER_ERROR)
    STORE = ("store", HTTPStatus.BAD_GATEWAY)
    PROVIDER = ("identity-provider", HTTPStatus.BAD_GATEWAY)
    """It does not answer, or its answer violates OpenID Connect."""
    BUSY = ("busy", HTTPStatus.SERVICE_UNAVAILABLE)
    LEADER = ("leader", HTTPStatus.SERVICE_UNAVAILABLE)
    """Only the leader can answer, and this gateway has none now or cannot forward the request."""
    STATE = ("state", HTTPStatus.SERVICE_UNAVAILABLE)
    """Control state cannot be read or written."""


class ProblemError(Exception):
    """Ends a request with a problem.

    Args:
        detail: one line for a person: what is wrong and what to do.
    """

    def __init__(
        self, reason: ProblemType, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = " ".join(detail.split())
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """The response, as ``application/problem+json``."""
        name, status = self.reason.value
        problem = Problem(
            type=TYPE_PREFIX + name, title=status.phrase, status=status, detail=self.detail
        )
        return Response(
            msgspec.json.encode(problem), status, self.headers, "application/problem+json"
        )


def problem_of(error: SyntonyError) -> ProblemError:
    reason = ProblemType.INVALID
    for kind, named in (
        (DeniedError, ProblemType.DENIED),
        (BusyError, ProblemType.BUSY),
        (StateError, ProblemType.STATE),
        (StoreError, ProblemType.STORE),
    ):
        if isinstance(error, kind):
            reason = named
    return ProblemError(
        reason, str(error), {"Retry-After": "1"} if reason is ProblemType.BUSY else {}
    )


def guarded(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint: Syntony's errors become problems."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ProblemError as error:
            return error.response()
        except SyntonyError as error:
            return problem_of(error).response()
        except ClientDisconnect:
            return Response(status_code=400)

    return guarded

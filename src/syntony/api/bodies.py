"""Bodies of requests: bounded in size and in time."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from syntony.api.problems import ProblemError, ProblemType
from syntony.wire.rest import MAX_BODY_BYTES

JSON = "application/json"
BODY_TIMEOUT_S = 10.0
"""For all of a request's body to arrive."""


async def json_body(request: Request) -> bytes:
    """A JSON body. Raises `ProblemError`: another type, and as `bounded_body` does."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise ProblemError(ProblemType.MEDIA_TYPE, f"send the body as Content-Type: {JSON}")
    return await bounded_body(request)


async def bounded_body(request: Request) -> bytes:
    """A body. Raises `ProblemError`: too large, or too slow."""
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise ProblemError(
                        ProblemType.TOO_LARGE, f"a body is {MAX_BODY_BYTES >> 10} KiB at most",
                        {"Connection": "close"},
                    )  # fmt: skip
                chunks.append(chunk)
    except TimeoutError as error:
        raise ProblemError(
            ProblemType.SLOW, f"the body did not arrive within {BODY_TIMEOUT_S:g} s",
            {"Connection": "close"},
        ) from error  # fmt: skip
    return b"".join(chunks)

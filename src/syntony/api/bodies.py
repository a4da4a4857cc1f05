"""Reads bodies of requests, bounded in size and time, and writes JSON answers."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from syntony.api.problems import ProblemError, ProblemType
from syntony.wire.rest import MAX_BODY_BYTES, NEXT_CURSOR

JSON = "application/json"
BODY_TIMEOUT_S = 10.0
"""Time limit for all of a request's body."""


async def json_body(request: Request) -> bytes:
    """Read a JSON body. Raises `ProblemError`: another type, and as `bounded_body` does."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise ProblemError(ProblemType.MEDIA_TYPE, f"send the body as Content-Type: {JSON}")
    return await bounded_body(request)


async def bounded_body(request: Request) -> bytes:
    """Read a body. Raises `ProblemError`: it is too large, or too slow."""
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


def json_answer(pages: list[bytes], next_cursor: str = "") -> Response:
    headers = {"Cache-Control": "no-store"}
    if next_cursor:
        headers[NEXT_CURSOR] = next_cursor
    return Response(pages[0], headers=headers, media_type=JSON)


def json_view(view: msgspec.Struct) -> Response:
    return json_answer([msgspec.json.encode(view)])

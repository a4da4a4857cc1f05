"""Requests to a controller, and their answers page by page.

A request names the type of its answer: ``class MatrixQuery(Query["Matrix"], …)``. An answer that is
larger than a page is sent as several messages of its type, each with some of its rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, ForwardRef, Generic, TypeVar, get_args

import msgspec

from syntony.errors import WireError
from syntony.wire.coding import decode, encode

PAGE_BYTES = 4 << 20
"""Maximum size of one message of an answer, unless a single row is larger."""
MAX_ANSWER_BYTES = 512 << 20
A = TypeVar("A", bound=msgspec.Struct)


class Query(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """A request or an order; the type argument is the type of its answer."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """The request was not carried out; the reason is one line for operators."""

    reason: str


@cache
def answer_type(kind: type[Query[A]]) -> type[A]:
    """The answer's type of a kind of request."""
    (base,) = kind.__orig_bases__  # type: ignore[attr-defined]
    (answer,) = get_args(base)
    if isinstance(answer, ForwardRef):
        answer = vars(sys.modules[kind.__module__])[answer.__forward_arg__]
    return answer  # type: ignore[no-any-return]


@cache
def _decoder(kind: type[msgspec.Struct]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind | Failure)


def decode_answer(data: bytes, kind: type[A]) -> A | Failure:
    """Decode one page of an answer of a kind. Raises `WireError`."""
    answer: A | Failure = decode(_decoder(kind), data)
    return answer


def pages(answer: msgspec.Struct) -> Iterator[bytes]:
    """Divide an answer into messages of at most about `PAGE_BYTES`. Raises `WireError`: it is
    larger than `MAX_ANSWER_BYTES`."""
    data = encode(answer)
    if len(data) > MAX_ANSWER_BYTES:
        raise WireError(
            f"an answer of {len(data) >> 20} MiB is over the limit of {MAX_ANSWER_BYTES >> 20}; "
            "ask for less"
        )
    return _split(answer, data)


def _split(answer: msgspec.Struct, data: bytes) -> Iterator[bytes]:
    rows = {name: getattr(answer, name) for name in row_fields(type(answer))}
    longest = max(rows, key=lambda name: len(rows[name]), default="")
    count = len(rows[longest]) if longest else 0
    if len(data) <= PAGE_BYTES or count < 2:
        yield data
        return
    # The first half keeps the other rows: what is joined is in the order of the whole.
    half = count // 2
    rest = dict.fromkeys(rows, ()) | {longest: rows[longest][half:]}
    for part in ({longest: rows[longest][:half]}, rest):
        piece = msgspec.structs.replace(answer, **part)
        yield from _split(piece, encode(piece))


def join_pages(answers: Iterable[A]) -> A:
    """Join the pages of an answer, in order; there is at least one."""
    found = list(answers)
    if len(found) == 1:
        return found[0]
    rows = {
        name: tuple(row for answer in found for row in getattr(answer, name))
        for name in row_fields(type(found[0]))
    }
    return msgspec.structs.replace(found[0], **rows)


@cache
def row_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Names of the fields that hold rows."""
    return tuple(
        field.name
        for field in msgspec.structs.fields(kind)
        if get_args(field.type)[1:] == (Ellipsis,)
    )

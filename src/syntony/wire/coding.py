"""Encodes and decodes messages as msgpack, bounded in size."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from syntony.errors import WireError

MAX_MESSAGE_BYTES = 16 << 20
_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode


def encode(message: msgspec.Struct) -> bytes:
    return _encode(message)


def decode(decoder: msgspec.msgpack.Decoder[_T], data: bytes, limit: int = MAX_MESSAGE_BYTES) -> _T:
    """Decode a peer's message. Raises `WireError`: it is invalid."""
    if len(data) > limit:
        raise WireError(f"message of {len(data)} bytes is over the limit of {limit}")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WireError(f"not a message of this protocol: {error}") from error

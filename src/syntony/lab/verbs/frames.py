"""The protocol for running commands in a guest: frames over TCP."""

from __future__ import annotations

import asyncio
import enum
import struct
from typing import Annotated

import msgspec

PORT = 7007
HEAD = struct.Struct("!BI")
MAX_FRAME = 1 << 20
CHUNK = 1 << 16


class FrameKind(enum.IntEnum):
    """First byte of a frame; four of length and the body follow."""

    RUN = 0
    """`RunOrder`, JSON."""
    INPUT = 1
    """Empty: its end."""
    SIGNAL = 2
    """One byte."""
    OUTPUT = 3
    ERRORS = 4
    ENDED = 5
    """Exit status, one byte: 128 and the signal's number for a killed one."""


class RunOrder(msgspec.Struct, frozen=True):
    argv: Annotated[list[str], msgspec.Meta(min_length=1)]
    env: dict[str, str]
    cwd: str = "/"


def frame(kind: FrameKind, body: bytes = b"") -> bytes:
    return HEAD.pack(kind, len(body)) + body


async def read(stream: asyncio.StreamReader) -> tuple[FrameKind, bytes]:
    """The next frame.

    Raises:
        EOFError: the other side has gone (`asyncio.IncompleteReadError`).
        ValueError: not a frame.
    """
    kind, length = HEAD.unpack(await stream.readexactly(HEAD.size))
    if length > MAX_FRAME:
        raise ValueError(f"a frame of {length} bytes")
    return FrameKind(kind), await stream.readexactly(length)

"""The agent's spool on disk: segments of framed records, and a small state file.

A segment is the magic line and then frames, each ``crc32 · payload length · seq · rows · table-name
length`` (little-endian) followed by the name and the payload. The CRC covers everything after
itself, so a frame cut short by a crash, or a byte gone wrong, ends the segment there.

The state file is two fixed slots written in turn, in place: it needs no new disk block, so that an
acknowledgement can be noted when the disk is full, and a torn write leaves the other slot.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from syntony.wire.messages import MAX_MESSAGE_BYTES

SEGMENT_MAGIC = b"syntony-spool-1\n"
_HEADER = struct.Struct("<IIQIH")
_SLOT = struct.Struct("<IQQQ16s")
SLOT_BYTES = 64
MAX_NAME_BYTES = 255


class Frame(NamedTuple):
    """One spooled batch."""

    seq: int
    table: str
    rows: int
    payload: bytes


class SpoolState(NamedTuple):
    """What outlives the segments themselves."""

    generation: int
    acknowledged: int
    dropped_rows: int
    stream: bytes
    """16 random bytes: the identity of this spool."""


def pack_frame(frame: Frame) -> bytes:
    """A frame as it stands in a segment. Raises ValueError if a field is out of range."""
    name = frame.table.encode()
    if len(name) > MAX_NAME_BYTES or len(frame.payload) > MAX_MESSAGE_BYTES:
        raise ValueError(f"{frame.table[:80]}: {len(frame.payload)} bytes do not fit a frame")
    head = _HEADER.pack(0, len(frame.payload), frame.seq, frame.rows, len(name))
    body = head[4:] + name + frame.payload
    return struct.pack("<I", zlib.crc32(body)) + body


def read_frame(data: bytes, offset: int = 0) -> tuple[Frame, int] | None:
    """The frame at `offset` and the offset after it; None where no whole, intact frame stands."""
    if offset + _HEADER.size > len(data):
        return None
    crc, length, seq, rows, name_length = _HEADER.unpack_from(data, offset)
    name_at = offset + _HEADER.size
    payload_at = name_at + name_length
    end = payload_at + length
    if length > MAX_MESSAGE_BYTES or end > len(data):
        return None
    if zlib.crc32(memoryview(data)[offset + 4 : end]) != crc:
        return None
    try:
        name = data[name_at:payload_at].decode()
    except UnicodeDecodeError:
        return None
    return Frame(seq, name, rows, bytes(data[payload_at:end])), end


def read_segment(data: bytes) -> Iterator[tuple[Frame, int, int]]:
    """(frame, its offset, offset after it) up to the first that is torn or damaged."""
    if not data.startswith(SEGMENT_MAGIC):
        return
    offset = len(SEGMENT_MAGIC)
    while (found := read_frame(data, offset)) is not None:
        frame, end = found
        yield frame, offset, end
        offset = end


def pack_state(state: SpoolState) -> bytes:
    """One slot of the state file, `SLOT_BYTES` long."""
    body = _SLOT.pack(0, *state)[4:]
    return (struct.pack("<I", zlib.crc32(body)) + body).ljust(SLOT_BYTES, b"\0")


def read_state(data: bytes) -> SpoolState | None:
    """The newest intact slot of a state file, or None."""
    slots = (data[:SLOT_BYTES], data[SLOT_BYTES : 2 * SLOT_BYTES])
    states = [state for slot in slots if (state := _read_slot(slot)) is not None]
    return max(states, default=None)


def _read_slot(slot: bytes) -> SpoolState | None:
    if len(slot) < _SLOT.size:
        return None
    crc, *fields = _SLOT.unpack_from(slot)
    if zlib.crc32(slot[4 : _SLOT.size]) != crc:
        return None
    return SpoolState(*fields)

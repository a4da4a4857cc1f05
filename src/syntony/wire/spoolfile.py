"""The agent's spool on disk: segments of framed records, and a small state file.

A segment is the magic line and then frames, each ``crc32 · payload length · seq · rows · table-name
length`` (little-endian) followed by the name and the payload. The CRC covers everything after
itself; a frame cut short by a crash, or a byte gone wrong, costs that frame, and is counted.

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
_SEQ_AT = 8
"""Where a frame's number stands in its header."""
_MAX_BRIDGED = 64
"""Consecutive frames that may be damaged before the rest of a segment is given up."""


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


class Entry(NamedTuple):
    """One number's place in a segment."""

    seq: int
    rows: int
    """Of a lost frame what its header says, at least 1."""
    start: int
    end: int
    intact: bool


def index_segment(data: bytes, first_seq: int) -> Iterator[Entry]:
    """Every number from `first_seq` to the segment's last readable frame.

    Frames are numbered one after the other, so damage in the middle is bridged: the next intact
    frame is found by its number, and the numbers between are reported as lost. Damage at the end,
    for example a frame that a crash cut short, is reported as one lost frame if its header names
    the next number.
    """
    offset, seq = len(SEGMENT_MAGIC), first_seq
    while offset < len(data):
        found = read_frame(data, offset)
        if found is not None and found[0].seq == seq:
            frame, end = found
            yield Entry(seq, frame.rows, offset, end, intact=True)
            offset, seq = end, seq + 1
            continue
        after = _next_intact(data, offset + 1, seq + 1)
        if after is None:
            if (rows := _claimed_rows(data, offset, seq)) is not None:
                yield Entry(seq, rows, offset, len(data), intact=False)
            return
        place, next_seq = after
        for lost in range(seq, next_seq):
            rows = _claimed_rows(data, offset, lost) or 1
            yield Entry(lost, rows, offset, place, intact=False)
            offset = place
        seq = next_seq


def _next_intact(data: bytes, start: int, seq: int) -> tuple[int, int] | None:
    """Offset and number of the first intact frame after damage, numbered `seq` or a little more."""
    for number in range(seq, seq + _MAX_BRIDGED):
        needle = struct.pack("<Q", number)
        place = data.find(needle, start + _SEQ_AT)
        while place >= 0:
            found = read_frame(data, place - _SEQ_AT)
            if found is not None and found[0].seq == number:
                return place - _SEQ_AT, number
            place = data.find(needle, place + 1)
    return None


def _claimed_rows(data: bytes, offset: int, seq: int) -> int | None:
    """Rows of a damaged frame as its header has them; None if its number is damaged too. A row
    takes a byte at least: more rows than that are damage as well."""
    if offset + _HEADER.size > len(data):
        return None
    _, length, claimed, rows, _ = _HEADER.unpack_from(data, offset)
    return max(1, min(rows, length, len(data) - offset)) if claimed == seq else None


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

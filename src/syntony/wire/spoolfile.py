"""The agent's spool on disk: segments of framed records, and a small state file.

A segment is a header, which names the stream that its frames belong to, and then frames, each
``crc32 · payload length · seq · rows · table-name length`` (little-endian) followed by the name and
the payload. The CRC covers everything after itself; a frame cut short by a crash, or a byte gone
wrong, costs that frame, and is counted.

The state file is two fixed slots written in turn, in place: it needs no new disk block, so that an
acknowledgement can be noted when the disk is full, and a torn write leaves the other slot. A slot
ends with the rows that wait and a CRC of the whole, which the version before neither writes nor
reads.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from syntony.wire.coding import MAX_MESSAGE_BYTES

SEGMENT_BYTES = 16
"""Size of a segment's header."""
_MAGIC = b"syntony2"
STREAM_BYTES = SEGMENT_BYTES - len(_MAGIC)
DRAWN_BYTES = STREAM_BYTES - 4
_HEADER = struct.Struct("<IIQIH")
_SLOT = struct.Struct("<IQQQ16s")
_LEDGER = struct.Struct("<QI")
_CRC, _FRAME = struct.Struct("<I"), struct.Struct("<IQIH")
_STATE, _WAITING = struct.Struct("<QQQ16s"), struct.Struct("<Q")
"""`_HEADER`, `_SLOT` and `_LEDGER` without the CRC that they begin or end with."""
SLOT_BYTES = 64
MAX_NAME_BYTES = 255
_MENDED_BITS = 2
"""Maximum number of wrong bits that are corrected. The CRC of such a short name could correct more,
but each bit multiplies the number of attempts by 30."""
_SEQ_AT = 8
"""Offset of a frame's number in its header."""


class Frame(NamedTuple):
    seq: int
    table: str
    rows: int
    payload: bytes


class SpoolState(NamedTuple):
    """State of a spool in addition to its segments."""

    generation: int
    acknowledged: int
    dropped_rows: int
    stream: bytes
    """16 random bytes: the stream of segments without a stream in their header."""
    waiting_rows: int | None = None
    """Rows that were appended and neither acknowledged nor dropped, and so must be in the segments.
    None: written by an earlier version."""


def pack_header(stream: str) -> bytes:
    """Encode a segment's header. Raises ValueError: the stream is not 16 hexadecimal digits."""
    identity = bytes.fromhex(stream)
    if len(identity) != STREAM_BYTES:
        raise ValueError(f"{stream[:80]!r} is not a stream of this version")
    return _MAGIC + identity


def name_stream(drawn: bytes) -> str:
    """The name of a stream: `DRAWN_BYTES` random bytes and their CRC, which reveals a damaged
    name."""
    return (drawn + struct.pack("<I", zlib.crc32(drawn))).hex()


def read_stream(data: bytes) -> str | None:
    """Read the stream from a segment's header; None: it has none, as in version 1.

    Up to `_MENDED_BITS` wrong bits of the name are mended, whatever is wrong before it. A name that
    no such mending fits to its CRC is taken as it is: the version before gave them none.
    """
    header = data[:SEGMENT_BYTES]
    read = int.from_bytes(header[len(_MAGIC) :])
    for count in range(_MENDED_BITS + 1):
        for places in combinations(range(8 * STREAM_BYTES), count):
            tried = read ^ sum(1 << place for place in places)
            stream = name_stream(tried.to_bytes(STREAM_BYTES)[:DRAWN_BYTES])
            if int(stream, 16) == tried:
                return stream
    return header[len(_MAGIC) :].hex() if header.startswith(_MAGIC) else None


def pack_frame(frame: Frame) -> bytes:
    """Encode a frame. Raises ValueError: a field is out of range."""
    name = frame.table.encode()
    if len(name) > MAX_NAME_BYTES or len(frame.payload) > MAX_MESSAGE_BYTES:
        raise ValueError(f"{frame.table[:80]}: {len(frame.payload)} bytes do not fit a frame")
    head = _FRAME.pack(len(frame.payload), frame.seq, frame.rows, len(name)) + name
    return b"".join((_CRC.pack(zlib.crc32(frame.payload, zlib.crc32(head))), head, frame.payload))


def read_frame(data: bytes, offset: int = 0) -> tuple[Frame, int] | None:
    """Read the frame at `offset`, and the offset after it; None: there is no intact frame."""
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
    """Position of one frame in a segment."""

    seq: int
    rows: int
    """Number of rows; 0 for a lost frame."""
    start: int
    end: int
    intact: bool


def index_segment(data: bytes, first_seq: int) -> Iterator[Entry]:
    """Index every frame number from `first_seq` to the segment's last frame.

    Frames are numbered one after the other, so damage in the middle is bridged: the next intact
    frame is found by its number, and the numbers between are reported as lost. Whatever follows
    the last intact frame, for example a frame that a crash cut short, is reported as one lost
    frame: how many there were can no longer be known.
    """
    offset, seq = SEGMENT_BYTES, first_seq
    while offset < len(data):
        found = read_frame(data, offset)
        if found is not None and found[0].seq == seq:
            frame, end = found
            yield Entry(seq, frame.rows, offset, end, intact=True)
            offset, seq = end, seq + 1
            continue
        place, next_seq = _next_intact(data, offset, seq + 1) or (len(data), seq + 1)
        for lost in range(seq, next_seq):
            yield Entry(lost, 0, offset, place, intact=False)
            offset = place
        seq = next_seq


def _next_intact(data: bytes, start: int, seq: int) -> tuple[int, int] | None:
    """Offset and number of the first intact frame at or after `start`. Its number is at least
    `seq`, and not larger than the skipped bytes allow."""
    found: list[int] = []
    for shift in range(8):
        numbers = np.frombuffer(data, "<i8", (len(data) - shift) // 8, shift)
        room = seq + np.arange(shift, shift + 8 * len(numbers), 8) // _HEADER.size
        places = np.flatnonzero((numbers >= seq) & (numbers <= room)) * 8 + shift - _SEQ_AT
        found += places[places >= start].tolist()
    for place in sorted(found):
        frame = read_frame(data, place)
        if frame is not None:
            return place, frame[0].seq
    return None


def pack_state(state: SpoolState) -> bytes:
    """Encode one slot of the state file, `SLOT_BYTES` long."""
    *fields, waiting_rows = state
    body = _STATE.pack(*fields)
    slot = _CRC.pack(zlib.crc32(body)) + body
    if waiting_rows is not None:
        slot += _WAITING.pack(waiting_rows)
        slot += _CRC.pack(zlib.crc32(slot))
    return slot.ljust(SLOT_BYTES, b"\0")


def read_state(data: bytes) -> SpoolState | None:
    """Read the newest intact slot of a state file, or None."""
    slots = (data[:SLOT_BYTES], data[SLOT_BYTES : 2 * SLOT_BYTES])
    states = [state for slot in slots if (state := _read_slot(slot)) is not None]
    return max(states, default=None, key=lambda state: state.generation)


def _read_slot(slot: bytes) -> SpoolState | None:
    if len(slot) < _SLOT.size:
        return None
    crc, *fields = _SLOT.unpack_from(slot)
    if zlib.crc32(slot[4 : _SLOT.size]) != crc:
        return None
    found, end = SpoolState(*fields), _SLOT.size + _LEDGER.size
    if len(slot) >= end:
        waiting_rows, whole = _LEDGER.unpack_from(slot, _SLOT.size)
        if zlib.crc32(slot[: end - 4]) == whole:
            return found._replace(waiting_rows=waiting_rows)
    return found

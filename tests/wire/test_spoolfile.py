"""The spool's bytes: whole frames come back, whatever is torn or damaged beside them."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.wire.coding import MAX_MESSAGE_BYTES
from syntony.wire.spoolfile import (
    DRAWN_BYTES,
    MAX_NAME_BYTES,
    SEGMENT_BYTES,
    SLOT_BYTES,
    Entry,
    Frame,
    SpoolState,
    index_segment,
    name_stream,
    pack_frame,
    pack_header,
    pack_state,
    read_frame,
    read_state,
    read_stream,
)

FRAMES = st.builds(
    Frame, st.integers(0, 2**64 - 1), st.text(max_size=60), st.integers(0, 2**32 - 1),
    st.binary(max_size=200),
)  # fmt: skip
_U64 = st.integers(0, 2**64 - 1)
STATES = st.builds(
    SpoolState, *[_U64] * 3, st.binary(min_size=16, max_size=16), st.one_of(st.none(), _U64)
)


@given(st.lists(FRAMES, max_size=6), st.integers(0, 2**60), st.data())
def test_of_a_cut_or_damaged_segment_every_whole_frame_is_found(
    drawn: list[Frame], first: int, data: st.DataObject
) -> None:
    frames = [frame._replace(seq=first + k) for k, frame in enumerate(drawn)]
    packed = [pack_frame(frame) for frame in frames]
    ends = [SEGMENT_BYTES]
    for each in packed:
        ends.append(ends[-1] + len(each))
    segment = pack_header("0123456789abcdef") + b"".join(packed)
    assert list(index_segment(segment, first)) == [
        Entry(frame.seq, frame.rows, begin, end, intact=True)
        for frame, (begin, end) in zip(frames, pairwise(ends), strict=True)
    ]
    places = list(pairwise(ends))
    assert [read_frame(segment, begin) for begin, _ in places] == [
        (frame, end) for frame, (_, end) in zip(frames, places, strict=True)
    ]

    def whole(of: bytes) -> list[tuple[int, int]]:
        return [(e.start, e.end) for e in index_segment(of, first) if e.intact]

    cut = data.draw(st.integers(SEGMENT_BYTES, len(segment)))
    assert whole(segment[:cut]) == [place for place in places if place[1] <= cut]
    if frames:
        wrong = data.draw(st.integers(SEGMENT_BYTES, len(segment) - 1))
        damaged = bytearray(segment)
        damaged[wrong] ^= 1 << data.draw(st.integers(0, 7))
        assert whole(bytes(damaged)) == [(a, b) for a, b in places if not a <= wrong < b]


def test_a_frame_is_laid_out_as_its_page_says() -> None:
    """crc32, payload length, sequence, rows, length of the name; little-endian, then both."""
    packed = pack_frame(Frame(7, "probe_1s", 3, b"payload"))
    crc, length, seq, rows, name = struct.unpack_from("<IIQIH", packed)
    assert (length, seq, rows, name) == (7, 7, 3, 8)
    assert packed[22:] == b"probe_1spayload"
    assert crc == zlib.crc32(packed[4:])


def test_a_segment_names_its_stream() -> None:
    assert pack_header("00ff00ff00ff00ff") == b"syntony2" + b"\0\xff" * 4
    assert read_stream(pack_header("00ff00ff00ff00ff") + b"frames") == "00ff00ff00ff00ff"
    assert read_stream(b"syntony-spool-1\n") is None
    assert read_stream(b"") is None
    with pytest.raises(ValueError, match="not a stream of this version"):
        pack_header("00ff")


def test_what_is_too_long_for_a_frame() -> None:
    longest = Frame(1, "n" * MAX_NAME_BYTES, 1, b"")
    assert read_frame(pack_frame(longest)) == (longest, 22 + MAX_NAME_BYTES)
    with pytest.raises(ValueError, match="do not fit"):
        pack_frame(longest._replace(table="n" * (MAX_NAME_BYTES + 1)))
    payload = bytes(MAX_MESSAGE_BYTES)
    found = read_frame(pack_frame(Frame(1, "n", 1, payload)))
    assert found is not None
    with pytest.raises(ValueError, match="do not fit"):
        pack_frame(Frame(1, "n", 1, payload + b"x"))
    head = struct.pack("<IQIH", MAX_MESSAGE_BYTES + 1, 1, 1, 0)
    body = head + bytes(MAX_MESSAGE_BYTES + 1)
    assert read_frame(struct.pack("<I", zlib.crc32(body)) + body) is None
    unreadable = struct.pack("<IQIH", 0, 1, 1, 1) + b"\xff"
    assert read_frame(struct.pack("<I", zlib.crc32(unreadable)) + unreadable) is None


@given(st.lists(STATES, min_size=2, max_size=2, unique_by=lambda each: each.generation), st.data())
def test_a_torn_slot_leaves_the_other_and_of_two_the_newer_counts(
    states: list[SpoolState], data: st.DataObject
) -> None:
    old, new = sorted(states)
    slots = [pack_state(state) for state in (old, new)]
    assert [len(slot) for slot in slots] == [SLOT_BYTES, SLOT_BYTES]
    assert read_state(b"".join(slots)) == read_state(b"".join(slots[::-1])) == new
    assert read_state(slots[0]) == old
    ledger, used = 4 + 3 * 8 + 16, 4 + 3 * 8 + 16 + 12
    torn = data.draw(st.integers(0, SLOT_BYTES - 1))
    broken = bytearray(slots[1])
    broken[torn] ^= 0x40
    expected = new if torn >= used else new._replace(waiting_rows=None) if torn >= ledger else old
    assert read_state(slots[0] + bytes(broken)) == expected
    assert read_state(bytes(broken) + slots[0]) == expected
    assert read_state(slots[0][: ledger - 1]) is None
    assert read_state(slots[0][: used - 1]) == old._replace(waiting_rows=None)
    assert read_state(slots[0][:used]) == old
    assert read_state(b"") is None


@given(
    st.binary(min_size=DRAWN_BYTES, max_size=DRAWN_BYTES),
    st.sets(st.integers(0, 63), max_size=2),
    st.sets(st.integers(64, 127), max_size=9),
)
def test_wrong_bits_of_a_header_are_mended(
    drawn: bytes, of_name: set[int], before: set[int]
) -> None:
    """One once gave a segment's batches another name: the store may have had them under theirs."""
    stream = name_stream(drawn)
    header = int.from_bytes(pack_header(stream)) ^ sum(1 << bit for bit in of_name | before)
    assert read_stream(header.to_bytes(SEGMENT_BYTES) + b"frames") == stream

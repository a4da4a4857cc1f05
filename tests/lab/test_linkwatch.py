"""Netlink bytes to link states: real messages, and anything at all."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from syntony.lab.linkwatch import LinkState, parse

UP, CARRIER, NEW, DEL = 0x1, 0x10000, 16, 17


def message(kind: int, index: int, flags: int, attributes: bytes = b"") -> bytes:
    body = struct.pack("=BxHiII", 0, 1, index, flags, 0) + attributes
    data = struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body
    return data + bytes(-len(data) % 4)


def test_only_up_with_carrier_is_up() -> None:
    states = [(UP | CARRIER, True), (UP, False), (CARRIER, False), (0, False)]
    data = b"".join(message(NEW, 7 + i, flags) for i, (flags, _) in enumerate(states))
    assert list(parse(data)) == [LinkState(7 + i, up) for i, (_, up) in enumerate(states)]


def test_a_deleted_link_is_down_and_other_messages_are_skipped() -> None:
    data = message(20, 1, UP | CARRIER) + message(DEL, 5, UP | CARRIER, b"abc")
    assert list(parse(data + message(NEW, 6, UP | CARRIER))) == [
        LinkState(5, False),
        LinkState(6, True),
    ]


def test_a_truncated_message_ends_the_parse() -> None:
    data = message(NEW, 5, UP | CARRIER)
    assert list(parse(data + data[:-1])) == [LinkState(5, True)]


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    assert len(list(parse(data))) <= len(data) // 32 + 1


@given(st.binary(max_size=64), st.integers(0, 63), st.integers(0, 255))
def test_a_damaged_message_never_raises(tail: bytes, place: int, value: int) -> None:
    data = bytearray(message(NEW, 9, UP | CARRIER, tail[:16]) + message(DEL, 9, 0) + tail)
    data[place] = value
    list(parse(bytes(data)))

"""Bytes that say they are netlink: parsed, or refused by name."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from syntony.errors import WireError
from syntony.io import netlink, rtnetlink

KINDS = st.integers(1, 60)
VALUES = st.binary(max_size=20)


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    with contextlib.suppress(WireError):
        for message in netlink.messages(data):
            netlink.error_of(message)


@given(st.binary(max_size=120))
def test_any_payload_is_parsed_or_refused(payload: bytes) -> None:
    for parse in (rtnetlink.parse_link, rtnetlink.parse_address):
        with contextlib.suppress(WireError):
            parse(payload)


@given(st.dictionaries(KINDS, VALUES, max_size=8))
def test_attributes_come_back(values: dict[int, bytes]) -> None:
    payload = b"head" + b"".join(netlink.attribute(kind, value) for kind, value in values.items())
    assert netlink.attributes(payload, 4) == values


@given(st.lists(st.tuples(st.integers(16, 99), VALUES), max_size=5))
def test_messages_come_back(sent: list[tuple[int, bytes]]) -> None:
    parts = [netlink.request(kind, 0, seq, payload) for seq, (kind, payload) in enumerate(sent)]
    data = b"".join(part + bytes(-len(part) % 4) for part in parts)
    got = [(message.type, message.payload) for message in netlink.messages(data)]
    assert got == sent

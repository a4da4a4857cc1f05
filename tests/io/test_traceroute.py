"""Answers off a raw socket: only what quotes a packet of ours counts."""

from __future__ import annotations

import socket
import struct

from hypothesis import given
from hypothesis import strategies as st

from syntony.fabric.learn import Ask, FlowKey
from syntony.io.traceroute import _packet, _same, parse_time_exceeded

FLOW = FlowKey("rail0", "10.0.0.1", "10.0.1.1", 61003, 8620)
ASK = Ask(FLOW, 2)


def answer(packet: bytes, *, kind: int = 11, code: int = 0) -> bytes:
    """What a router at 10.9.9.9 sends back about `packet`: its header and 8 bytes (RFC 792)."""
    icmp = struct.pack("!BBHI", kind, code, 0, 0) + packet[:28]
    header = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(icmp), 0, 0, 64, 1, 0,
        socket.inet_aton("10.9.9.9"), socket.inet_aton(FLOW.src),
    )  # fmt: skip
    return header + icmp


def test_an_answer_quotes_flow_and_secret() -> None:
    quoted = parse_time_exceeded(answer(_packet(ASK, 4711, 815)))
    assert quoted is not None
    assert (quoted.router, quoted.identification) == ("10.9.9.9", 4711)
    assert quoted.secret & 0xFFFF == 815
    assert _same(ASK, quoted)
    assert not _same(Ask(FLOW._replace(sport=61004), 2), quoted)


def test_a_tcp_flow_is_asked_for_as_tcp() -> None:
    ask = Ask(FLOW._replace(proto="tcp", dport=8621), 2)
    quoted = parse_time_exceeded(answer(_packet(ask, 4711, 1 << 31)))
    assert quoted is not None
    assert (quoted.identification, quoted.secret) == (4711, 1 << 31)
    assert _same(ask, quoted)
    assert not _same(Ask(ask.flow._replace(proto="udp"), 2), quoted)


def test_other_errors_are_not_answers() -> None:
    packet = _packet(ASK, 1, 2)
    assert parse_time_exceeded(answer(packet, kind=3, code=3)) is None
    assert parse_time_exceeded(answer(packet, code=1)) is None
    assert parse_time_exceeded(answer(packet[:24])) is None


@given(st.binary(max_size=80))
def test_any_bytes_are_digested(data: bytes) -> None:
    parse_time_exceeded(data)
    parse_time_exceeded(answer(data))

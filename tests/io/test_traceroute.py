"""Answers off a raw socket: only what quotes a packet of ours, whole, counts. Both families."""

from __future__ import annotations

import ipaddress
import random
import socket
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.fabric.learn import ANSWER_NS, FlowKey, HopQuery
from syntony.io.trace_packets import (
    Quoted,
    is_about,
    make_packet,
    parse_time_exceeded,
    parse_time_exceeded6,
)
from syntony.io.traceroute import HopReply, Traceroute

FLOW = FlowKey("rail0", "10.0.0.1", "10.0.1.1", 61003, 8620)
FLOW6 = FlowKey("rail0", "fd73::1", "fd73:0:0:1::1", 61003, 8620, label=0xABCDE)
ROUTER, ROUTER6 = "10.9.9.9", "fd73::9"
FLOWS = [
    pytest.param(flow, id=f"{family}-{flow.proto}")
    for family, base in (("ipv4", FLOW), ("ipv6", FLOW6))
    for flow in (base, base._replace(proto="tcp", dport=8621))
]


def is6(flow: FlowKey) -> bool:
    return ":" in flow.src


def error(flow: FlowKey, quote: bytes, *, kind: int = 0, code: int = 0) -> bytes:
    """What a router sends back, as the raw socket of the flow's family shows it."""
    icmp = struct.pack("!BBHI", kind or (3 if is6(flow) else 11), code, 0, 0) + quote
    if is6(flow):
        return icmp
    header = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(icmp), 0, 0, 64, 1, 0,
        socket.inet_aton(ROUTER), socket.inet_aton(FLOW.src),
    )  # fmt: skip
    return header + icmp


def parsed(flow: FlowKey, data: bytes, router: str = ROUTER6) -> Quoted | None:
    return parse_time_exceeded6(data, router) if is6(flow) else parse_time_exceeded(data)


def quotable(flow: FlowKey, packet: bytes) -> bytes:
    """What routers must quote at least: RFC 792 the header and 8 bytes, RFC 4443 all of it."""
    return packet if is6(flow) else packet[:28]


@pytest.mark.parametrize("flow", FLOWS)
def test_an_answer_quotes_flow_and_secret(flow: FlowKey) -> None:
    ask = HopQuery(flow, 2)
    packet, secret = make_packet(ask)
    quoted = parsed(flow, error(flow, quotable(flow, packet)))
    assert quoted is not None
    assert quoted.router == (ROUTER6 if is6(flow) else ROUTER)
    assert quoted.secret == secret
    assert 0 not in secret
    assert is_about(ask, quoted)
    others: list[dict[str, Any]] = [
        {"sport": 61004}, {"dport": 9}, {"proto": "tcp" if flow.proto == "udp" else "udp"},
        {"src": flow.dst}, {"dst": flow.src}, {"label": 7},
    ]  # fmt: skip
    assert not any(is_about(HopQuery(flow._replace(**each), 2), quoted) for each in others)


@pytest.mark.parametrize("flow", FLOWS)
def test_no_two_packets_have_one_secret_and_all_have_the_flows_headers(flow: FlowKey) -> None:
    made = [make_packet(HopQuery(flow, ttl)) for ttl in range(1, 65)]
    assert len({secret for _, secret in made}) == len(made)
    for ttl, (packet, _) in enumerate(made, start=1):
        start = 40 if is6(flow) else 20
        assert struct.unpack_from("!HH", packet, start) == (flow.sport, flow.dport)
        if is6(flow):
            first, length, number, limit = struct.unpack_from("!IHBB", packet)
            assert (first, length) == (6 << 28 | flow.label, len(packet) - 40)
        else:
            _, _, length, _, _, limit, number = struct.unpack_from("!BBHHHBB", packet)
            assert length == len(packet)
        assert (limit, number) == (ttl, 6 if flow.proto == "tcp" else 17)


def test_an_address_is_the_same_however_it_is_written() -> None:
    ask = HopQuery(FLOW6._replace(src="FD73:0::0001", dst="fd73::1:0:0:0:1"), 1)
    quoted = parsed(FLOW6, error(FLOW6, make_packet(ask)[0]))
    assert quoted is not None
    assert (quoted.src, quoted.dst) == ("fd73::1", str(ipaddress.ip_address(FLOW6.dst)))
    assert is_about(ask, quoted)


@pytest.mark.parametrize("flow", FLOWS)
def test_other_errors_are_not_answers(flow: FlowKey) -> None:
    packet = quotable(flow, make_packet(HopQuery(flow, 1))[0])
    unreachable = 1 if is6(flow) else 3
    assert parsed(flow, error(flow, packet, kind=unreachable, code=3)) is None
    assert parsed(flow, error(flow, packet, code=1)) is None
    least = 52 if is6(flow) else 28
    assert parsed(flow, error(flow, packet[: least - 1])) is None
    assert parsed(flow, error(flow, packet[:least])) is not None


@pytest.mark.parametrize("router", ["fe80::1%eth0", "fe80::1", "ff02::1", "::", "no address"])
def test_who_has_no_address_of_its_own_is_nobody(router: str) -> None:
    """Every router of a fabric may be ``fe80::1``."""
    packet, _ = make_packet(HopQuery(FLOW6, 1))
    assert parsed(FLOW6, error(FLOW6, packet), router) is None


@given(data=st.binary(max_size=120), router=st.text(max_size=12))
def test_any_bytes_are_digested(data: bytes, router: str) -> None:
    for flow in (FLOW, FLOW6):
        parsed(flow, data, router)
        parsed(flow, error(flow, data), router)


class Wire:
    """A raw socket: what was sent, and what is to be received."""

    def __init__(self, family: int, *_: object) -> None:
        self.family, self.sent, self.waiting = family, list[bytes](), list[bytes]()

    def sendto(self, packet: bytes, _where: object) -> None:
        self.sent.append(packet)

    def recvfrom(self, _size: int) -> tuple[bytes, tuple[str, int]]:
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.pop(0), (ROUTER6, 0)

    def bind(self, _where: object) -> None: ...
    def setblocking(self, _flag: object) -> None: ...
    def setsockopt(self, *_: object) -> None: ...
    def close(self) -> None: ...


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> list[Wire]:
    made: list[Wire] = []

    def make(*words: int) -> Wire:
        made.append(Wire(*words))
        return made[-1]

    monkeypatch.setattr(socket, "socket", make)
    return made


@pytest.mark.parametrize("flow", FLOWS)
def test_forged_and_late_answers_do_not_count(flow: FlowKey, wires: list[Wire]) -> None:
    """Every bit of what is quoted turned, by turns: only those that say nothing of the packet may
    pass, and nothing passes twice or after its time."""
    seed = random.randrange(100_000)
    print(f"seed {seed}")
    rng = random.Random(seed)
    asking, ask = Traceroute({"rail0": flow.src}), HopQuery(flow, 3)
    listener, sender = wires
    asking.send(ask, 0)
    quote = quotable(flow, sender.sent[0])
    start = 40 if is6(flow) else 20
    if is6(flow):
        reported = [*range(4), 6, *range(8, start + 12)]
        free = {4, 5, 7, *range(start + 12, len(quote))}
    else:
        reported = [4, 5, 9, *range(12, start + 8)]
        free = set(range(start)) - {0, *reported}
    for at in reported:
        bits = [0x0F, 0xF0] if at == 0 and is6(flow) else [1 << rng.randrange(8)]
        for bit in bits:
            turned = bytearray(quote)
            turned[at] ^= bit
            if at < 2 and is6(flow):  # the traffic class says nothing of the flow
                turned[at] ^= {0: bit & 0x0F, 1: bit & 0xF0}[at]
                if bytes(turned) == quote:
                    continue
            listener.waiting.append(error(flow, bytes(turned)))
            assert asking.receive(1) == [], (at, bit)
    changed = bytearray(quote)
    for at in free:
        changed[at] ^= rng.randrange(256)
    listener.waiting += [error(flow, bytes(changed))] * 2
    router = ROUTER6 if is6(flow) else ROUTER
    assert asking.receive(1) == [HopReply(ask, router)], "routers may change these"
    asking.send(ask, 2)
    assert asking.receive(2 + ANSWER_NS) == []
    listener.waiting.append(error(flow, quotable(flow, sender.sent[1])))
    assert asking.receive(3 + ANSWER_NS) == []


@pytest.mark.parametrize("flow", FLOWS)
def test_an_answer_that_waits_is_taken_however_late_one_looks(
    flow: FlowKey, wires: list[Wire]
) -> None:
    asking, ask = Traceroute({"rail0": flow.src}), HopQuery(flow, 3)
    listener, sender = wires
    asking.send(ask, 0)
    listener.waiting.append(error(flow, quotable(flow, sender.sent[0])))
    assert asking.receive(5 * ANSWER_NS) == [HopReply(ask, ROUTER6 if is6(flow) else ROUTER)]


def test_a_fleet_of_both_families_has_an_ear_for_each(wires: list[Wire]) -> None:
    Traceroute({"rail0": FLOW.src, "rail1": FLOW6.src, "rail2": "fd73::2"})
    families = [wire.family for wire in wires]
    assert families == [
        socket.AF_INET, socket.AF_INET6, socket.AF_INET, socket.AF_INET6, socket.AF_INET6,
    ]  # fmt: skip

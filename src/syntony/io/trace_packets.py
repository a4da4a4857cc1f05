"""Bytes of TTL-limited packets with the exact 5-tuple of a UDP or TCP flow, and of what routers
quote of them; IPv4 and IPv6. Pure.

Every packet carries a secret, in places that routers quote. Of IPv4 they need not quote more than
the header and 8 bytes (RFC 792): half is the IP identification; the other half a UDP packet's
checksum or a TCP segment's sequence number. IPv6 has no identification, but all of a packet this
short is quoted (RFC 4443, section 3.3): its half are the 4 bytes that follow, the payload of UDP or
the acknowledgement number of TCP. A checksum that is wrong on purpose makes hosts drop the packet
before any socket sees it, should it get that far (Udp and Tcp InCsumErrors count there). An IPv6
packet has its flow's label as well, which switches may hash.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import struct
from collections.abc import Collection
from typing import NamedTuple

from syntony.fabric.learn import FlowKey, HopQuery

_IP = struct.Struct("!BBHHHBBH4s4s")
_IP6 = struct.Struct("!IHBB16s16s")
_UDP = struct.Struct("!HHHH")
_TCP = struct.Struct("!HHIIBBHHH")
_PORTS = struct.Struct("!HHI")
"""The first 8 bytes of either: ports, then length and checksum, or sequence number."""
_WORD = struct.Struct("!I")
_PROTOCOL_ICMP = 1
_PROTOCOLS = {"udp": 17, "tcp": 6}
_NAMES = {number: name for name, number in _PROTOCOLS.items()}
_ACK, _HEADER_WORDS = 0x10, 5
_TIME_EXCEEDED, _TIME_EXCEEDED6, _HOP_LIMIT = 11, 3, 0
_ICMP_BYTES = 8
_DONT_FRAGMENT = 0x4000
_PADDING = bytes(4)
_WRONG = 0
"""A TCP checksum is of the addresses and ports too: 0 is right for one sequence number in 65,536,
and then the segment is an acknowledgement of nothing."""
_LABEL = 0xFFFFF

Secret = tuple[int, int]
"""Its two halves."""


class Quoted(NamedTuple):
    """What an ICMP error says of the packet it is about."""

    router: str
    src: str
    dst: str
    proto: str
    sport: int
    dport: int
    label: int
    """Flow label; 0 in IPv4."""
    secret: Secret


def is_ipv6(address: str) -> bool:
    return ":" in address


def make_packet(ask: HopQuery) -> tuple[bytes, Secret]:
    """A new packet, and the secret that an answer to it quotes.

    Whole, but for what the kernel fills in: an IPv4 header's checksum and length (raw(7)).
    """
    flow = ask.flow
    second = secrets.randbelow(0xFFFFFFFF) + 1
    body = _body(flow, second)
    if is_ipv6(flow.src):
        return _header6(ask, len(body)) + body, (second, _PORTS.unpack_from(body)[2])
    identification = secrets.randbelow(0xFFFF) + 1
    return _header4(ask, len(body), identification) + body, (
        identification,
        _PORTS.unpack_from(body)[2],
    )


def _body(flow: FlowKey, second: int) -> bytes:
    if flow.proto == "tcp":
        # An acknowledgement: the most ordinary segment there is.
        return _TCP.pack(
            flow.sport, flow.dport, secrets.randbelow(0xFFFFFFFF) + 1, second,
            _HEADER_WORDS << 4, _ACK, 0, _WRONG, 0,
        )  # fmt: skip
    payload = _WORD.pack(second) + _PADDING
    # Never 0, which means "no checksum".
    checksum = secrets.randbelow(0xFFFF) + 1
    return _UDP.pack(flow.sport, flow.dport, _UDP.size + len(payload), checksum) + payload


def _header4(ask: HopQuery, length: int, identification: int) -> bytes:
    flow = ask.flow
    return _IP.pack(
        0x45, 0, _IP.size + length, identification, _DONT_FRAGMENT, ask.ttl,
        _PROTOCOLS[flow.proto], 0, socket.inet_aton(flow.src), socket.inet_aton(flow.dst),
    )  # fmt: skip


def _header6(ask: HopQuery, length: int) -> bytes:
    flow = ask.flow
    return _IP6.pack(
        6 << 28 | flow.label & _LABEL, length, _PROTOCOLS[flow.proto], ask.ttl,
        socket.inet_pton(socket.AF_INET6, flow.src), socket.inet_pton(socket.AF_INET6, flow.dst),
    )  # fmt: skip


def is_about(ask: HopQuery, quoted: Quoted) -> bool:
    """Whether the packet quoted is of the flow asked for, however addresses are written."""
    flow = ask.flow
    return (flow.proto, flow.sport, flow.dport, flow.label) == (
        quoted.proto, quoted.sport, quoted.dport, quoted.label
    ) and _same(flow.src, quoted.src) and _same(flow.dst, quoted.dst)  # fmt: skip


def _same(one: str, other: str) -> bool:
    return one == other or ipaddress.ip_address(one) == ipaddress.ip_address(other)


def parse_time_exceeded(data: bytes) -> Quoted | None:
    """An IPv4 packet off a raw ICMP socket; None unless it is a hop-limit error about UDP or
    TCP."""
    outer = _ip_header(data, {_PROTOCOL_ICMP})
    if outer is None:
        return None
    inner = _inner(data[outer:], _TIME_EXCEEDED)
    start = _ip_header(inner, _NAMES.keys())
    if start is None or len(inner) < start + _PORTS.size:
        return None
    sport, dport, rest = _PORTS.unpack_from(inner, start)
    _, _, _, identification, _, _, number, _, src, dst = _IP.unpack_from(inner)
    return Quoted(
        router=socket.inet_ntoa(data[12:16]),
        src=socket.inet_ntoa(src),
        dst=socket.inet_ntoa(dst),
        proto=_NAMES[number],
        sport=sport,
        dport=dport,
        label=0,
        secret=(identification, rest),
    )


def parse_time_exceeded6(data: bytes, router: str) -> Quoted | None:
    """An ICMPv6 message off a raw socket, which comes without its header; None unless it is a
    hop-limit error about UDP or TCP, from an address that names one router: one of its link alone
    names it to nobody else.

    Args:
        router: who it is from, as the kernel says.
    """
    inner = _inner(data, _TIME_EXCEEDED6)
    if len(inner) < _IP6.size + _PORTS.size + _WORD.size or inner[0] >> 4 != 6:
        return None
    first, _, number, _, src, dst = _IP6.unpack_from(inner)
    if number not in _NAMES or not _names_one(router):
        return None
    sport, dport, rest = _PORTS.unpack_from(inner, _IP6.size)
    (second,) = _WORD.unpack_from(inner, _IP6.size + _PORTS.size)
    return Quoted(
        router=router,
        src=socket.inet_ntop(socket.AF_INET6, src),
        dst=socket.inet_ntop(socket.AF_INET6, dst),
        proto=_NAMES[number],
        sport=sport,
        dport=dport,
        label=first & _LABEL,
        secret=(second, rest),
    )


def _names_one(router: str) -> bool:
    try:
        address = ipaddress.IPv6Address(router)
    except ValueError:
        return False
    return not (address.is_link_local or address.is_multicast or address.is_unspecified)


def _inner(icmp: bytes, kind: int) -> bytes:
    """What an ICMP message of this kind quotes; nothing of any other."""
    if len(icmp) < _ICMP_BYTES or (icmp[0], icmp[1]) != (kind, _HOP_LIMIT):
        return b""
    return icmp[_ICMP_BYTES:]


def _ip_header(data: bytes, protocols: Collection[int]) -> int | None:
    """Length of the IPv4 header in front of `data`, if it carries one of `protocols`."""
    if len(data) < _IP.size or data[0] >> 4 != 4 or data[9] not in protocols:
        return None
    length = (data[0] & 0xF) * 4
    return length if _IP.size <= length <= len(data) else None

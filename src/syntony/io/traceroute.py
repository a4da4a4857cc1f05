"""TTL-limited packets with the exact 5-tuple of a UDP or TCP flow, and the routers' answers. IPv4.

The packet is whole, header and all (`IP_HDRINCL`), so its source port may be the probe engine's
own, or a job's, without taking it away from there. Half of a secret is its IP identification; the
other half is a UDP packet's checksum or a TCP segment's sequence number. Routers quote all three
(RFC 792: the header and 8 bytes). A checksum that is wrong on purpose makes hosts drop the packet
before any socket sees it, should it get that far (Udp and Tcp InCsumErrors count there). An answer
that does not quote an open secret is ignored.

Needs CAP_NET_RAW, which root in a user namespace has.
"""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Collection
from typing import NamedTuple

from syntony.errors import MissingError
from syntony.fabric.learn import ANSWER_NS, Ask

_IP = struct.Struct("!BBHHHBBH4s4s")
_UDP = struct.Struct("!HHHH")
_TCP = struct.Struct("!HHIIBBHHH")
_PORTS = struct.Struct("!HHI")
"""The first 8 bytes of either: ports, then length and checksum, or sequence number."""
_PROTOCOL_ICMP = 1
_PROTOCOLS = {"udp": 17, "tcp": 6}
_NAMES = {number: name for name, number in _PROTOCOLS.items()}
_ACK, _HEADER_WORDS = 0x10, 5
_TIME_EXCEEDED, _HOP_LIMIT = 11, 0
_DONT_FRAGMENT = 0x4000
_PAYLOAD = bytes(8)
_WRONG = 0
"""A TCP checksum is of the addresses and ports too: 0 is right for one sequence number in 65,536,
and then the segment is an acknowledgement of nothing."""
_MAX_OPEN = 4096


class Answer(NamedTuple):
    """Who said that the packet's time was up."""

    ask: Ask
    address: str


class _Quoted(NamedTuple):
    """What an ICMP error says of the packet it is about."""

    router: str
    src: str
    dst: str
    identification: int
    proto: str
    sport: int
    dport: int
    secret: int
    """A UDP packet's length and checksum, or a TCP segment's sequence number."""


class Traceroute:
    """Sockets of the network namespace of the thread that makes it. Not thread-safe.

    Raises:
        MissingError: raw sockets are not allowed here, or an address is not this host's.
    """

    def __init__(self, addresses: dict[str, str]) -> None:
        """`addresses`: NIC to the IPv4 address its packets leave from."""
        self._senders: dict[str, socket.socket] = {}
        self._open: dict[tuple[int, int], tuple[int, Ask]] = {}
        try:
            self._ears = socket.socket(
                socket.AF_INET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _PROTOCOL_ICMP
            )
            for nic, address in addresses.items():
                sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
                self._senders[nic] = sender
                sender.setblocking(False)
                sender.bind((address, 0))
        except OSError as error:
            self.close()
            what = "paths cannot be traced without CAP_NET_RAW; grant it to the agent"
            if not isinstance(error, PermissionError):
                what = f"paths cannot be traced: {error.strerror}"
            raise MissingError(what) from error

    def close(self) -> None:
        for sock in (getattr(self, "_ears", None), *self._senders.values()):
            if sock is not None:
                sock.close()

    def send(self, ask: Ask, now_ns: int) -> None:
        """One packet; a NIC without a way there sends nothing, which is silence too."""
        self._forget(now_ns)
        flow = ask.flow
        packet = _packet(ask, identification := secrets.randbelow(0xFFFF) + 1, _half(flow.proto))
        secret = (identification, _quotable(packet)[2])
        try:
            self._senders[flow.nic].sendto(packet, (flow.dst, 0))
        except OSError:
            return
        self._open[secret] = (now_ns + ANSWER_NS, ask)

    def receive(self, now_ns: int) -> list[Answer]:
        """Answers that have come since; forged and late ones are not among them."""
        self._forget(now_ns)
        answers: list[Answer] = []
        while True:
            try:
                data = self._ears.recv(2048)
            except BlockingIOError:
                return answers
            except OSError:
                return answers
            quoted = parse_time_exceeded(data)
            if quoted is None:
                continue
            secret = (quoted.identification, quoted.secret)
            _, ask = self._open.get(secret, (0, None))
            if ask is not None and _same(ask, quoted):
                del self._open[secret]
                answers.append(Answer(ask, quoted.router))

    def _forget(self, now_ns: int) -> None:
        late = [secret for secret, (end_ns, _) in self._open.items() if end_ns <= now_ns]
        for secret in late:
            del self._open[secret]
        while len(self._open) >= _MAX_OPEN:
            del self._open[next(iter(self._open))]


def _half(proto: str) -> int:
    """Random bits for the other half of a secret: never 0, which means "no checksum" in UDP."""
    return secrets.randbelow(0xFFFF if proto == "udp" else 0xFFFFFFFF) + 1


def _packet(ask: Ask, identification: int, half: int) -> bytes:
    """Whole, but for what the kernel fills in: the header's checksum and length (raw(7))."""
    flow = ask.flow
    if flow.proto == "tcp":
        # An acknowledgement: the most ordinary segment there is.
        body = _TCP.pack(
            flow.sport, flow.dport, half, 0, _HEADER_WORDS << 4, _ACK, 0, _WRONG, 0
        )  # fmt: skip
    else:
        body = _UDP.pack(flow.sport, flow.dport, _UDP.size + len(_PAYLOAD), half) + _PAYLOAD
    header = _IP.pack(
        0x45, 0, _IP.size + len(body), identification, _DONT_FRAGMENT, ask.ttl,
        _PROTOCOLS[flow.proto], 0, socket.inet_aton(flow.src), socket.inet_aton(flow.dst),
    )  # fmt: skip
    return header + body


def _quotable(packet: bytes) -> tuple[int, int, int]:
    """Ports, and the four bytes behind them."""
    sport, dport, rest = _PORTS.unpack_from(packet, _IP.size)
    return sport, dport, rest


def _same(ask: Ask, quoted: _Quoted) -> bool:
    flow = ask.flow
    return (flow.src, flow.dst, flow.proto, flow.sport, flow.dport) == (
        quoted.src, quoted.dst, quoted.proto, quoted.sport, quoted.dport,
    )  # fmt: skip


def parse_time_exceeded(data: bytes) -> _Quoted | None:
    """An IPv4 packet off a raw ICMP socket; None unless it is a hop-limit error about UDP or
    TCP."""
    outer = _ip_header(data, {_PROTOCOL_ICMP})
    if outer is None:
        return None
    icmp = data[outer:]
    if len(icmp) < 8 or (icmp[0], icmp[1]) != (_TIME_EXCEEDED, _HOP_LIMIT):
        return None
    inner = icmp[8:]
    start = _ip_header(inner, _NAMES.keys())
    if start is None or len(inner) < start + _PORTS.size:
        return None
    sport, dport, secret = _PORTS.unpack_from(inner, start)
    _, _, _, identification, _, _, number, _, src, dst = _IP.unpack_from(inner)
    return _Quoted(
        router=socket.inet_ntoa(data[12:16]),
        src=socket.inet_ntoa(src),
        dst=socket.inet_ntoa(dst),
        identification=identification,
        proto=_NAMES[number],
        sport=sport,
        dport=dport,
        secret=secret,
    )


def _ip_header(data: bytes, protocols: Collection[int]) -> int | None:
    """Length of the IPv4 header in front of `data`, if it carries one of `protocols`."""
    if len(data) < _IP.size or data[0] >> 4 != 4 or data[9] not in protocols:
        return None
    length = (data[0] & 0xF) * 4
    return length if _IP.size <= length <= len(data) else None

"""TTL-limited UDP packets with a probe's exact 5-tuple, and the routers' answers. IPv4.

The packet is whole, header and all (`IP_HDRINCL`), so its source port may be the probe engine's own
without taking it away from there. Its UDP checksum is not a checksum but half of a secret, the IP
identification the other half: routers quote both (RFC 792: the header and 8 bytes), hosts drop the
packet before any socket sees it should it get that far (Udp InCsumErrors counts there). An answer
that does not quote an open secret is ignored.

Needs CAP_NET_RAW, which root in a user namespace has.
"""

from __future__ import annotations

import secrets
import socket
import struct
from typing import NamedTuple

from syntony.errors import MissingError
from syntony.fabric.learn import ANSWER_NS, Ask

_IP = struct.Struct("!BBHHHBBH4s4s")
_UDP = struct.Struct("!HHHH")
_PROTOCOL_UDP, _PROTOCOL_ICMP = 17, 1
_TIME_EXCEEDED, _HOP_LIMIT = 11, 0
_DONT_FRAGMENT = 0x4000
_PAYLOAD = bytes(8)
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
    sport: int
    dport: int
    checksum: int


class Traceroute:
    """Sockets of the network namespace of the thread that makes it. Not thread-safe.

    Raises:
        MissingError: raw sockets are not allowed here.
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
        except PermissionError as error:
            self.close()
            raise MissingError(
                "paths cannot be traced without CAP_NET_RAW; grant it to the agent"
            ) from error

    def close(self) -> None:
        for sock in (getattr(self, "_ears", None), *self._senders.values()):
            if sock is not None:
                sock.close()

    def send(self, ask: Ask, now_ns: int) -> None:
        """One packet; a NIC without a way there sends nothing, which is silence too."""
        self._forget(now_ns)
        flow = ask.flow
        secret = (secrets.randbelow(0xFFFF) + 1, secrets.randbelow(0xFFFF) + 1)
        packet = _packet(ask, *secret)
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
            _, ask = self._open.get((quoted.identification, quoted.checksum), (0, None))
            if ask is not None and _same(ask, quoted):
                del self._open[quoted.identification, quoted.checksum]
                answers.append(Answer(ask, quoted.router))

    def _forget(self, now_ns: int) -> None:
        late = [secret for secret, (end_ns, _) in self._open.items() if end_ns <= now_ns]
        for secret in late:
            del self._open[secret]
        while len(self._open) >= _MAX_OPEN:
            del self._open[next(iter(self._open))]


def _packet(ask: Ask, identification: int, checksum: int) -> bytes:
    flow = ask.flow
    length = _IP.size + _UDP.size + len(_PAYLOAD)
    # The kernel fills in the header's checksum and length (raw(7)).
    header = _IP.pack(
        0x45, 0, length, identification, _DONT_FRAGMENT, ask.ttl, _PROTOCOL_UDP, 0,
        socket.inet_aton(flow.src), socket.inet_aton(flow.dst),
    )  # fmt: skip
    udp = _UDP.pack(flow.sport, flow.dport, _UDP.size + len(_PAYLOAD), checksum)
    return header + udp + _PAYLOAD


def _same(ask: Ask, quoted: _Quoted) -> bool:
    flow = ask.flow
    return (flow.src, flow.dst, flow.sport, flow.dport) == (
        quoted.src, quoted.dst, quoted.sport, quoted.dport,
    )  # fmt: skip


def parse_time_exceeded(data: bytes) -> _Quoted | None:
    """An IPv4 packet off a raw ICMP socket; None unless it is a hop-limit error about UDP."""
    outer = _ip_header(data, _PROTOCOL_ICMP)
    if outer is None:
        return None
    icmp = data[outer:]
    if len(icmp) < 8 or (icmp[0], icmp[1]) != (_TIME_EXCEEDED, _HOP_LIMIT):
        return None
    inner = icmp[8:]
    start = _ip_header(inner, _PROTOCOL_UDP)
    if start is None or len(inner) < start + _UDP.size:
        return None
    sport, dport, _, checksum = _UDP.unpack_from(inner, start)
    _, _, _, identification, _, _, _, _, src, dst = _IP.unpack_from(inner)
    return _Quoted(
        router=socket.inet_ntoa(data[12:16]),
        src=socket.inet_ntoa(src),
        dst=socket.inet_ntoa(dst),
        identification=identification,
        sport=sport,
        dport=dport,
        checksum=checksum,
    )


def _ip_header(data: bytes, protocol: int) -> int | None:
    """Length of the IPv4 header in front of `data`, if it carries `protocol`."""
    if len(data) < _IP.size or data[0] >> 4 != 4 or data[9] != protocol:
        return None
    length = (data[0] & 0xF) * 4
    return length if _IP.size <= length <= len(data) else None

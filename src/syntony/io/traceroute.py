"""Sends TTL-limited packets with the exact 5-tuple of a flow and receives the routers' answers.

The packet is whole, header and all (`IP_HDRINCL`), so its source port may be the probe engine's
own, or a job's, without taking it away from there. An answer that does not quote an open secret
(`syntony.io.trace_packets`) is ignored.

Needs CAP_NET_RAW, which root in a user namespace has.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from syntony.errors import MissingError
from syntony.fabric.learn import ANSWER_NS, HopQuery
from syntony.io.trace_packets import (
    Quoted,
    Secret,
    is_about,
    is_ipv6,
    make_packet,
    parse_time_exceeded,
    parse_time_exceeded6,
)

_ICMP6_FILTER, _TIME_EXCEEDED6 = 1, 3
"""linux/icmpv6.h; socket.h has neither."""
_LISTEN = {
    socket.AF_INET: socket.IPPROTO_ICMP,
    socket.AF_INET6: socket.IPPROTO_ICMPV6,
}
_MAX_OPEN = 4096


class HopReply(NamedTuple):
    """The hop that reported the packet's TTL as expired."""

    ask: HopQuery
    address: str


class Traceroute:
    """Sockets of the network namespace of the thread that makes it. Not thread-safe. Raises
    `MissingError`: raw sockets are not allowed here, or an address is not this host's."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        """`addresses`: NIC to the IPv4 or IPv6 address its packets leave from."""
        self._senders: dict[str, socket.socket] = {}
        self._listeners: list[socket.socket] = []
        self._open: dict[Secret, tuple[int, HopQuery]] = {}
        try:
            for family in sorted({_family(address) for address in addresses.values()}):
                self._listeners.append(_listener(family))
            for nic, address in addresses.items():
                sender = socket.socket(_family(address), socket.SOCK_RAW, socket.IPPROTO_RAW)
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
        for sock in (*self._listeners, *self._senders.values()):
            sock.close()

    def send(self, ask: HopQuery, now_ns: int) -> None:
        """One packet; a NIC without a way there sends nothing, which is silence too."""
        self._forget(now_ns)
        packet, secret = make_packet(ask)
        try:
            self._senders[ask.flow.nic].sendto(packet, (ask.flow.dst, 0))
        except OSError:
            return
        self._open[secret] = (now_ns + ANSWER_NS, ask)

    def receive(self, now_ns: int) -> list[HopReply]:
        """Answers that have come since, forged ones not among them. What was to be answered by now
        and was not is forgotten after that: who looks late finds what came in time."""
        answers: list[HopReply] = []
        for quoted in self._quoted():
            _, ask = self._open.get(quoted.secret, (0, None))
            if ask is not None and is_about(ask, quoted):
                del self._open[quoted.secret]
                answers.append(HopReply(ask, quoted.router))
        self._forget(now_ns)
        return answers

    def _quoted(self) -> Iterator[Quoted]:
        for listener in self._listeners:
            while True:
                try:
                    data, sender = listener.recvfrom(2048)
                except OSError:  # nothing waits, mostly
                    break
                ipv6 = listener.family == socket.AF_INET6
                quoted = (
                    parse_time_exceeded6(data, sender[0]) if ipv6 else parse_time_exceeded(data)
                )
                if quoted is not None:
                    yield quoted

    def _forget(self, now_ns: int) -> None:
        late = [secret for secret, (end_ns, _) in self._open.items() if end_ns <= now_ns]
        for secret in late:
            del self._open[secret]
        while len(self._open) >= _MAX_OPEN:
            del self._open[next(iter(self._open))]


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if is_ipv6(address) else socket.AF_INET


def _listener(family: socket.AddressFamily) -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
    listener = socket.socket(family, kind, _LISTEN[family])
    if family == socket.AF_INET6:
        # A bit for each type that is not to be passed on.
        blocked = [0xFFFFFFFF] * 8
        blocked[_TIME_EXCEEDED6 >> 5] &= ~(1 << (_TIME_EXCEEDED6 & 31))
        listener.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, struct.pack("=8I", *blocked))
    return listener

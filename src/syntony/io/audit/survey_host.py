"""One host's part of the connectivity audit: answers, asks and traces with plain UDP.

    python survey_host.py        (orders on standard input, answers on standard output, JSON lines)

Needs the standard library only and no privileges, so that it can go to a host over ssh's standard
input. It answers only requests that carry the audit's secret, with less than it was sent, and ends
with its standard input.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import hmac
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from typing import Any

SECRET_BYTES = 16
REPLY = struct.Struct("!16sIB11x")
REQUEST = struct.Struct("!16sI12x")
"""Secret, number, padding: a request is never smaller than its reply."""
INITIAL_TTL = 64
WAIT_S = 0.4
BURST = 32
PAUSE_S = 0.002
HOP_WAIT_S = 0.3
HOP_AGAIN_S = 1.1
"""A Linux router answers six expired packets in a row per asker, then one a second."""
MAX_HOPS = 8
SILENT_END = 2
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3
IP_RECVTTL, IP_RECVERR, IP_PKTINFO = 12, 11, 8
SIOCGIFADDR, SIOCGIFMTU, SIOCGIFFLAGS = 0x8915, 0x8921, 0x8913
IFF_UP, IFF_LOOPBACK = 0x1, 0x8
ERROR = struct.Struct("=IBBBBII")
"""struct sock_extended_err (linux/errqueue.h); the offender's sockaddr_in follows."""
FROM_ICMP = 2


def interfaces(patterns: list[str]) -> dict[str, dict[str, Any]]:
    """Name to address and MTU of every interface that is up, has IPv4 and is wanted."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                flags = struct.unpack_from("=H", fcntl.ioctl(own, SIOCGIFFLAGS, request), 16)[0]
                raw = fcntl.ioctl(own, SIOCGIFADDR, request)[20:24]
                mtu = struct.unpack_from("=i", fcntl.ioctl(own, SIOCGIFMTU, request), 16)[0]
            except OSError:
                continue
            wanted = any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
            if wanted and flags & IFF_UP and not flags & IFF_LOOPBACK:
                found[name] = {"address": socket.inet_ntoa(raw), "mtu": mtu}
    return found


class Answerer(threading.Thread):
    """Answers every request that knows the secret, and keeps who was heard."""

    def __init__(self, secret: bytes, port: int) -> None:
        super().__init__(daemon=True)
        self._secret = secret
        self.heard: set[tuple[str, int, str, bool]] = set()
        self._own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._own.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        self._own.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        self._own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._own.bind(("0.0.0.0", port))  # noqa: S104 - every NIC is asked; the secret guards it

    def run(self) -> None:
        while True:
            data, control, _, (address, port) = self._own.recvmsg(65536, 256)
            if len(data) < REQUEST.size:
                continue
            secret, number = REQUEST.unpack_from(data)
            if not hmac.compare_digest(secret, self._secret):
                continue
            ttl, own_address = 0, b"\0" * 4
            for level, kind, value in control:
                if level == socket.IPPROTO_IP and kind == socket.IP_TTL:
                    ttl = struct.unpack("=i", value[:4])[0]
                elif level == socket.IPPROTO_IP and kind == IP_PKTINFO:
                    own_address = value[8:12]
            big = len(data) > REQUEST.size
            self.heard.add((address, port, socket.inet_ntoa(own_address), big))
            reply = REPLY.pack(self._secret, number, ttl & 0xFF)
            source = struct.pack("=I4s4s", 0, own_address, b"\0" * 4)
            try:
                self._own.sendmsg(
                    [reply], [(socket.IPPROTO_IP, IP_PKTINFO, source)], 0, (address, port)
                )
            except OSError:
                continue  # no way back: the asker sees that


class Asker:
    """Sends flows ``[source, destination, source port, size]`` until each is answered."""

    def __init__(self, flows: list[list[Any]], secret: bytes, port: int) -> None:
        self._flows, self._secret, self._port = flows, secret, port
        self.results: list[dict[str, Any]] = [
            {"sent": 0, "got": 0, "hops": 0, "rtt_ns": 0, "error": ""} for _ in flows
        ]
        self._sent_ns: dict[int, int] = {}
        self._sockets = _sockets({(flow[0], flow[2]) for flow in flows})
        self._poll = select.poll()
        for own in self._sockets.values():
            self._poll.register(own, select.POLLIN)
        self._by_fd = {own.fileno(): own for own in self._sockets.values()}

    def run(self, tries: int) -> None:
        """All of them, side by side."""
        for _ in range(tries):
            waiting = [n for n, result in enumerate(self.results) if not result["got"]]
            for count, number in enumerate(waiting):
                self._send(number)
                if count % BURST == BURST - 1:
                    time.sleep(PAUSE_S)
                    self._hear(0.0)
            end_s = time.monotonic() + WAIT_S
            while time.monotonic() < end_s and any(not self.results[n]["got"] for n in waiting):
                self._hear(end_s - time.monotonic())
        for own in self._sockets.values():
            own.close()

    def _send(self, number: int) -> None:
        source, destination, source_port, size = self._flows[number]
        own, result = self._sockets.get((source, source_port)), self.results[number]
        if own is None:
            result["error"] = "the source port is taken"
            return
        data = REQUEST.pack(self._secret, number).ljust(size, b"\0")
        result["sent"] += 1
        self._sent_ns[number] = time.perf_counter_ns()
        try:
            own.sendto(data, (destination, self._port))
        except OSError as error:
            result["error"] = os.strerror(error.errno or 0)

    def _hear(self, wait_s: float) -> None:
        for fd, _ in self._poll.poll(max(0.0, wait_s) * 1000):
            try:
                data = self._by_fd[fd].recv(2048)
            except OSError:
                continue
            now_ns = time.perf_counter_ns()
            if len(data) != REPLY.size:
                continue
            told, number, ttl = REPLY.unpack(data)
            if hmac.compare_digest(told, self._secret) and number < len(self.results):
                result = self.results[number]
                result["got"] += 1
                result["hops"] = INITIAL_TTL - ttl
                result["rtt_ns"] = now_ns - self._sent_ns.get(number, now_ns)


def ping(flows: list[list[Any]], secret: bytes, port: int, count: int) -> list[int]:
    """Smallest round trip in ns of each flow, one packet at a time; 0 where nothing came back."""
    found = []
    for source, destination, source_port in flows:
        best_ns = 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.settimeout(WAIT_S)
            try:
                own.bind((source, source_port))
                own.connect((destination, port))
                for number in range(count):
                    start_ns = time.perf_counter_ns()
                    own.send(REQUEST.pack(secret, number))
                    own.recv(2048)
                    took_ns = time.perf_counter_ns() - start_ns
                    best_ns = min(best_ns or took_ns, took_ns)
            except OSError:
                pass  # silence is told by the flows
        found.append(best_ns)
    return found


def _sockets(wanted: set[tuple[str, int]]) -> dict[tuple[str, int], socket.socket]:
    sockets = {}
    for address, port in wanted:
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        own.setblocking(False)
        own.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
        try:
            own.bind((address, port))
        except OSError:
            own.close()
            continue
        sockets[address, port] = own
    return sockets


def trace(flow: list[Any], secret: bytes, port: int) -> list[str]:
    """Addresses of the hops of one flow, empty for a silent one; ``*`` at the end if it arrived."""
    source, destination, source_port = flow[:3]
    hops: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        try:
            own.bind((source, source_port))
        except OSError:
            return hops
        own.settimeout(HOP_WAIT_S)
        for ttl in range(1, MAX_HOPS + 1):
            own.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
            answer = ""
            # Behind a silent hop another is no surprise: only the first is asked again.
            for again in range(1 if hops[-1:] == [""] else 2):
                if again:
                    time.sleep(HOP_AGAIN_S)
                answer = _hop(own, (destination, port), REQUEST.pack(secret, 0))
                if answer:
                    break
            hops.append(answer)
            if answer == "*" or hops[-SILENT_END:] == [""] * SILENT_END:
                break
    while hops and not hops[-1]:
        hops.pop()
    return hops


def _hop(own: socket.socket, target: tuple[str, int], data: bytes) -> str:
    with contextlib.suppress(OSError):  # an error that is waiting from before
        own.sendto(data, target)
    end_s = time.monotonic() + HOP_WAIT_S
    poll = select.poll()
    poll.register(own, select.POLLIN | select.POLLERR)
    while time.monotonic() < end_s:
        for _, event in poll.poll((end_s - time.monotonic()) * 1000):
            if event & select.POLLERR and (offender := _offender(own)):
                return offender
            if event & select.POLLIN:
                try:
                    own.recv(2048)
                except OSError:
                    continue
                return "*"
    return ""


def _offender(own: socket.socket) -> str:
    """Who said that the packet expired."""
    try:
        _, control, _, _ = own.recvmsg(512, 512, socket.MSG_ERRQUEUE)
    except OSError:
        return ""
    for level, kind, value in control:
        if level == socket.IPPROTO_IP and kind == IP_RECVERR and len(value) >= ERROR.size + 8:
            _, origin, icmp, _, _, _, _ = ERROR.unpack_from(value)
            if origin == FROM_ICMP and icmp == 11:
                return socket.inet_ntoa(value[ERROR.size + 4 : ERROR.size + 8])
    return ""


def main() -> None:
    answerer: Answerer | None = None
    secret, port = b"", 0
    for line in sys.stdin:
        order = json.loads(line)
        if "interfaces" in order:
            answer: Any = interfaces(order["interfaces"])
        elif "serve" in order:
            secret, port = bytes.fromhex(order["secret"]), order["serve"]
            answerer = Answerer(secret, port)
            answerer.start()
            answer = True
        elif "ask" in order:
            asker = Asker(order["ask"], secret, port)
            asker.run(order["tries"])
            answer = asker.results
        elif "ping" in order:
            answer = ping(order["ping"], secret, port, order["count"])
        elif "trace" in order:
            answer = [trace(flow, secret, port) for flow in order["trace"]]
        else:
            answer = sorted(answerer.heard) if answerer is not None else []
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

"""One host's part of the connectivity audit: sends requests, replies and traces over UDP.

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
import pathlib
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

SECRET_BYTES = 16
REPLY = struct.Struct("!16sIB11x")
REQUEST = struct.Struct("!16sI12x")
"""Secret, number, padding: a request is never smaller than its reply."""
INITIAL_TTL = 64
WAIT_S = 0.4
FIRST_PORT = 49_152
COMMAND_S = 10.0
SPREAD_S = 0.02
STREAMS = 4
"""Of one load: one alone leaves a deep queue half empty for seconds."""
RAMP_S = 2.0
"""Until a load fills its path."""
CHUNK = bytes(1 << 16)
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
    """Name to address, MTU and RDMA port of every interface that is up, has IPv4 and is wanted:
    by its name, or, where no pattern is given, because an RDMA device is behind it.
    """
    found, rdma = {}, rdma_ports()
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
            wanted = wanted if patterns else name in rdma
            if wanted and flags & IFF_UP and not flags & IFF_LOOPBACK:
                found[name] = {
                    "address": socket.inet_ntoa(raw), "mtu": mtu, "rdma": rdma.get(name, ""),
                }  # fmt: skip
    return found


def rdma_ports() -> dict[str, str]:
    """Interface to its RDMA port, ``mlx5_0:1``, as the first GID of the port says."""
    found: dict[str, str] = {}
    try:
        for each in sorted(
            pathlib.Path("/sys/class/infiniband").glob("*/ports/*/gid_attrs/ndevs/*")
        ):
            with contextlib.suppress(OSError):  # an empty slot
                device, port = each.parts[4], each.parts[6]
                found.setdefault(each.read_text().strip(), f"{device}:{port}")
    except OSError:
        pass
    return found


def command_output(*words: str) -> str:
    """Standard output of a command; empty if there is no such command, or it fails."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=COMMAND_S, check=False,
            env={**os.environ, "LC_ALL": "C", "PATH": os.defpath + ":/sbin:/usr/sbin"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


class Responder(threading.Thread):
    """Replies to every request with the secret, and records which were received."""

    def __init__(self, secret: bytes, port: int) -> None:
        super().__init__(daemon=True)
        self._secret = secret
        self.received: set[tuple[str, int, str, bool]] = set()
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
            self.received.add((address, port, socket.inet_ntoa(own_address), big))
            reply = REPLY.pack(self._secret, number, ttl & 0xFF)
            source = struct.pack("=I4s4s", 0, own_address, b"\0" * 4)
            try:
                self._own.sendmsg(
                    [reply], [(socket.IPPROTO_IP, IP_PKTINFO, source)], 0, (address, port)
                )
            except OSError:
                continue  # no route back: the requester notices


class Requester:
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
        self._left = len(flows)

    def run(self, tries: int) -> None:
        """Send all flows at once, each up to `tries` times."""
        for _ in range(tries):
            waiting = [n for n, result in enumerate(self.results) if not result["got"]]
            for count, number in enumerate(waiting):
                self._send(number)
                if count % BURST == BURST - 1:
                    time.sleep(PAUSE_S)
                    self._receive_replies(0.0)
            end_s = time.monotonic() + WAIT_S
            while time.monotonic() < end_s and self._left:
                self._receive_replies(end_s - time.monotonic())
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

    def _receive_replies(self, wait_s: float) -> None:
        for fd, _ in self._poll.poll(max(0.0, wait_s) * 1000):
            try:
                data = self._by_fd[fd].recv(2048)
            except OSError:
                continue
            now_ns = time.perf_counter_ns()
            if len(data) != REPLY.size:
                continue
            reported, number, ttl = REPLY.unpack(data)
            if hmac.compare_digest(reported, self._secret) and number < len(self.results):
                result = self.results[number]
                self._left -= not result["got"]
                result["got"] += 1
                result["hops"] = INITIAL_TTL - ttl
                result["rtt_ns"] = now_ns - self._sent_ns.get(number, now_ns)


def ask(legs: list[list[Any]], secret: bytes, port: int, tries: int) -> list[list[Any]]:
    """Test legs ``[source, destination, ports, size]``.

    Returns:
        For each leg: the number of source ports that were free here, the ports without a reply,
        the number of routers in between, whether the large packet passed (None: none was sent),
        and an error.
    """
    flows: list[list[Any]] = []
    spans = []
    for source, destination, ports, size in legs:
        spans.append((len(flows), len(flows) + ports, bool(size)))
        flows += [[source, destination, FIRST_PORT + n, 0] for n in range(ports)]
        flows += [[source, destination, FIRST_PORT, size]] if size else []
    asker = Requester(flows, secret, port)
    asker.run(tries)
    reported: list[list[Any]] = []
    for start, end, big in spans:
        small = asker.results[start:end]
        free = [flows[start + n][2] for n, result in enumerate(small) if result["sent"]]
        lost = [port for port in free if not small[port - FIRST_PORT]["got"]]
        hops = max((result["hops"] for result in small), default=0)
        error = next((result["error"] for result in small if result["error"]), "")
        large = asker.results[end] if big else {"sent": 0, "got": 0}
        reported.append([len(free), lost, hops, large["got"] > 0 if large["sent"] else None, error])
    return reported


def sink(secret: bytes, port: int) -> int:
    """Start a process that discards what loads send, and return its number.

    It ends with this process, whose end it reads from a pipe.
    """
    reading, _writing = os.pipe()
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("0.0.0.0", port))  # noqa: S104 - every NIC is loaded; the secret guards it
    listening.listen(64)
    child = os.fork()
    if child:
        listening.close()
        return child
    os.close(_writing)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    connections: list[socket.socket] = []
    while True:
        waiting: list[Any] = [reading, listening, *connections]
        ready = select.select(waiting, [], [])[0]
        if reading in ready:
            os._exit(0)
        if listening in ready:
            connections += _accepted(listening, secret)
        for each in [own for own in connections if own in ready]:
            if not _swallow(each):
                connections.remove(each)
                each.close()


def _accepted(listening: socket.socket, secret: bytes) -> list[socket.socket]:
    """The waiting connection as a list, if it sends the secret; else an empty list."""
    own = listening.accept()[0]
    own.settimeout(1.0)
    with contextlib.suppress(OSError):
        if hmac.compare_digest(own.recv(SECRET_BYTES, socket.MSG_WAITALL), secret):
            return [own]
    own.close()
    return []


def _swallow(own: socket.socket) -> bool:
    try:
        return bool(own.recv(1 << 18))
    except OSError:
        return False


def load(
    flows: list[list[Any]], secret: bytes, port: int, count: int
) -> list[list[float]]:  # fmt: skip
    """For each flow: its median round trip idle and while its path is filled, ns, and the rate of
    the load that fills it, bit/s. All NICs of the host are loaded at once.
    """
    idle = _medians_ns(flows, secret, port, count)
    blasts = [[_blast(flow, secret, port) for _ in range(STREAMS)] for flow in flows]
    began_s = time.monotonic()
    time.sleep(RAMP_S)
    busy = _medians_ns(flows, secret, port, count)
    took_s = time.monotonic() - began_s
    sent = [sum(_ended(child, reading) for child, reading in streams) for streams in blasts]
    return [[idle[n], busy[n], 8 * sent[n] / took_s] for n in range(len(flows))]


def _blast(flow: list[Any], secret: bytes, port: int) -> tuple[int, int]:
    """Start a process that sends until it is ended; returns its process number, and the pipe on
    which it then writes how much it sent."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    sent, going = 0, [True]
    signal.signal(signal.SIGTERM, lambda *_: going.clear())
    parent = os.getppid()
    with contextlib.suppress(OSError):
        own = socket.create_connection((flow[1], port), WAIT_S * 5, (flow[0], 0))
        own.settimeout(WAIT_S)
        own.sendall(secret)
        while going and os.getppid() == parent:
            with contextlib.suppress(socket.timeout):
                sent += own.send(CHUNK)
    os.write(writing, str(sent).encode())
    os._exit(0)


def _ended(child: int, reading: int) -> float:
    """End a load's process, and return how many bytes it sent."""
    os.kill(child, signal.SIGTERM)
    with os.fdopen(reading) as reported:
        sent = float(reported.read() or 0)
    os.waitpid(child, 0)
    return sent


def _medians_ns(flows: list[list[Any]], secret: bytes, port: int, count: int) -> list[float]:
    """Median round trip of each flow, ns; the flows are probed in turn, since a queue comes and
    goes."""
    trips: list[list[int]] = [[] for _ in flows]
    for _ in range(count):
        for number, flow in enumerate(flows):
            trips[number].extend(round_trips(flow, secret, port, 1))
        time.sleep(SPREAD_S)
    return [statistics.median(each) if each else 0 for each in trips]


def round_trips(flow: list[Any], secret: bytes, port: int, count: int) -> list[int]:
    """Round trips of one flow, ns, one packet at a time; lost packets are left out."""
    source, destination, source_port = flow[:3]
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.settimeout(WAIT_S)
        with contextlib.suppress(OSError):
            own.bind((source, source_port))
            own.connect((destination, port))
            for number in range(count):
                start_ns = time.perf_counter_ns()
                with contextlib.suppress(socket.timeout):
                    own.send(REQUEST.pack(secret, number))
                    _await_reply(own, number)
                    found.append(time.perf_counter_ns() - start_ns)
    return found


def _await_reply(own: socket.socket, number: int) -> None:
    """Wait for the reply to this request; late replies to earlier requests are ignored."""
    while True:
        data = own.recv(2048)
        if len(data) == REPLY.size and REPLY.unpack(data)[1] == number:
            return


def ping(flows: list[list[Any]], secret: bytes, port: int, count: int) -> list[int]:
    """Smallest round trip of each flow, ns, one packet at a time; 0 without a reply."""
    return [min(round_trips(flow, secret, port, count), default=0) for flow in flows]


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


def trace(flow: list[Any], secret: bytes, port: int) -> list[str] | None:
    """Addresses of the hops of one flow, empty for a silent one; ``*`` at the end if it arrived;
    None if its source port is taken here.
    """
    source, destination, source_port = flow[:3]
    hops: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        try:
            own.bind((source, source_port))
        except OSError:
            return None
        own.settimeout(HOP_WAIT_S)
        for ttl in range(1, MAX_HOPS + 1):
            own.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
            answer = ""
            # A silent hop is often followed by others: only the first is retried.
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
    """Address of the router that reported the packet as expired."""
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


def obey(order: dict[str, Any], secret: bytes, port: int, received: set[Any]) -> Any:
    """Carry out an order that measures, and return its answer."""
    work: dict[str, Callable[[Any], Any]] = {
        "ask": lambda legs: ask(legs, secret, port, order["tries"]),
        "heard": lambda requested: [tuple(each) in received for each in requested],
        "ping": lambda flows: ping(flows, secret, port, order["count"]),
        "load": lambda flows: load(flows, secret, port, order["count"]),
        "trace": lambda flows: [trace(flow, secret, port) for flow in flows],
        "routes": lambda _: command_output("ip", "-j", "route", "show", "table", "all"),
        "lldp": lambda _: command_output("lldpctl", "-f", "json"),
    }
    return next((work[name](value) for name, value in order.items() if name in work), None)


def main() -> None:
    responder: Responder | None = None
    secret, port = b"", 0
    for line in sys.stdin:
        order = json.loads(line)
        if "interfaces" in order:
            answer: Any = interfaces(order["interfaces"])
        elif "serve" in order:
            secret, port = bytes.fromhex(order["secret"]), order["serve"]
            responder = Responder(secret, port)
            responder.start()
            answer = True
        elif "sink" in order:
            answer = bool(sink(secret, port))
        else:
            answer = obey(
                order, secret, port, responder.received if responder is not None else set()
            )
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

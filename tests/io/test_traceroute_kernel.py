"""Real routers: the hops of UDP and TCP flows over two equal ways, held against the way that plain
datagrams of the same flow take, in private namespaces."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

from tests.io.namespace import ip, run_alone

from syntony.fabric.learn import FlowKey, HopQuery
from syntony.io.traceroute import Traceroute
from syntony.model import MS

PORTS = range(61_000, 61_012)
PROTOCOLS = ("udp", "tcp")
SYSCTLS = {
    "ipv4/ip_forward": 1, "ipv6/conf/all/forwarding": 1, "ipv6/conf/default/accept_dad": 0,
    "ipv4/icmp_ratelimit": 0, "ipv6/icmp/ratelimit": 0,
    "ipv4/fib_multipath_hash_policy": 3, "ipv4/fib_multipath_hash_fields": 55,
    "ipv6/fib_multipath_hash_policy": 3, "ipv6/fib_multipath_hash_fields": 55,
}  # fmt: skip


def prefix(family: int, cable: int) -> str:
    return f"10.0.{cable}." if family == 4 else f"fd00:{cable:x}::"


def host(family: int, cable: int, number: int) -> str:
    return f"{prefix(family, cable)}{number}"


def build(family: int) -> None:
    """near - a - (b or c) - d - far, a cable a network: near's own is 1, far's is 6."""
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    nodes = ["a", "b", "c", "d", "far"]
    for node in nodes:
        ip(f"netns add {node}")
        subprocess.run(["ip", "netns", "exec", node, sys.executable, "-c", _SET], check=True)
    cables = [("", "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "far")]
    size = 24 if family == 4 else 64
    for number, (one, other) in enumerate(cables, start=1):
        ip(f"link add x{number} type veth peer name y{number}")
        for node, nic, own in ((one, f"x{number}", 1), (other, f"y{number}", 2)):
            within = f"-n {node} " if node else ""
            if node:
                ip(f"link set {nic} netns {node}")
            nodad = " nodad" if family == 6 else ""
            ip(f"{within}addr add {host(family, number, own)}/{size} dev {nic}{nodad}")
            ip(f"{within}link set {nic} up")

    def route(node: str, to: int, *via: tuple[int, int]) -> None:
        hops = " ".join(f"nexthop via {host(family, cable, end)}" for cable, end in via)
        within = f"-n {node} " if node else ""
        ip(f"{within}-{family} route add {host(family, to, 0)}/{size} {hops}")

    route("", 6, (1, 2))
    route("a", 6, (2, 2), (3, 2))
    for node, forth, back in (("b", 4, 2), ("c", 5, 3)):
        route(node, 6, (forth, 2))
        route(node, 1, (back, 1))
    route("d", 1, (4, 1), (5, 1))
    route("far", 1, (6, 1))


_SET = "from pathlib import Path\n" + "\n".join(
    f"Path('/proc/sys/net/{name}').write_text('{value}')" for name, value in SYSCTLS.items()
)


def taken(family: int, flow: FlowKey) -> str:
    """Who tells a plain socket of this flow that its datagram was given up at the second hop."""
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    level, hops, errors = (
        (socket.IPPROTO_IP, socket.IP_TTL, 11)
        if family == 4
        else (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 25)
    )
    with socket.socket(kind, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(level, hops, 2)
        sock.setsockopt(level, errors, 1)
        sock.bind((flow.src, flow.sport))
        sock.sendto(b"x", (flow.dst, flow.dport))
        for _ in range(500):
            try:
                _, control, _, _ = sock.recvmsg(100, 1_000, socket.MSG_ERRQUEUE)
            except BlockingIOError:
                time.sleep(0.01)
                continue
            # linux/errqueue.h: struct sock_extended_err, 16 bytes, and who it is from.
            data = next(each for *_, each in control)
            place = data[20:24] if family == 4 else data[24:40]
            return socket.inet_ntop(kind, place)
    raise AssertionError(f"nobody answered {flow}")


def trace(family: int) -> None:
    build(family)
    src, dst = host(family, 1, 1), host(family, 6, 2)
    asking = Traceroute({"x1": src})
    flows = [FlowKey("x1", src, dst, port, 8620, proto) for port in PORTS for proto in PROTOCOLS]
    heard: dict[HopQuery, str] = {}
    for ttl in (1, 2, 3, 4):
        for flow in flows:
            asking.send(HopQuery(flow, ttl), time.monotonic_ns())
        end_ns = time.monotonic_ns() + 900 * MS
        while time.monotonic_ns() < end_ns and (ttl == 4 or len(heard) < ttl * len(flows)):
            heard |= {each.ask: each.address for each in asking.receive(time.monotonic_ns())}
            time.sleep(0.01)
    asking.close()
    middles = set()
    for flow in flows:
        middle = heard[HopQuery(flow, 2)]
        assert heard[HopQuery(flow, 1)] == host(family, 1, 2), flow
        assert flow.proto != "udp" or middle == taken(family, flow), flow
        # The last router answers from the cable that the packet came in by.
        last = {host(family, 2, 2): host(family, 4, 2), host(family, 3, 2): host(family, 5, 2)}
        own = {host(family, 6, 1), *last.values()} if family == 6 else {last[middle]}
        assert heard[HopQuery(flow, 3)] in own, flow
        assert HopQuery(flow, 4) not in heard, "the far host says nothing"
        middles.add(middle)
    assert len(middles) == 2, "both ways are taken"


def trace_ipv4() -> None:
    trace(4)


def trace_ipv6() -> None:
    trace(6)


def test_hops_of_ipv4_flows_are_those_that_its_datagrams_take() -> None:
    run_alone(trace_ipv4)


def test_hops_of_ipv6_flows_are_those_that_its_datagrams_take() -> None:
    run_alone(trace_ipv6)


if __name__ == "__main__":
    globals()[sys.argv[1]]()

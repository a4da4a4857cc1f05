"""Translates a plan into batches for `ip`, `tc` and /proc/sys. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from syntony.lab.plan import CONTROLLER, LabPlan, Link, LinkKind, Port
from syntony.lab.routes import NamespaceRoute, source_rules

RULE_PREFERENCE = 1000
HASH_FIELDS = 55
"""Source and destination address, protocol, both ports: 0x1|0x2|0x4|0x10|0x20
(Documentation/networking/ip-sysctl.rst, fib_multipath_hash_fields)."""
HASH_POLICY = 3
"""Custom fields. Policy 1 would take a TCP packet's socket hash, which veth carries along, and make
paths random per connection."""
_FLOW_HANDLES = 0x100
"""Handles of faults' queueing disciplines, by the faults' numbers."""
_TCP = 6
_UNSHAPED = "10gbit"
"""Rate of the other flows' class: only the shaper above limits them."""

_EVERYWHERE = {
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/ignore_routes_with_linkdown": "1",
    "net/ipv4/conf/default/ignore_routes_with_linkdown": "1",
    "net/ipv4/ping_group_range": "0 0",
    "net/ipv6/conf/all/ignore_routes_with_linkdown": "1",
    "net/ipv6/conf/default/ignore_routes_with_linkdown": "1",
    "net/ipv6/conf/all/disable_ipv6": "0",
    "net/ipv6/conf/default/disable_ipv6": "0",
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv6/conf/default/accept_ra": "0",
    "net/ipv6/conf/all/keep_addr_on_down": "1",
    "net/ipv6/conf/default/keep_addr_on_down": "1",
}
_FORWARDING = {
    # Expired packets are answered as often as the control-plane policing of switches usually
    # allows, in ms between two answers to one host; the kernel's own default is 1000.
    "net/ipv4/icmp_ratelimit": "20",
    "net/ipv6/icmp/ratelimit": "20",
    "net/ipv4/ip_forward": "1",
    "net/ipv6/conf/all/forwarding": "1",
    "net/ipv6/conf/default/forwarding": "1",
    "net/ipv4/fib_multipath_hash_policy": str(HASH_POLICY),
    "net/ipv4/fib_multipath_hash_fields": str(HASH_FIELDS),
    "net/ipv6/fib_multipath_hash_policy": str(HASH_POLICY),
    "net/ipv6/fib_multipath_hash_fields": str(HASH_FIELDS),
}
SEED_SYSCTL = "net/ipv4/fib_multipath_hash_seed"
"""Both families use it; kernels before 6.11 have one seed for the whole machine instead."""


def sysctls(plan: LabPlan, node: str) -> dict[str, str]:
    """/proc/sys paths to values for one namespace, to be written before it gets interfaces."""
    if node in plan.hosts or node == CONTROLLER:
        return _EVERYWHERE
    return _EVERYWHERE | _FORWARDING


def hash_seed(plan: LabPlan, node: str) -> int:
    """The ECMP seed of one switch: never 0, which means the kernel's own random one."""
    return plan.spec.seed * 1000 + plan.nodes.index(node) + 1


def veth_lines(plan: LabPlan) -> list[str]:
    """One `ip -batch` line per link, creating both ends in their namespaces."""
    return [
        f"link add name {a.name} index {a.index} netns {a.node} type veth "
        f"peer name {b.name} index {b.index} netns {b.node}"
        for a, b in ((link.a, link.b) for link in plan.links)
    ]


def up_lines(plan: LabPlan, node: str) -> list[str]:
    """Ports up without addresses, to run inside `node`."""
    return [f"link set {link.port_at(node).name} up" for link in plan.links_of(node)]


def address_lines(plan: LabPlan, node: str) -> list[str]:
    """Addresses and link up, to run inside `node`."""
    lines = ["link set lo up"]
    for port in (link.port_at(node) for link in plan.links_of(node)):
        lines += [
            f"addr add {port.ipv4}/31 dev {port.name}",
            f"addr add {port.ipv6}/127 dev {port.name} nodad",
            f"link set {port.name} up",
        ]
    return lines


def route_lines(verb: str, routes: Iterable[NamespaceRoute]) -> list[str]:
    """`verb` is ``add``, ``replace`` or ``del``."""
    return [_route_line(verb, route) for route in routes]


def _route_line(verb: str, route: NamespaceRoute) -> str:
    head = f"route {verb} {route.prefix} table {route.table}"
    if verb == "del":
        return head
    if len(route.hops) == 1:
        return f"{head} via {route.hops[0].via} dev {route.hops[0].dev}"
    return head + "".join(f" nexthop via {hop.via} dev {hop.dev}" for hop in route.hops)


def rule_lines(plan: LabPlan, host: str, family: int) -> list[str]:
    """Per-NIC source rules of a host, for `ip -4 -batch` or `ip -6 -batch`."""
    return [
        f"rule add from {rule.source} table {rule.table} pref {RULE_PREFERENCE}"
        for rule in source_rules(plan, host)
        if rule.family == family
    ]


def shaper_lines(plan: LabPlan, node: str) -> list[str]:
    """A token bucket on every fabric port of `node`; the front-end network is not shaped."""
    return [
        shaper_line("add", plan, link.port_at(node), plan.spec.rate_bps)
        for link in plan.links_of(node)
        if link.kind is not LinkKind.MGMT
    ]


def shaper_line(verb: str, plan: LabPlan, port: Port, rate_bps: int) -> str:
    """One `tc -batch` line for `port`; `verb` is ``add`` or ``change``."""
    spec = plan.spec
    return (
        f"qdisc {verb} dev {port.name} root handle 1: tbf rate {rate_bps}bit "
        f"burst {spec.burst_bytes}b latency {spec.latency_ns // 1000}us"
    )


def flow_shaper_lines(port: Port, number: int, flow: tuple[int, int], rate_bps: int) -> list[str]:
    """A class of its own for one TCP flow, by its ports, below the shaper of `port`."""
    handle, (sport, dport) = _FLOW_HANDLES + number, flow
    of_port, at = f"dev {port.name}", f"{handle:x}:"
    shaped = f"htb rate {rate_bps}bit burst 2k quantum 60000"
    lines = [
        f"qdisc add {of_port} parent 1:1 handle {at} htb default 1",
        f"class add {of_port} parent {at} classid {at}1 htb rate {_UNSHAPED} quantum 60000",
        f"class add {of_port} parent {at} classid {at}2 {shaped}",
    ]
    fields = (f"protocol {_TCP} 0xff", f"sport {sport} 0xffff", f"dport {dport} 0xffff")
    for protocol, header in (("ip", "ip"), ("ipv6", "ip6")):
        match = " ".join(f"match {header} {field}" for field in fields)
        lines.append(
            f"filter add {of_port} parent {at} protocol {protocol} prio {len(lines)} "
            f"u32 {match} flowid {at}2"
        )
    return lines


def flow_shaper_end(port: Port, number: int) -> str:
    """Removes it and the shaper's own queue."""
    return f"qdisc del dev {port.name} parent 1:1 handle {_FLOW_HANDLES + number:x}:"


def restore_lines(link: Link) -> list[str]:
    """Restores the addresses of a host's NIC that is back, as a network manager does."""
    port = link.a
    return [
        f"addr replace {port.ipv4}/31 dev {port.name}",
        f"addr replace {port.ipv6}/127 dev {port.name} nodad",
    ]

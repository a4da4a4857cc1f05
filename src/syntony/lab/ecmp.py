"""Finds the path that a flow takes by asking the kernels that forward it.

IPv4: by `ip route get`, which forwards nothing. IPv6: by packets of the flow whose hop limit
expires at the second switch, as agents trace paths: with chosen hash fields (policy 3),
`ip -6 route get` of Linux 6.18 names a different spine than packets take for a third of all flows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing

from syntony.errors import MissingError, RemoteError, UsageError
from syntony.fabric.graph import canonical
from syntony.fabric.learn import INTERVAL_NS, TRIES, FlowKey, HopQuery
from syntony.io.traceroute import Traceroute
from syntony.lab import netns
from syntony.lab.messages import PathAnswer, PathRequest
from syntony.lab.plan import LabPlan, Link
from syntony.lab.relay import RelaySpot
from syntony.model import MS, S
from syntony.model.names import MAX_PORT

PROTOCOLS = ("udp", "tcp")
UNKNOWN = "?"
"""A spine that does not answer: the packet or the answer was lost."""
_SPINE_TTL = 2
_MAX_RELAYS = 2
"""Within the leaf: of packets that the host sends, and of those to the spine."""
_ANSWER_NS = 300 * MS
"""An answer within a lab takes a millisecond, plus what faults add."""


def paths(plan: LabPlan, request: PathRequest) -> tuple[PathAnswer, ...]:
    """The path of one flow per source port of `request`, with the current routes.

    Raises:
        UsageError: an unknown NIC, protocol or port.
        RemoteError: the leaf has no route there at present, or no packet can be sent from there.
    """
    src, dst = plan.nic(request.src), plan.nic(request.dst)
    _check(request)
    if request.family == 6:
        return _traced(plan, request, src, dst)
    devices = _ask(request, src, dst, src.b.name, list(request.sports))
    return tuple(
        _answer(plan, src, dst, sport, device)
        for sport, device in zip(request.sports, devices, strict=True)
    )


def _check(request: PathRequest) -> None:
    if request.src == request.dst:
        raise UsageError(f"{request.src} has no path to itself; name two NICs")
    if request.proto not in PROTOCOLS:
        raise UsageError(f"no protocol {request.proto!r}; use {' or '.join(PROTOCOLS)}")
    if request.family not in {4, 6}:
        raise UsageError(f"no address family {request.family}; use 4 or 6")
    for port in (request.dport, *request.sports):
        if not 0 < port <= MAX_PORT:
            raise UsageError(f"{port} is not a port number; use 1 to {MAX_PORT}")


def _traced(plan: LabPlan, request: PathRequest, src: Link, dst: Link) -> tuple[PathAnswer, ...]:
    """Over IPv6: each flow's own packets, sent from its host."""
    if src.b.node == dst.b.node:
        return tuple(_answer(plan, src, dst, sport, dst.a.node) for sport in request.sports)
    spines = {
        canonical(link.port_at(spine).ipv6): spine
        for spine in plan.spines
        for link in plan.links_of(spine)
    }
    ends = src.a.ipv6, dst.a.ipv6
    flows = [
        FlowKey(src.name, *ends, sport, request.dport, request.proto) for sport in request.sports
    ]
    try:
        with netns.entered(src.a.node), closing(Traceroute({src.name: src.a.ipv6})) as tracer:
            found = _spines(tracer, flows, spines)
    except MissingError as error:
        raise RemoteError(f"no packet of {src.name} can be sent: {error}") from error
    return tuple(_answer(plan, src, dst, flow.sport, found.get(flow, UNKNOWN)) for flow in flows)


def _spines(
    tracer: Traceroute, flows: Iterable[FlowKey], spines: Mapping[str, str]
) -> dict[FlowKey, str]:
    """Each flow's spine, of those that answer.

    Args:
        tracer: in the sender's namespace.
        flows: that cross one.
        spines: address to spine.
    """
    found: dict[FlowKey, str] = {}
    left = set(flows)
    for ttl in range(_SPINE_TTL, _SPINE_TTL + _MAX_RELAYS + 1):
        routers = _answers(tracer, left, ttl)
        found |= {flow: spines[at] for flow, at in routers.items() if at in spines}
        # A delay relay within the leaf is one more hop, for which the leaf answers again.
        left = routers.keys() - found.keys()
    return found


def _answers(tracer: Traceroute, flows: AbstractSet[FlowKey], ttl: int) -> dict[FlowKey, str]:
    """The address that answers for that hop of each flow; flows without an answer are left out."""
    found: dict[FlowKey, str] = {}
    for _ in range(TRIES):
        for flow in flows - found.keys():
            tracer.send(HopQuery(flow, ttl), time.monotonic_ns())
            time.sleep(INTERVAL_NS / S)
        end_ns = time.monotonic_ns() + _ANSWER_NS
        while len(found) < len(flows) and time.monotonic_ns() < end_ns:
            for answer in tracer.receive(time.monotonic_ns()):
                if answer.ask.ttl == ttl:
                    found[answer.ask.flow] = answer.address
            time.sleep(INTERVAL_NS / S)
        if len(found) == len(flows):
            break
    return found


def _ask(request: PathRequest, src: Link, dst: Link, iif: str, sports: list[int]) -> list[str]:
    """Where the source's leaf sends each flow over IPv4, looking through delay relays."""
    ends = (src.a.ipv4, dst.a.ipv4)
    lines = [
        f"route get {ends[1]} from {ends[0]} iif {iif} ipproto {request.proto} "
        f"sport {sport} dport {request.dport}"
        for sport in sports
    ]
    argv = ["ip", "-4", "-json", "-batch", "-"]
    try:
        said = netns.tool(src.b.node, argv, "\n".join(lines) + "\n")
    except MissingError as error:
        raise RemoteError(f"{src.b.node} has no route from {src.name} to {dst.name} now") from error
    devices = _devices(said)
    relays = {RelaySpot(src.b, None).device, RelaySpot(dst.b, dst.a).device} - {iif}
    for relay in relays & set(devices):
        again = [i for i, device in enumerate(devices) if device == relay]
        way = _ask(request, src, dst, relay, [sports[i] for i in again])
        for i, device in zip(again, way, strict=True):
            devices[i] = device
    return devices


def _devices(said: str) -> list[str]:
    """`ip -json -batch` prints one JSON array per line of the batch."""
    decoder = json.JSONDecoder()
    devices: list[str] = []
    at = 0
    while at < len(said):
        value, at = decoder.raw_decode(said, at)
        devices.append(str(value[0].get("dev", "")))
        while at < len(said) and said[at].isspace():
            at += 1
    return devices


def _answer(plan: LabPlan, src: Link, dst: Link, sport: int, device: str) -> PathAnswer:
    host, leaf = src.a.node, src.b.node
    if device in {*plan.spines, UNKNOWN}:
        return PathAnswer(
            sport=sport, spine=device, hops=(host, leaf, device, dst.b.node, dst.a.node)
        )
    if src.b.node != dst.b.node:
        raise RemoteError(f"{leaf} sends {src.name} → {dst.name} to {device or 'nowhere'}")
    return PathAnswer(sport=sport, spine=None, hops=(host, leaf, dst.a.node))

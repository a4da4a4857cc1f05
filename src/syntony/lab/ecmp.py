"""Which way a flow takes, asked of the kernels that will forward it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from syntony.errors import MissingError, RemoteError, UsageError
from syntony.lab import netns
from syntony.lab.messages import PathAnswer, PathRequest
from syntony.lab.relay import RelaySpot

if TYPE_CHECKING:
    from syntony.lab.plan import Link, Plan, Port

PROTOCOLS = ("udp", "tcp")
_MAX_PORT = 65535


def paths(plan: Plan, request: PathRequest) -> tuple[PathAnswer, ...]:
    """The way of one flow per source port of `request`, with the routes as they are now.

    Raises:
        UsageError: an unknown NIC, protocol or port.
        RemoteError: the leaf has no route there at present.
    """
    src, dst = plan.nic(request.src), plan.nic(request.dst)
    _check(request)
    devices = _ask(request, src, dst, src.b.name, list(request.sports))
    return tuple(
        _answer(plan, src, dst, sport, device)
        for sport, device in zip(request.sports, devices, strict=True)
    )


def _check(request: PathRequest) -> None:
    if request.src == request.dst:
        raise UsageError(f"{request.src} to itself takes no path; name two NICs")
    if request.proto not in PROTOCOLS:
        raise UsageError(f"no protocol {request.proto!r}; use {' or '.join(PROTOCOLS)}")
    if request.family not in {4, 6}:
        raise UsageError(f"no address family {request.family}; use 4 or 6")
    for port in (request.dport, *request.sports):
        if not 0 < port <= _MAX_PORT:
            raise UsageError(f"{port} is not a port number; use 1 to {_MAX_PORT}")


def _ask(request: PathRequest, src: Link, dst: Link, iif: str, sports: list[int]) -> list[str]:
    """Where the source's leaf sends each flow, looking through delay relays."""
    ends = (src.a.ipv4, dst.a.ipv4) if request.family == 4 else (src.a.ipv6, dst.a.ipv6)
    lines = [
        f"route get {ends[1]} from {ends[0]} iif {iif} ipproto {request.proto} "
        f"sport {sport} dport {request.dport}"
        for sport in sports
    ]
    argv = ["ip", f"-{request.family}", "-json", "-batch", "-"]
    try:
        said = netns.tool(src.b.node, argv, "\n".join(lines) + "\n")
    except MissingError as error:
        raise RemoteError(f"{src.b.node} has no route from {src.name} to {dst.name} now") from error
    devices = _devices(said)
    relays = {_relay(src.b, None), _relay(dst.b, dst.a)} - {iif}
    for relay in relays & set(devices):
        again = [i for i, device in enumerate(devices) if device == relay]
        way = _ask(request, src, dst, relay, [sports[i] for i in again])
        for i, device in zip(again, way, strict=True):
            devices[i] = device
    return devices


def _relay(port: Port, to: Port | None) -> str:
    return RelaySpot(port, to).device


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


def _answer(plan: Plan, src: Link, dst: Link, sport: int, device: str) -> PathAnswer:
    host, leaf = src.a.node, src.b.node
    if device in plan.spines:
        return PathAnswer(
            sport=sport, spine=device, hops=(host, leaf, device, dst.b.node, dst.a.node)
        )
    if src.b.node != dst.b.node:
        raise RemoteError(f"{leaf} sends {src.name} → {dst.name} to {device or 'nowhere'}")
    return PathAnswer(sport=sport, spine=None, hops=(host, leaf, dst.a.node))

"""Routing tables as devices print them: iproute2's JSON, FRR's JSON (also SONiC, Cumulus). Pure."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from syntony.audit.facts import UnreadableError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
MAIN = "main"
_NO_WAY = frozenset({"blackhole", "unreachable", "prohibit", "throw"})
_NOT_FORWARDED = frozenset({"broadcast", "multicast", "anycast"})
_GONE = frozenset({"dead", "linkdown"})


class KernelRoute(NamedTuple):
    """One destination of one table."""

    table: str
    network: Network
    hops: tuple[str, ...]
    """Addresses of next hops; empty where it is connected, or thrown away."""
    thrown: str = ""
    """``blackhole``, ``unreachable``…; empty where packets are forwarded."""


class RoutingTable(NamedTuple):
    """What one device forwards by."""

    device: str
    own: frozenset[str]
    """Its own addresses, where it reports them."""
    routes: tuple[KernelRoute, ...]


def parse_routes(text: str, device: str) -> RoutingTable:
    """A device's table, whichever of the two forms it is in. Raises `UnreadableError`: it is
    neither, or is cut off."""
    try:
        reported = json.loads(text)
    except ValueError as error:
        raise UnreadableError(f"{device}: no JSON of `ip -j route` or FRR: {error}") from error
    try:
        if isinstance(reported, list):
            return _iproute(reported, device)
        if isinstance(reported, dict):
            return RoutingTable(device, frozenset(), tuple(_frr(reported)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableError(f"{device}: an invalid entry: {error}") from error
    raise UnreadableError(f"{device}: neither `ip -j route` nor FRR's `show ip route json`")


def _iproute(reported: list[Any], device: str) -> RoutingTable:
    """``ip -j route show table all`` (iproute2, ip/iproute.c)."""
    own, routes = set(), []
    for each in reported:
        kind = str(each.get("type", "unicast"))
        if kind == "local":
            host = _network(str(each["dst"]), v6=False)
            if host.prefixlen == host.max_prefixlen:  # 127.0.0.0/8 is nobody's address
                own.add(str(host.network_address))
            continue
        first = next((hop.get("gateway", "") for hop in each.get("nexthops", [each])), "")
        network = _network(str(each["dst"]), v6=":" in first)
        if kind in _NOT_FORWARDED or network.is_multicast or network.is_link_local:
            continue
        thrown = kind if kind in _NO_WAY else ""
        hops = () if thrown else tuple(_vias(each))
        routes.append(KernelRoute(str(each.get("table", MAIN)), network, hops, thrown))
    return RoutingTable(device, frozenset(own), tuple(routes))


def _vias(route: Mapping[str, Any]) -> Iterator[str]:
    for hop in route.get("nexthops", [route]):
        via = hop.get("gateway") or hop.get("via", {}).get("host", "")
        if via and not _GONE & set(hop.get("flags", ())):
            yield str(via)


def _network(text: str, *, v6: bool) -> Network:
    if text == "default":
        return ipaddress.ip_network("::/0" if v6 else "0.0.0.0/0")
    return ipaddress.ip_network(text, strict=False)


def _frr(reported: Mapping[str, Any]) -> Iterator[KernelRoute]:
    """``show ip route json`` (FRR, zebra/zebra_vty.c): what is selected, next hops in the FIB."""
    for prefix, entries in reported.items():
        for each in entries:
            if not each.get("selected") and not each.get("destSelected"):
                continue
            hops = [hop for hop in each["nexthops"] if hop.get("fib") or hop.get("active")]
            vias = tuple(str(hop["ip"]) for hop in hops if hop.get("ip"))
            thrown = next((str(k) for hop in hops for k in _NO_WAY if hop.get(k)), "")
            yield KernelRoute(
                str(each.get("vrfName", MAIN)), ipaddress.ip_network(prefix), vias, thrown
            )

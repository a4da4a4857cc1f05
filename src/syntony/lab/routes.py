"""Which routes every namespace should have, given what has failed. Pure.

Valley-free leaf-spine routing, as BGP with one AS per leaf gives it (RFC 7938): a leaf spreads over
every spine that it reaches and that reaches the destination's leaf.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from syntony.lab.plan import (
    CONTROLLER,
    MGMT_PREFIXES,
    LabPlan,
    Link,
    LinkKind,
    Port,
    leaf_prefixes,
    rail_prefixes,
)

MAIN = "main"
FIRST_TABLE = 100
MGMT_TABLE = 200
FAMILIES = (4, 6)
_DEFAULT = {4: "0.0.0.0/0", 6: "::/0"}


class NextHop(NamedTuple):
    """Where a route leads: the neighbour's address and the local port towards it."""

    via: str
    dev: str


class NamespaceRoute(NamedTuple):
    """One route of one namespace; several next hops share the flows (ECMP)."""

    table: str
    prefix: str
    hops: tuple[NextHop, ...]


class SourceRule(NamedTuple):
    """Packets from `source` use `table`."""

    family: int
    source: str
    table: str


def routes(
    plan: LabPlan, failed_links: Collection[str] = ()
) -> dict[str, tuple[NamespaceRoute, ...]]:
    """The route set of every namespace once routing has converged without these links
    (``leaf0-1/spine0``)."""
    alive = {
        (link.a.node, link.b.node): link
        for link in plan.of_kind(LinkKind.FABRIC)
        if link.name not in failed_links
    }
    table: dict[str, tuple[NamespaceRoute, ...]] = {
        host: host_routes(plan, host) for host in plan.hosts
    }
    table[CONTROLLER] = host_routes(plan, CONTROLLER)
    for leaf in plan.leaves:
        table[leaf] = tuple(_leaf_routes(plan, alive, leaf))
    for spine in plan.spines:
        table[spine] = tuple(_spine_routes(plan, alive, spine))
    return table


def host_routes(plan: LabPlan, host: str) -> tuple[NamespaceRoute, ...]:
    """What a network manager installs on a host: one table per NIC, and each network by its NIC."""
    return tuple(
        route
        for link in plan.links_of(host)
        if link.kind is not LinkKind.FABRIC and link.a.node == host
        for route in nic_routes(link)
    )


def nic_routes(link: Link) -> tuple[NamespaceRoute, ...]:
    """The routes that go with one NIC of a host, lost when it goes down."""
    networks = MGMT_PREFIXES if link.kind is LinkKind.MGMT else rail_prefixes(_rail(link))
    made: list[NamespaceRoute] = []
    for family, network in zip(FAMILIES, networks, strict=True):
        hop = (_hop(link.a, link.b, family),)
        made += [
            NamespaceRoute(_table(link), _DEFAULT[family], hop),
            NamespaceRoute(MAIN, network, hop),
        ]
    return tuple(made)


def source_rules(plan: LabPlan, host: str) -> tuple[SourceRule, ...]:
    """Per-NIC source routing of a host, both families."""
    return tuple(
        SourceRule(family, link.a.address(family), _table(link))
        for link in plan.links_of(host)
        for family in FAMILIES
    )


def _leaf_routes(
    plan: LabPlan, alive: dict[tuple[str, str], Link], leaf: str
) -> Iterator[NamespaceRoute]:
    for other in plan.leaves:
        via = [s for s in plan.spines if (leaf, s) in alive and (other, s) in alive]
        if other == leaf or not via:
            continue
        for family, prefix in zip(FAMILIES, leaf_prefixes(other), strict=True):
            links = (alive[leaf, spine] for spine in via)
            yield NamespaceRoute(
                MAIN, prefix, tuple(_hop(link.a, link.b, family) for link in links)
            )


def _spine_routes(
    plan: LabPlan, alive: dict[tuple[str, str], Link], spine: str
) -> Iterator[NamespaceRoute]:
    for leaf in plan.leaves:
        link = alive.get((leaf, spine))
        if link is None:
            continue
        for family, prefix in zip(FAMILIES, leaf_prefixes(leaf), strict=True):
            yield NamespaceRoute(MAIN, prefix, (_hop(link.b, link.a, family),))


def _hop(local: Port, remote: Port, family: int) -> NextHop:
    return NextHop(remote.address(family), local.name)


def _rail(link: Link) -> int:
    return int(link.a.name.removeprefix("rail"))


def _table(link: Link) -> str:
    return str(MGMT_TABLE if link.kind is LinkKind.MGMT else FIRST_TABLE + _rail(link))

"""Routing by simulation: packets walk over the route sets, whatever has failed."""

from __future__ import annotations

import ipaddress
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.lab.plan import FabricSpec, LabPlan, Link, LinkKind, make_plan
from syntony.lab.routes import MAIN, NamespaceRoute, routes

_SIZES = st.builds(
    FabricSpec,
    hosts=st.integers(2, 9),
    rails=st.integers(1, 3),
    leaves=st.integers(1, 2),
    spines=st.integers(1, 3),
)
_plans = _SIZES.map(make_plan)
_MAX_HOPS = 6


class Walker:
    """Forwards one packet along every equal-cost choice at once."""

    def __init__(self, plan: LabPlan, failed: set[str]) -> None:
        self.plan = plan
        self.failed = failed
        self.routes = routes(plan, failed)
        self.ends = {str(p): (link, p) for link in plan.links for p in (link.a, link.b)}

    def ways(self, src: Link, dst: Link, family: int) -> set[tuple[str, ...]]:
        """Every path that a packet may take; a dead end is a path that does not end at `dst`."""
        target = dst.a.ipv4 if family == 4 else dst.a.ipv6
        done: set[tuple[str, ...]] = set()
        open_: list[tuple[str, ...]] = [(src.a.node, src.b.node)]
        while open_:
            path = open_.pop()
            nexts = self._next(path[-1], target)
            if not nexts or len(path) > _MAX_HOPS:
                done.add(path)
            open_ += [(*path, node) for node in nexts if node != dst.a.node]
            done |= {(*path, node) for node in nexts if node == dst.a.node}
        return done

    def _next(self, node: str, target: str) -> list[str]:
        for link in self.plan.links_of(node):
            other = link.b if link.a.node == node else link.a
            if target in {other.ipv4, other.ipv6}:
                return [other.node]
        best = self._longest(self.routes.get(node, ()), target)
        hops = [] if best is None else [f"{node}/{hop.dev}" for hop in best.hops]
        peers = []
        for end in hops:
            link, port = self.ends[end]
            assert link.name not in self.failed, f"{node} routes over dead {link.name}"
            peers.append((link.b if port == link.a else link.a).node)
        return peers

    @staticmethod
    def _longest(table: tuple[NamespaceRoute, ...], target: str) -> NamespaceRoute | None:
        address = ipaddress.ip_address(target)
        fit = [
            (ipaddress.ip_network(route.prefix).prefixlen, route)
            for route in table
            if route.table == MAIN and address in ipaddress.ip_network(route.prefix)
        ]
        return max(fit, key=lambda item: item[0])[1] if fit else None


def _pairs(plan: LabPlan) -> list[tuple[Link, Link]]:
    return list(itertools.permutations(plan.of_kind(LinkKind.RAIL), 2))


@given(_plans, st.data())
@settings(deadline=None)
def test_healthy_fabric_reaches_everything_over_every_spine(
    plan: LabPlan, data: st.DataObject
) -> None:
    walker = Walker(plan, set())
    src, dst = data.draw(st.sampled_from(_pairs(plan)))
    for family in (4, 6):
        ways = walker.ways(src, dst, family)
        assert all(way[-1] == dst.a.node for way in ways)
        assert len(ways) == (1 if src.b.node == dst.b.node else plan.spec.spines)


@given(_plans, st.data())
@settings(deadline=None)
def test_a_pair_is_reached_exactly_if_a_spine_joins_both_leaves(
    plan: LabPlan, data: st.DataObject
) -> None:
    names = [link.name for link in plan.of_kind(LinkKind.FABRIC)]
    failed = data.draw(st.sets(st.sampled_from(names)))
    src, dst = data.draw(st.sampled_from(_pairs(plan)))
    joined = src.b.node == dst.b.node or any(
        not {f"{src.b.node}/{spine}", f"{dst.b.node}/{spine}"} & failed for spine in plan.spines
    )
    for family in (4, 6):
        ways = Walker(plan, failed).ways(src, dst, family)
        assert all((way[-1] == dst.a.node) is joined for way in ways)


@given(_plans)
@settings(deadline=None)
def test_hosts_answer_by_the_nic_that_was_asked(plan: LabPlan) -> None:
    table = routes(plan)
    for link in plan.of_kind(LinkKind.RAIL):
        own = f"{100 + int(link.a.name.removeprefix('rail'))}"
        ways = [route for route in table[link.a.node] if route.table == own]
        assert {route.prefix for route in ways} == {"0.0.0.0/0", "::/0"}
        assert {hop.dev for route in ways for hop in route.hops} == {link.a.name}

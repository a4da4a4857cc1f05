"""The fabric plan: every size is complete, regular and free of clashes."""

from __future__ import annotations

import ipaddress
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.errors import UsageError
from syntony.lab import commands
from syntony.lab.plan import FabricSpec, LinkKind, leaf_prefixes, make_plan, unknown


@st.composite
def specs(draw: st.DrawFn) -> FabricSpec:
    hosts = draw(st.integers(2, 64))
    return FabricSpec(
        hosts=hosts,
        rails=draw(st.integers(1, 8)),
        leaves=draw(st.integers(1, min(16, hosts))),
        spines=draw(st.integers(1, 16)),
    )


@given(specs())
@settings(deadline=None, max_examples=15)
def test_every_port_is_unique(spec: FabricSpec) -> None:
    plan = make_plan(spec)
    ports = [port for link in plan.links for port in (link.a, link.b)]
    for values in (
        [port.index for port in ports],
        [port.ipv4 for port in ports],
        [ipaddress.ip_address(port.ipv6) for port in ports],
        [(port.node, port.name) for port in ports],
    ):
        assert max(Counter(values).values()) == 1
    assert all(len(port.name) <= 15 for port in ports)


@given(specs())
@settings(deadline=None, max_examples=15)
def test_both_ends_of_a_link_share_a_network_and_no_two_links_do(spec: FabricSpec) -> None:
    plan = make_plan(spec)
    networks = Counter[object]()
    for link in plan.links:
        for pair, length in (((link.a.ipv4, link.b.ipv4), 31), ((link.a.ipv6, link.b.ipv6), 127)):
            nets = {ipaddress.ip_network(f"{address}/{length}", strict=False) for address in pair}
            assert len(nets) == 1
            networks.update(nets)
    assert max(networks.values()) == 1


@given(specs())
@settings(deadline=None, max_examples=15)
def test_sizes(spec: FabricSpec) -> None:
    plan = make_plan(spec)
    assert len(plan.of_kind(LinkKind.RAIL)) == spec.hosts * spec.rails
    assert len(plan.of_kind(LinkKind.FABRIC)) == spec.rails * spec.leaves * spec.spines
    assert len(plan.of_kind(LinkKind.MGMT)) == spec.hosts + 1
    assert len(set(plan.nodes)) == len(plan.nodes)


@given(specs())
@settings(deadline=None, max_examples=15)
def test_hosts_fill_leaves_in_even_blocks(spec: FabricSpec) -> None:
    plan = make_plan(spec)
    loads = Counter(link.b.node for link in plan.of_kind(LinkKind.RAIL))
    assert set(loads) == set(plan.leaves)
    assert max(loads.values()) - min(loads.values()) <= 1
    order = [link.b.node for link in plan.of_kind(LinkKind.RAIL) if link.a.name == "rail0"]
    assert order == sorted(order, key=plan.leaves.index)


@given(specs())
@settings(deadline=None, max_examples=15)
def test_a_leafs_prefix_covers_its_hosts_and_nothing_else(spec: FabricSpec) -> None:
    plan = make_plan(spec)
    for leaf in plan.leaves:
        v4, v6 = (ipaddress.ip_network(prefix) for prefix in leaf_prefixes(leaf))
        rails = plan.of_kind(LinkKind.RAIL)
        behind = {link.name for link in rails if link.b.node == leaf}
        assert {link.name for link in rails if ipaddress.ip_address(link.a.ipv4) in v4} == behind
        assert {link.name for link in rails if ipaddress.ip_address(link.a.ipv6) in v6} == behind


@given(specs())
@settings(deadline=None, max_examples=15)
def test_every_switch_has_its_own_hash_seed(spec: FabricSpec) -> None:
    plan = make_plan(spec)
    seeds = [commands.hash_seed(plan, node) for node in plan.switches]
    assert len(set(seeds)) == len(seeds)
    assert 0 not in seeds


def test_same_spec_same_plan() -> None:
    assert make_plan(FabricSpec()) == make_plan(FabricSpec())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (FabricSpec(hosts=1), "2 to 64"),
        (FabricSpec(hosts=65), "2 to 64"),
        (FabricSpec(rails=0), "1 to 8"),
        (FabricSpec(spines=17), "1 to 16"),
        (FabricSpec(hosts=2, leaves=3), "at most one per host"),
    ],
)
def test_sizes_out_of_range(spec: FabricSpec, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_plan(spec)


@pytest.mark.parametrize(
    ("name", "near"),
    [("h3/rail9", "h3/rail"), ("leaf0-1/spine7", "leaf0-1/spine"), ("zzz", "known")],
)
def test_an_unknown_link_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UsageError, match=near):
        make_plan(FabricSpec()).link(name)


def test_an_unknown_node_names_those_that_there_are_kind_by_kind() -> None:
    nodes = ("h0", "h1", "h2", "leaf0-0", "leaf0-1", "spine0", "fe0", "ctl")
    said = str(unknown("host", "nonsense", nodes))
    assert said.endswith("known: h0 … h2, leaf0-0 … leaf0-1, spine0, fe0, ctl")
    links = ("h0/rail0", "h1/rail0", "leaf0-0/spine0", "leaf0-0/spine1")
    said = str(unknown("link", "nonsense", links))
    assert said.endswith("known: h0/rail0 … h1/rail0, leaf0-0/spine0 … leaf0-0/spine1")

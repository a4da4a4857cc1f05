"""Fabrics: names, paths, what is dead."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from syntony.errors import InputError
from syntony.fabric.files import parse_topology
from syntony.sim.fluid.clos import LeafSpine, ThreeTier
from syntony.sim.fluid.graph_net import GraphNet
from syntony.sim.fluid.net import Net, break_cables
from syntony.sim.fluid.scenario import damage

TOML = """
[[cable]]
a = "h0/nic0"
b = "leaf0"
[[cable]]
a = "h1/nic0"
b = "leaf1"
[[cable]]
a = "leaf0"
b = "spine0"
[[cable]]
a = "leaf1"
b = "spine0"
[[cable]]
a = "leaf0"
b = "spine1"
gbps = 40
[[cable]]
a = "leaf1"
b = "spine1"
gbps = 40
""" + "".join(
    f'[[device]]\nname = "{name}"\n'
    for name in ("h0/nic0", "h1/nic0", "leaf0", "leaf1", "spine0", "spine1")
)


def named(net: Net, src: int, dst: int) -> list[list[str]]:
    found = net.candidates(np.array([src]), np.array([dst]))
    return [[net.link_name(k) for k in way if k >= 0] for way in found.ways.tolist()]


def test_leaf_spine_paths_by_name() -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=2, spines=2)
    assert named(net, 0, 1) == [["n0->leaf0", "leaf0->n1"]]
    assert named(net, 1, 2) == [
        ["n1->leaf0", f"leaf0->spine{s}", f"spine{s}->leaf1", "leaf1->n2"] for s in (0, 1)
    ]


def test_rails_put_a_hosts_nics_on_neighbouring_leaves() -> None:
    net = LeafSpine(leaves=4, hosts_per_leaf=2, spines=2, rails=2)
    assert net.leaf.tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert net.position.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]


def test_planes_share_a_nics_line_rate_and_never_meet() -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=1, spines=2, planes=2)
    paths = named(net, 0, 1)
    assert len(paths) == 4
    assert paths[2] == [
        "n0->p1-leaf0",
        "p1-leaf0->p1-spine0",
        "p1-spine0->p1-leaf1",
        "p1-leaf1->n1",
    ]
    assert set(net.capacity.tolist()) == {50.0}


def test_three_tiers_have_paths_as_short_as_can_be() -> None:
    net = ThreeTier(pods=2, leaves=2, hosts_per_leaf=2, aggs=2, cores=3)
    lengths = [{len(path) for path in named(net, 0, other)} for other in (1, 2, 4)]
    assert lengths == [{2}, {4}, {6}]
    assert [len(named(net, 0, other)) for other in (1, 2, 4)] == [1, 2, 6]
    assert named(net, 0, 7)[4] == [
        "n0->leaf0", "leaf0->agg0-0", "agg0-0->core0-2", "core0-2->agg1-0", "agg1-0->leaf3",
        "leaf3->n7",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "net",
    [
        LeafSpine(leaves=4, hosts_per_leaf=3, spines=2, rails=2, planes=2),
        ThreeTier(pods=2, leaves=3, hosts_per_leaf=2, aggs=2, cores=2),
        GraphNet(parse_topology(TOML)),
    ],
)
def test_every_link_has_one_name_and_its_way_back(net: Net) -> None:
    names = net.link_numbers()
    assert len(names) == net.links
    for name in names:
        a, _, b = name.partition("->")
        assert f"{b}->{a}" in names


@pytest.mark.parametrize(
    "net",
    [
        LeafSpine(leaves=3, hosts_per_leaf=2, spines=3, planes=2),
        ThreeTier(pods=2, leaves=2, hosts_per_leaf=2, aggs=2, cores=2),
    ],
)
def test_paths_are_connected_from_sender_to_receiver(net: Net) -> None:
    for src in range(net.nics):
        for dst in range(net.nics):
            for path in named(net, src, dst) if src != dst else []:
                ends = [link.split("->") for link in path]
                assert ends[0][0] == net.nic_name(src)
                assert ends[-1][1] == net.nic_name(dst)
                assert all(a[1] == b[0] for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize("planes", [1, 2])
def test_alternatives_by_rule_are_those_found_by_listing_paths(planes: int) -> None:
    net = LeafSpine(leaves=3, hosts_per_leaf=2, spines=3, planes=planes)
    src, dst = (ends.ravel() for ends in np.mgrid[: net.nics, : net.nics])
    far = net.leaf[src] != net.leaf[dst]
    listed = Net.alternatives(net, src[far], dst[far])
    assert (net.alternatives(src[far], dst[far]) == listed).all()


def test_a_cabled_topology_has_its_own_speeds_and_all_shortest_paths() -> None:
    net = GraphNet(parse_topology(TOML), gbps=100)
    assert len(named(net, 0, 1)) == 2
    speeds = {net.link_name(k): net.capacity[k] for k in range(net.links)}
    assert speeds["leaf0->spine1"] == speeds["spine1->leaf0"] == 40
    assert speeds["leaf0->spine0"] == 100


def test_the_same_fabric_by_rule_and_by_cables_is_the_same() -> None:
    rule = LeafSpine(leaves=3, hosts_per_leaf=2, spines=2)
    cables = sorted({tuple(sorted(name.split("->"))) for name in rule.link_numbers()})
    names = sorted({end for cable in cables for end in cable})
    kinds = {name: "nic" if name.startswith("n") else "component" for name in names}
    text = "".join(f'[[device]]\nname = "{n}"\nkind = "{kinds[n]}"\n' for n in names)
    text += "".join(f'[[cable]]\na = "{a}"\nb = "{b}"\n' for a, b in cables)
    net = GraphNet(parse_topology(text))
    for src, dst in ((0, 1), (0, 2), (5, 1)):
        assert sorted(named(net, src, dst)) == sorted(named(rule, src, dst))
    assert net.position.tolist() == rule.position.tolist()


def test_cables_have_100_gbps_unless_told_otherwise() -> None:
    for kind in (LeafSpine, ThreeTier):
        assert set(kind().capacity.tolist()) == {100.0}
        thick = kind(gbps=400, uplink_gbps=800)
        assert set(thick.capacity[: 2 * thick.nics].tolist()) == {400.0}
        assert set(thick.capacity[2 * thick.nics :].tolist()) == {800.0}
    assert set(GraphNet(parse_topology(TOML)).capacity.tolist()) == {40.0, 100.0}


def test_dead_cables_are_on_no_path() -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=2, spines=2)
    assert damage(net, ["leaf0--spine1"], [], 1) == ["leaf0--spine1"]
    assert all("spine1" not in link for path in named(net, 0, 2) for link in path)
    damage(net, [], ["leaf0->spine0=40"], 1)
    assert net.capacity[net.link_numbers()["leaf0->spine0"]] == 40
    assert net.capacity[net.link_numbers()["spine0->leaf0"]] == 100
    damage(net, ["spine0->leaf1"], [], 1)
    with pytest.raises(InputError, match=r"disconnected: no living path from n0 to n2"):
        net.candidates(np.array([0]), np.array([2]))


def test_random_dead_cables_are_of_the_fabric_and_both_ways() -> None:
    net = LeafSpine(leaves=4, hosts_per_leaf=2, spines=4)
    assert len(list(break_cables(net, 5, np.random.default_rng(1)))) == 5
    assert (net.capacity == 0).sum() == 10
    assert (net.capacity[: 2 * net.nics] > 0).all()


@pytest.mark.parametrize(
    ("dead", "speeds", "text"),
    [
        (["leaf9--spine0"], [], "unknown-link"),
        (["99"], [], "too-many-dead"),
        ([], ["leaf0--spine0=fast"], "bad-speed"),
        ([], ["40"], "unknown-link"),
    ],
)
def test_damage_that_cannot_be(dead: list[str], speeds: list[str], text: str) -> None:
    with pytest.raises(InputError, match=text):
        damage(LeafSpine(leaves=2, hosts_per_leaf=2, spines=2), dead, speeds, 1)


def test_shapes_that_cannot_be() -> None:
    with pytest.raises(InputError, match="bad-topology"):
        LeafSpine(leaves=0)
    with pytest.raises(InputError, match="no multiple"):
        LeafSpine(leaves=3, rails=2)
    with pytest.raises(InputError, match="no-nics"):
        GraphNet(parse_topology('[[device]]\nname = "leaf0"\n'))

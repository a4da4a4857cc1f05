from collections import Counter
from functools import partial
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.mesh import plan as planner
from syntony.mesh.plan import (
    MeshNic,
    make_plan,
    mesh,
    ports_to_cover,
    survives_any_host,
    with_spares,
)
from syntony.model import NicRef


def fleet(hosts: int, rails: int) -> list[NicRef]:
    return [NicRef(f"h{host}", f"rail{rail}") for host, rail in product(range(hosts), range(rails))]


def mesh_nics(hosts: int, rails: int) -> list[MeshNic]:
    return [
        MeshNic(
            ref=ref, nic_id=number, rail=0, address=f"10.0.{number}.1", port=8620, clock=ref.host
        )
        for number, ref in enumerate(fleet(hosts, rails), start=1)
    ]


@settings(max_examples=60, deadline=None)
@given(
    hosts=st.integers(3, 40), rails=st.integers(1, 8), peers=st.integers(2, 12), seed=st.integers()
)
def test_the_mesh_is_regular_connected_and_survives_any_host(
    hosts: int, rails: int, peers: int, seed: int
) -> None:
    adjacency = mesh(fleet(hosts, rails), peers=peers, seed=seed)
    assert survives_any_host(adjacency)
    for ref, others in adjacency.items():
        assert all(other.host != ref.host for other in others)
        assert all(ref in adjacency[other] for other in others)
    wanted = min(peers, (hosts - 1) * rails)
    degrees = Counter(len(others) for others in adjacency.values())
    # Where an odd sum of degrees cannot be met, one NIC has one peer less.
    assert degrees[wanted] >= hosts * rails - 1
    assert max(degrees) <= wanted


@pytest.mark.parametrize(
    ("edges", "survives"),
    [
        ([("a", "b"), ("b", "c"), ("c", "a")], True),
        ([("a", "b"), ("b", "c")], False),  # b is a cut
        ([("a", "b"), ("c", "d")], False),  # two islands
        ([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "c")], False),
        ([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")], True),
        ([("a", "b")], True),
    ],
)
def test_survival_is_judged_right(edges: list[tuple[str, str]], survives: bool) -> None:
    adjacency: dict[NicRef, set[NicRef]] = {}
    for one, other in edges:
        a, b = NicRef(one, "rail0"), NicRef(other, "rail0")
        adjacency.setdefault(a, set()).add(b)
        adjacency.setdefault(b, set()).add(a)
    assert survives_any_host(adjacency) is survives


def joined(hosts: set[str], edges: list[tuple[str, str]]) -> bool:
    """Whether one can walk from any of these hosts to any other by way of these alone."""
    reached, fresh = set(), set(sorted(hosts)[:1])
    while fresh:
        reached |= fresh
        ends = [*edges, *(edge[::-1] for edge in edges)]
        fresh = {b for a, b in ends if a in reached and b in hosts} - reached
    return reached == hosts


@given(
    st.lists(st.tuples(st.sampled_from("abcdefg"), st.sampled_from("abcdefg")), max_size=14).map(
        lambda edges: [(a, b) for a, b in edges if a != b]
    )
)
def test_survival_is_what_taking_out_each_host_shows(edges: list[tuple[str, str]]) -> None:
    """Whichever host the search happens to begin at."""
    adjacency: dict[NicRef, set[NicRef]] = {}
    for one, other in edges:
        a, b = NicRef(one, "rail0"), NicRef(other, f"rail{ord(one) % 2}")
        adjacency.setdefault(a, set()).add(b)
        adjacency.setdefault(b, set()).add(a)
    hosts = {host for edge in edges for host in edge}
    survives = joined(hosts, edges) and all(joined(hosts - {host}, edges) for host in hosts)
    assert survives_any_host(adjacency) is survives


@pytest.mark.parametrize("hub", ["a", "m", "z"])
def test_a_star_dies_with_its_centre(hub: str) -> None:
    """… also where the centre is the first one that is looked at."""
    centre = NicRef(hub, "rail0")
    leaves = [NicRef(f"l{k}", "rail0") for k in range(3)]
    assert not survives_any_host({centre: set(leaves)} | {leaf: {centre} for leaf in leaves})
    assert not survives_any_host({leaf: {centre} for leaf in leaves} | {centre: set(leaves)})


def edge_set(adjacency: dict[NicRef, set[NicRef]]) -> set[frozenset[NicRef]]:
    return {frozenset((ref, other)) for ref, others in adjacency.items() for other in others}


def test_a_host_that_joins_leaves_most_pairs_alone() -> None:
    before = edge_set(mesh(fleet(63, 2), peers=10, seed=1))
    after = edge_set(mesh(fleet(64, 2), peers=10, seed=1))
    assert len(before - after) <= 0.05 * len(before)


@pytest.mark.parametrize(
    ("paths", "ports"), [(0, 1), (1, 1), (2, 8), (4, 21), (8, 51), (16, 115), (59, 508)]
)
def test_ports_cover_all_paths(paths: int, ports: int) -> None:
    assert ports_to_cover(paths) == ports


def test_a_plan_probes_each_pair_from_both_ends_on_every_port() -> None:
    plan = make_plan(mesh_nics(8, 2), peers=10, ecmp_paths=2, interval_ns=10**9, seed=1)
    pairs = Counter(
        (f"{host}/{flow.src}", flow.dst) for host, flows in plan.items() for flow in flows
    )
    assert set(pairs.values()) == {8}
    assert {(dst, src) for src, dst in pairs} == set(pairs)
    for flows in plan.values():
        assert len({flow.flow_id for flow in flows}) == len(flows)
        assert min(flow.src_port for flow in flows) >= planner.FIRST_SOURCE_PORT


def test_further_pairs_are_probed_beside_the_meshs_and_change_nothing_of_those() -> None:
    nics = mesh_nics(8, 1)
    make = partial(make_plan, nics, peers=3, ecmp_paths=2, interval_ns=1, seed=1)
    plain = make()
    planned = {(host, flow.dst) for host, flows in plain.items() for flow in flows}
    fresh = next(
        (a.ref, b.ref) for a in nics for b in nics
        if a.ref.host < b.ref.host and (a.ref.host, str(b.ref)) not in planned
    )  # fmt: skip
    host, dst = min(planned)
    old = (next(nic.ref for nic in nics if nic.ref.host == host), NicRef(*dst.split("/")))
    gone = (NicRef("h99", "rail0"), nics[0].ref)
    wide = make(further=[fresh, old, gone, (fresh[0], fresh[0])])
    ids = {host: {flow.flow_id for flow in flows} for host, flows in plain.items()}
    more = Counter(
        (host, flow.dst) for host, flows in wide.items() for flow in flows
        if flow.flow_id not in ids[host]
    )  # fmt: skip
    assert more == {
        (one.host, str(other)): 8 for a, b in (fresh, old) for one, other in ((a, b), (b, a))
    }
    assert all(ids[host] <= {flow.flow_id for flow in flows} for host, flows in wide.items())
    assert make(further=()) == plain


def test_flow_ids_depend_on_the_path_alone() -> None:
    small = make_plan(mesh_nics(6, 1), peers=3, ecmp_paths=1, interval_ns=1, seed=1)["h0"]
    large = make_plan(mesh_nics(7, 1), peers=3, ecmp_paths=1, interval_ns=1, seed=1)["h0"]
    ids = {flow.dst: flow.flow_id for flow in small}
    common = [flow for flow in large if flow.dst in ids]
    assert common
    assert all(flow.flow_id == ids[flow.dst] for flow in common)


def test_spare_ports_are_beside_the_plans_and_named_the_same_in_every_plan() -> None:
    fleets = [mesh_nics(hosts, 2) for hosts in (3, 4)]
    plans = [make_plan(nics, peers=3, ecmp_paths=2, interval_ns=1, seed=1)["h0"] for nics in fleets]
    small, large = (with_spares(plan, 16) for plan in plans)
    assert small[: len(plans[0])] == plans[0]
    assert set(Counter((flow.src, flow.dst) for flow in small).values()) == {16}
    assert len({(flow.src, flow.dst, flow.src_port) for flow in small}) == len(small)
    assert len({flow.flow_id for flow in large}) == len(large)
    ids = {(flow.src, flow.dst, flow.src_port): flow.flow_id for flow in large}
    both = [flow for flow in small if (flow.src, flow.dst, flow.src_port) in ids]
    assert both
    assert all(flow.flow_id == ids[flow.src, flow.dst, flow.src_port] for flow in both)
    assert with_spares(plans[0], 8) == plans[0], "as many as that are planned"
    alone = make_plan(mesh_nics(2, 1), peers=1, ecmp_paths=1, interval_ns=1, seed=1)["h0"]
    assert with_spares(alone, 16) == alone, "where there is one path only"


def test_one_host_alone_has_nothing_to_probe() -> None:
    assert make_plan(mesh_nics(1, 2), peers=10, ecmp_paths=2, interval_ns=1, seed=1) == {"h0": ()}


def test_where_all_are_wanted_as_peers_all_are() -> None:
    """This seed's rings leave a NIC short of two."""
    adjacency = mesh(fleet(3, 6), peers=12, seed=-11_166_830_725_396)
    assert {len(others) for others in adjacency.values()} == {12}


def test_probes_leave_from_at_most_512_ports_above_those_of_jobs() -> None:
    """Linux takes 32768 to 60999 for connections by default."""
    assert [ports_to_cover(paths) for paths in (60, 100, 200, 600)] == [512] * 4
    flows = make_plan(mesh_nics(3, 1), peers=2, ecmp_paths=200, interval_ns=1, seed=1)
    ports = [flow.src_port for flow in flows["h0"]]
    assert (min(ports), max(ports)) == (61_000, 61_511)

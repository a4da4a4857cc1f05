"""Collectives by name: who sends how much to whom, and after what."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from syntony.errors import InputError
from syntony.sim.fluid.clos import LeafSpine
from syntony.sim.fluid.matrix_file import parse_matrix
from syntony.sim.fluid.presets import (
    PEER_BYTES,
    REDUCE_BYTES,
    RING_BYTES,
    ROUNDS,
    Preset,
    parse_preset,
    preset_traffic,
)
from syntony.sim.fluid.traffic import NEVER, SimulatedTraffic, TriggerKind


def net(leaves: int = 4, hosts: int = 4) -> LeafSpine:
    return LeafSpine(leaves=leaves, hosts_per_leaf=hosts, spines=2)


def preset(
    name: str, queue_pairs: int = 1, of: LeafSpine | None = None, seed: int = 3
) -> SimulatedTraffic:
    rng = np.random.default_rng(seed)
    return preset_traffic(parse_preset(name), of or net(), rng, queue_pairs)


def sends(traffic: SimulatedTraffic) -> dict[int, list[int]]:
    """Receivers of each NIC, in order."""
    found: dict[int, list[int]] = defaultdict(list)
    for src, dst in zip(traffic.src.tolist(), traffic.dst.tolist(), strict=True):
        found[src].append(dst)
    return found


def test_a_name_says_kind_size_and_where_nics_are() -> None:
    assert parse_preset("rings-256") == Preset("rings", 256, random=False)
    assert parse_preset("reduce-scatter-2048-random") == Preset("reduce-scatter", 2048, random=True)
    assert parse_preset("tree") == Preset("tree", 0, random=False)


def test_every_other_nic_of_each_leaf_is_of_one_job_and_neighbours_are_on_other_leaves() -> None:
    traffic, fabric = preset("rings"), net()
    for src, dst, job in zip(traffic.src, traffic.dst, traffic.job, strict=True):
        assert fabric.position[src] % 2 == job
        assert fabric.leaf[src] != fabric.leaf[dst]
    anywhere = preset("rings-random")
    assert {int(fabric.position[n] % 2) for n in anywhere.src[anywhere.job == 0]} == {0, 1}


@pytest.mark.parametrize("name", ["rings", "rings-random", "permutation", "permutation-random"])
def test_in_rings_and_permutations_each_sends_to_one_and_hears_from_one(name: str) -> None:
    traffic = preset(name)
    assert traffic.flows == 16
    assert set(traffic.size.tolist()) == {RING_BYTES}
    assert sorted(traffic.src.tolist()) == sorted(traffic.dst.tolist()) == list(range(16))
    to = {src: found[0] for src, found in sends(traffic).items()}
    for job in (0, 1):
        members = set(traffic.src[traffic.job == job].tolist())
        here = start = min(members)
        seen: list[int] = []
        while not seen or here != start:
            seen.append(here)
            here = to[here]
        assert set(seen) == members, "one round through the whole job"
    assert (traffic.waits == NEVER).all()


def test_an_all_to_all_goes_from_peer_to_peer_without_two_senders_to_one_receiver() -> None:
    fabric = net(leaves=4, hosts=16)
    traffic = preset("alltoall", of=fabric)
    assert set(traffic.size.tolist()) == {PEER_BYTES}
    for src, found in sends(traffic).items():
        assert len(found) == len(set(found)) == ROUNDS
        assert src not in found
        assert all(fabric.leaf[dst] != fabric.leaf[src] for dst in found)
    depth = waves(traffic)
    for wave in range(ROUNDS):
        mine = traffic.dst[depth == wave]
        assert len(set(mine.tolist())) == len(mine) == fabric.nics
    small = preset("alltoall", of=net(leaves=1, hosts=6))
    assert {len(found) for found in sends(small).values()} == {2}, "all peers there are"


def waves(traffic: SimulatedTraffic) -> np.ndarray:
    """How many flows each waits for, one after the other."""
    by_trigger = {int(t): k for k, t in enumerate(traffic.fires.tolist()) if t != NEVER}
    depth = np.zeros(traffic.flows, dtype=int)
    for flow in range(traffic.flows):
        here = flow
        while traffic.waits[here] != NEVER:
            here = by_trigger[int(traffic.waits[here])]
            depth[flow] += 1
    return depth


def test_a_chain_waits_for_the_senders_own_flow_before() -> None:
    traffic = preset("alltoall")
    by_trigger = {int(t): k for k, t in enumerate(traffic.fires.tolist()) if t != NEVER}
    assert len(by_trigger) == len(traffic.triggers)
    for flow in np.flatnonzero(traffic.waits != NEVER).tolist():
        assert traffic.src[by_trigger[int(traffic.waits[flow])]] == traffic.src[flow]
    assert {rule.kind for rule in traffic.triggers.values()} == {TriggerKind.ONESHOT}


def test_recursive_halving_meets_partners_ever_nearer_with_ever_less() -> None:
    traffic = preset("reduce-scatter")
    depth = waves(traffic)
    assert sorted(set(depth.tolist())) == [0, 1, 2], "eight of each job"
    for step in range(3):
        mine = depth == step
        assert set(traffic.size[mine].tolist()) == {REDUCE_BYTES / 2 ** (step + 1)}
        pairs = set(zip(traffic.src[mine].tolist(), traffic.dst[mine].tolist(), strict=True))
        assert {(b, a) for a, b in pairs} == pairs, "partners exchange"
        assert len(pairs) == 16
    odd = preset("reduce-scatter", of=net(leaves=1, hosts=14))
    assert Counter(odd.job.tolist()) == {0: 4 * 2, 1: 4 * 2}, "the largest power of two of seven"


def test_a_tree_goes_up_when_all_children_have_and_down_from_the_root() -> None:
    traffic = preset("tree", of=net(leaves=1, hosts=12))
    up = Counter(traffic.fires[traffic.waits == NEVER].tolist())
    assert traffic.flows == 2 * 2 * 5
    for job in (0, 1):
        mine = np.flatnonzero(traffic.job == job).tolist()
        rising, falling = mine[:5], mine[5:]
        parents = {int(traffic.src[k]): int(traffic.dst[k]) for k in rising}
        assert {(int(traffic.dst[k]), int(traffic.src[k])) for k in falling} == set(parents.items())
        children = Counter(parents.values())
        assert sorted(children.values()) == [1, 2, 2]
        for flow in rising:
            parent = int(traffic.dst[flow])
            rule = traffic.triggers[int(traffic.fires[flow])]
            assert rule.kind is TriggerKind.BARRIER
            assert rule.count == children[parent]
            own = int(traffic.waits[flow])
            assert (own == NEVER) == (int(traffic.src[flow]) not in children)
        (root,) = set(children) - set(parents)
        first = [k for k in falling if int(traffic.src[k]) == root]
        assert {int(traffic.waits[k]) for k in first} == {
            int(traffic.fires[k]) for k in rising if int(traffic.dst[k]) == root
        }
        for flow in falling:
            assert (traffic.fires[flow] == NEVER) == (int(traffic.dst[flow]) not in children)
            if int(traffic.src[flow]) != root:
                (above,) = (k for k in falling if int(traffic.dst[k]) == int(traffic.src[flow]))
                assert traffic.waits[flow] == traffic.fires[above]
    assert all(count <= 2 for count in up.values())


def test_queue_pairs_split_each_flow_and_all_of_them_have_to_end() -> None:
    one, three = preset("alltoall"), preset("alltoall", 3)
    assert three.flows == 3 * one.flows
    assert three.size.sum() == pytest.approx(one.size.sum())
    assert three.src.tolist() == np.repeat(one.src, 3).tolist()
    assert {rule.count for rule in three.triggers.values()} == {3}
    assert {rule.kind for rule in three.triggers.values()} == {TriggerKind.BARRIER}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("hello", "bad-line: line 3: 'hello' begins nothing known"),
        ("trigger id 1 count 0 barrier", "bad-line: line 3: a barrier of 0"),
        ("trigger id 1 oneshot barrier", "bad-line: line 3: a trigger has an id and one kind"),
        ("trigger oneshot", "bad-line: line 3: a trigger has"),
        ("Failures 1", "failures"),
        ("Nodes", "bad-line: line 3: Nodes is ''"),
        ("1->0 start 0 size 9007199254740992", "bad-line: line 3: size is 9007199254740992"),
        ("-1->0 start 0 size 1", "bad-line: line 3: src is -1"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(line: str, name: str) -> None:
    with pytest.raises(InputError, match=name):
        parse_matrix(f"# one\n0->1 start 0 size 1\n{line}\n")


def test_flows_without_an_id_are_numbered_and_a_nic_beyond_nodes_is_refused() -> None:
    traffic = parse_matrix("0->1 start 0 size 1\n1->0 start 0 size 2")
    assert [traffic.name(k) for k in (0, 1)] == ["1", "2"]
    assert traffic.size.tolist() == [1.0, 2.0]
    assert parse_matrix("Nodes 2\n0->1 start 0 size 1").flows == 1
    with pytest.raises(InputError, match="unknown-host: flow 0->2"):
        parse_matrix("Nodes 2\n0->2 start 0 size 1")
    assert parse_matrix("").flows == 0


def test_sizes_are_those_of_the_reference_matrices() -> None:
    """16 MB a ring, 2 MB a peer to 16 of them, 32 MB halved at each step."""
    assert (RING_BYTES, PEER_BYTES, ROUNDS, REDUCE_BYTES) == (16e6, 2e6, 16, 32e6)


def test_two_flows_of_one_id_are_refused_by_that_id() -> None:
    rows = "".join(f"0->1 id {name} start 0 size 1\n" for name in ("7", "8", "9", "8"))
    with pytest.raises(InputError, match=r"two flows have the id 8$"):
        parse_matrix(rows)

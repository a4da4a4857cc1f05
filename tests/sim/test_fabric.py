"""Simulated fabrics: what a path crosses is what its candidates are made of, and losses are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from bench.simulated.fabric import (
    Clos,
    Clos3,
    Fabric,
    Flows,
    draw_flows,
    prices,
    probe,
    round_trips,
)

TWO = Clos(leaves=4, spines=3, nics_per_leaf=4, rails=2)
THREE = Clos3(pods=3, leaves=2, nics_per_leaf=2, aggs=2, cores=3)
FABRICS = [TWO, THREE]


def all_paths(fabric: Fabric) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    src, dst, entropy = np.mgrid[: fabric.nics, : fabric.nics, : fabric.hashes].reshape(3, -1)
    apart = src != dst
    return src[apart], dst[apart], entropy[apart]


def crossed(fabric: Fabric) -> list[set[int]]:
    found = fabric.crossings(*all_paths(fabric))
    return [{each for each in row if each >= 0} for row in found.tolist()]


def of_kind(fabric: Fabric, path: set[int], name: str) -> set[int]:
    kind = fabric.kinds[name]
    return {each - kind.first for each in path if 0 <= each - kind.first < kind.size}


@pytest.mark.parametrize("fabric", FABRICS)
def test_kinds_number_all_candidates_without_gaps(fabric: Fabric) -> None:
    numbers = [
        number
        for kind in fabric.kinds.values()
        for number in range(kind.first, kind.first + kind.size)
    ]
    assert numbers == list(range(fabric.candidates))
    used = set().union(*crossed(fabric))
    assert used == set(numbers), "every candidate is on some path"
    priced = prices(fabric)
    assert len(priced) == fabric.candidates
    assert set(priced.tolist()) == {float(np.log(fabric.links))}


def test_a_path_of_two_tiers_goes_up_over_one_spine_and_down() -> None:
    for src, dst, entropy, path in zip(*all_paths(TWO), crossed(TWO), strict=True):
        a, b = src // 4, dst // 4
        ends = {"nic-up": {src}, "nic-down": {dst}, "nic": {src, dst}, "leaf": {a, b}}
        assert all(of_kind(TWO, path, name) == expected for name, expected in ends.items())
        far = a != b
        assert of_kind(TWO, path, "spine") == ({entropy} if far else set())
        for name in ("leaf-up", "leaf-down"):
            assert len(of_kind(TWO, path, name)) == far
        assert len(of_kind(TWO, path, "cable")) == 2 * far


def test_a_path_of_three_tiers_is_as_short_as_can_be() -> None:
    for src, dst, entropy, path in zip(*all_paths(THREE), crossed(THREE), strict=True):
        a, b = src // 2, dst // 2
        pods = {a // 2, b // 2}
        tier = 0 if a == b else 1 if len(pods) == 1 else 2
        assert of_kind(THREE, path, "leaf") == {a, b}
        assert len(of_kind(THREE, path, "leaf-up")) == (tier > 0)
        assert len(of_kind(THREE, path, "agg-up")) == len(of_kind(THREE, path, "core")) == tier // 2
        plane = entropy % 2
        aggs = {pod * 2 + plane for pod in pods} if tier else set()
        assert of_kind(THREE, path, "agg") == aggs
        if tier == 2:
            (core,) = of_kind(THREE, path, "core")
            assert core // 3 == plane, "an aggregation switch has cores of its own"


@pytest.mark.parametrize("fabric", FABRICS)
def test_every_entropy_is_a_path_of_its_own_between_far_ends(fabric: Fabric) -> None:
    last = fabric.nics - 1
    every = np.arange(fabric.hashes)
    found = fabric.crossings(np.zeros_like(every), np.full_like(every, last), every)
    assert len({tuple(sorted(row)) for row in found.tolist()}) == fabric.hashes


def test_who_crosses_a_device_crosses_one_of_its_links() -> None:
    paths = crossed(TWO)
    for candidate in range(TWO.candidates):
        members = set(TWO.members(candidate).tolist())
        assert members <= set(range(TWO.links))
        with_device = {n for n, path in enumerate(paths) if candidate in path}
        with_link = {n for n, path in enumerate(paths) if path & members}
        assert with_device == with_link, candidate


def test_a_link_of_three_tiers_is_its_own_member() -> None:
    assert THREE.members(5).tolist() == [5]


@pytest.mark.parametrize("rails", [1, 2, 4])
def test_a_host_has_one_nic_on_each_of_its_rails_leaves(rails: int) -> None:
    fabric = Clos(leaves=4, spines=2, nics_per_leaf=4, rails=rails)
    nic = np.arange(fabric.nics)
    host, leaf = fabric.host_of(nic), fabric.leaf_of(nic)
    assert fabric.nics == 16
    assert sorted(Counter(host.tolist()).values()) == [rails] * (16 // rails)
    assert fabric.kinds["host"].size == 16 // rails
    for each in range(16 // rails):
        mine = leaf[host == each]
        assert len(set(mine.tolist())) == rails
        assert mine.max() - mine.min() == rails - 1, "neighbours"


def drawn(fabric: Fabric, seed: int = 1, peers: int = 6, ports: int = 4) -> Flows:
    return draw_flows(fabric, np.random.default_rng(seed), peers=peers, ports=ports)


def test_every_nic_probes_and_is_probed_equally_often() -> None:
    flows = drawn(TWO)
    for ends in (flows.src, flows.dst):
        assert set(Counter(ends.tolist()).values()) == {6 * 4}
    assert (flows.src != flows.dst).all()
    assert set(flows.there.tolist()) == set(flows.back.tolist()) == {0, 1, 2}
    assert (flows.there != flows.back).any(), "ways hashed apart"


def no_loss() -> np.ndarray:
    return np.zeros(TWO.links)


def test_a_healthy_fabric_loses_nothing() -> None:
    counts = probe(TWO, drawn(TWO), no_loss(), np.random.default_rng(2), probes_per_flow=10.0)
    assert counts.lost.sum() == 0
    half = len(counts.sent) // 2
    assert (counts.sent[:half] == counts.sent[half:]).all()
    assert counts.sent[:half].mean() == pytest.approx(10, rel=0.1)


def test_a_dead_link_takes_all_that_crosses_it_and_no_replies_of_what_never_came() -> None:
    flows, loss = drawn(TWO), no_loss()
    dead = TWO.kinds["nic-down"].first + 5
    loss[dead] = 1.0
    counts = probe(TWO, flows, loss, np.random.default_rng(2), probes_per_flow=10.0)
    hit = (counts.crossings == dead).any(axis=1)
    assert (counts.lost[hit] == counts.sent[hit]).all()
    assert counts.lost[~hit].sum() == 0
    half = len(hit) // 2
    assert (counts.sent[half:] == counts.sent[:half] - counts.lost[:half]).all()
    assert counts.sent[half:][hit[:half]].sum() == 0


def test_losses_of_links_in_a_row_multiply() -> None:
    loss = no_loss()
    up, down = TWO.kinds["nic-up"], TWO.kinds["nic-down"]
    loss[up.first : up.first + up.size] = 0.5
    loss[down.first : down.first + down.size] = 0.2
    counts = probe(TWO, drawn(TWO), loss, np.random.default_rng(3), probes_per_flow=200.0)
    assert counts.lost.sum() / counts.sent.sum() == pytest.approx(1 - 0.5 * 0.8, abs=0.02)


def test_a_host_that_stalls_holds_replies_back_and_no_requests() -> None:
    flows = drawn(TWO)
    stalling = np.zeros(TWO.nics)
    stalling[3] = 0.4
    counts = probe(
        TWO, flows, no_loss(), np.random.default_rng(4), probes_per_flow=200.0, stalling=stalling
    )
    half = len(flows.src)
    assert counts.lost[:half].sum() == 0
    mine = flows.dst == 3
    assert counts.lost[half:][~mine].sum() == 0
    share = counts.lost[half:][mine].sum() / counts.sent[half:][mine].sum()
    assert share == pytest.approx(0.4, abs=0.03)


def test_a_stale_map_names_other_ways_for_its_share_of_flows() -> None:
    flows = drawn(TWO, peers=8, ports=40)
    true = probe(TWO, flows, no_loss(), np.random.default_rng(5), probes_per_flow=1.0)
    stale = probe(TWO, flows, no_loss(), np.random.default_rng(5), probes_per_flow=1.0, stale=0.3)
    half = len(flows.src)
    far = (flows.src // 4) != (flows.dst // 4)
    for part in (slice(None, half), slice(half, None)):
        moved = (true.crossings[part] != stale.crossings[part]).any(axis=1)
        assert not moved[~far].any()
        assert moved[far].mean() == pytest.approx(0.3 * 2 / 3, abs=0.03), "a third draw the same"


def test_a_round_trip_crosses_what_both_ways_cross_once_and_loses_what_either_lost() -> None:
    loss = no_loss()
    loss[TWO.kinds["leaf-up"].first] = 0.3
    counts = probe(TWO, drawn(TWO), loss, np.random.default_rng(6), probes_per_flow=20.0)
    both = round_trips(counts)
    half = len(counts.sent) // 2
    assert (both.sent == counts.sent[:half]).all()
    assert (both.lost == counts.lost[:half] + counts.lost[half:]).all()
    for row, there, back in zip(
        both.crossings.tolist(), counts.crossings[:half].tolist(),
        counts.crossings[half:].tolist(), strict=True,
    ):  # fmt: skip
        named = [each for each in row if each >= 0]
        assert len(named) == len(set(named))
        assert set(named) == {each for each in there + back if each >= 0}

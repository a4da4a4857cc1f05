"""Which further pairs tell suspects apart, on random Clos fabrics, against every way walked."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from tests.fabric.flow_rows import FlowCounts, add

from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.extra_probes import separating, suspected
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.names import cable_name, link_name
from syntony.model.findings import Finding
from syntony.model.names import host_of


class Clos:
    """Hosts at leaves, each leaf cabled to the first and to some of the other spines."""

    def __init__(self, rng: random.Random) -> None:
        leaves, spines = rng.randint(2, 5), rng.randint(1, 4)
        self.homes = {
            f"h{number}/rail0": f"leaf{rng.randrange(leaves)}"
            for number in range(rng.randint(leaves, 12))
        }
        self.cables = {
            (f"leaf{leaf}", f"spine{spine}")
            for leaf in range(leaves)
            for spine in (0, *rng.sample(range(1, spines), rng.randint(0, spines - 1)))
        }

    def links(self) -> list[str]:
        return [name for a, b in self.cables for name in (link_name(a, b), link_name(b, a))]

    def ways(self, src: str, dst: str) -> list[list[str]]:
        """Devices of every way, by walking all spines."""
        near, far = self.homes[src], self.homes[dst]
        if near == far:
            return [[src, near, dst]]
        spines = {spine for _, spine in self.cables}
        return [
            [src, near, spine, far, dst]
            for spine in sorted(spines)
            if (near, spine) in self.cables and (far, spine) in self.cables
        ]


def crossed(way: list[str]) -> set[str]:
    found = set(way) | {host_of(way[0]), host_of(way[-1])}
    for a, b in itertools.pairwise(way):
        found |= {link_name(a, b), cable_name(a, b)}
    return found


@pytest.mark.parametrize("case", range(12))
def test_two_are_told_apart_where_any_way_crosses_one_alone(case: int) -> None:
    seed = random.randrange(100_000) if case else 1
    print(f"seed {seed}")
    rng = random.Random(seed)
    clos = Clos(rng)
    pairs = [(a, b) for a, b in itertools.permutations(clos.homes, 2) if host_of(a) != host_of(b)]
    every = [crossed(way) for a, b in pairs for way in clos.ways(a, b)]
    names = sorted(set().union(*every))
    for _ in range(20):
        one, other = rng.sample(names, 2)
        possible = any((one in way) is not (other in way) for way in every)
        found = separating((one, other), clos.links(), clos.homes, limit=4)
        assert bool(found.pairs) is possible, (one, other)
        assert bool(found.together) is not possible
        for a, b in found.pairs:
            ways = [crossed(way) for way in clos.ways(a, b)]
            assert any((one in way) is not (other in way) for way in ways), (one, other, a, b)


def test_on_two_leaves_a_spine_and_its_links_are_never_told_apart() -> None:
    homes = {f"h{number}/rail0": f"leaf{number % 2}" for number in range(6)}
    links = [
        name
        for leaf in range(2)
        for spine in range(2)
        for a, b in [(f"leaf{leaf}", f"spine{spine}")]
        for name in (link_name(a, b), link_name(b, a))
    ]
    suspects = ("leaf0->spine1", "spine1->leaf1")
    assert separating(suspects, links, homes, limit=4) == ((), (suspects,))


def test_a_pair_that_is_probed_already_is_taken_last() -> None:
    homes = {f"h{number}/rail0": f"leaf{number // 2}" for number in range(6)}
    links = [
        name
        for leaf in range(3)
        for a, b in [(f"leaf{leaf}", "spine0")]
        for name in (link_name(a, b), link_name(b, a))
    ]
    suspects = ("leaf0->spine0", "spine0->leaf1")
    first = separating(suspects, links, homes, limit=1)
    (pair,) = first.pairs
    assert pair not in separating(suspects, links, homes, planned=first.pairs, limit=1).pairs


def test_large_fabrics_are_looked_at_in_part() -> None:
    homes = {f"h{number}/rail0": f"leaf{number // 16}" for number in range(4_000)}
    links = [
        name
        for leaf in range(250)
        for spine in range(32)
        for a, b in [(f"leaf{leaf}", f"spine{spine}")]
        for name in (link_name(a, b), link_name(b, a))
    ]
    found = separating(("leaf7->spine3", "spine3->leaf9"), links, homes, limit=4)
    assert 1 <= len(found.pairs) <= 4
    for a, b in found.pairs:
        assert (homes[a] == "leaf7") is not (homes[b] == "leaf9")


class Probed:
    """A fabric with a mesh of few pairs, a part that loses, and soundings that are answered."""

    def __init__(self, rng: random.Random, pairs: list[tuple[str, str]], homes: dict[str, str]):
        self.rng, self.homes, self.pairs = rng, homes, pairs
        self.book = PathBook()
        self.watch = FaultLocator(self.book)
        self.flows: list[Way] = []
        self.add(pairs)

    def add(self, pairs: list[tuple[str, str]]) -> None:
        for a, b in pairs:
            for src, dst in ((a, b), (b, a)):
                for port in range(8):
                    flow = Way(src, dst, 61_000 + port, 8620)
                    self.flows.append(flow)
                    for way in (flow, reply(flow)):
                        near, far = self.homes[way.src], self.homes[way.dst]
                        spine = f"spine{self.rng.randrange(2)}"
                        self.book.learn(way, [near] if near == far else [near, spine, far])

    def run(self, broken: str, loss: float, seconds: int) -> tuple[Finding, ...]:
        noise = np.random.default_rng(self.rng.randrange(2**32))
        for _ in range(seconds):
            rows, heard = [], dict[tuple[str, str], int]()
            for flow in self.flows:
                there = loss * (broken in self.book.components(flow))
                back = loss * (broken in self.book.components(reply(flow)))
                lost = int(noise.binomial(10, there))
                lost_back = int(noise.binomial(10 - lost, back))
                key = (flow.src, flow.dst)
                heard[key] = heard.get(key, 0) + 10 - lost
                rows.append(
                    FlowCounts(
                        way=flow, sent=10, lost=lost, sent_back=10 - lost, lost_back=lost_back,
                        unresolved=0, delay_ns=20_000.0, delay_back_ns=20_000.0, clk_err_ns=50.0,
                    )
                )  # fmt: skip
            add(self.watch, rows, heard)
        return self.watch.findings()


@pytest.mark.parametrize("case", range(5))
def test_what_was_asked_for_names_the_part(case: int) -> None:
    """Leaf 0 is probed with leaf 1 alone: a link up and the next one down are twins, until a pair
    with another leaf is asked."""
    seed = random.randrange(100_000) if case else 1
    print(f"seed {seed}")
    rng = random.Random(seed)
    homes = {f"h{number}/rail0": f"leaf{number // 2}" for number in range(8)}
    near = [nic for nic, at in homes.items() if at == "leaf0"]
    far = [nic for nic, at in homes.items() if at == "leaf1"]
    others = [nic for nic, at in homes.items() if at in {"leaf2", "leaf3"}]
    pairs = [(a, b) for a in near for b in far] + list(itertools.combinations(others, 2))
    broken = rng.choice(["leaf0->spine0", "spine0->leaf1", "leaf1->spine1", "spine1->leaf0"])
    probed = Probed(rng, pairs, homes)
    (found, *_) = probed.run(broken, rng.uniform(0.05, 1.0), 6)
    names = (found.component, *found.alternatives[: found.twins])
    assert broken in names
    assert len(names) > 1, "twins before"
    links = {name for flow in probed.flows for name in probed.book.components(flow) if "->" in name}
    requested = separating(names, links, homes, planned=pairs, limit=4)
    assert requested.pairs
    probed.add([pair for pair in requested.pairs if pair not in pairs])
    (found, *more) = probed.run(broken, 0.5, 12)
    assert (found.component, found.twins, more) == (broken, 0, [])


def test_the_pair_most_of_whose_ways_tell_is_taken_first() -> None:
    homes = {"h0/rail0": "leaf0", "h1/rail0": "leaf1", "h8/rail0": "leaf0"}
    links = [
        name
        for leaf in range(2)
        for spine in range(2)
        for a, b in [(f"leaf{leaf}", f"spine{spine}")]
        for name in (link_name(a, b), link_name(b, a))
    ]
    found = separating(("leaf0", "leaf0->spine0"), links, homes, limit=2)
    assert found.pairs == (("h0/rail0", "h8/rail0"), ("h1/rail0", "h0/rail0")), "half of h0 -> h1"


@pytest.mark.parametrize(
    ("alternatives", "odds", "twins", "expected"),
    [
        ((), (), 0, ("leaf1",)),
        (("leaf0", "spine1"), (0.3, 0.29), 0, ("leaf0", "leaf1")),
        (("leaf0", "spine1"), (0.29, 0.01), 0, ("leaf1",)),
        (("leaf0", "spine1"), (0.3, 0.29), 2, ("leaf0", "leaf1", "spine1")),
        (("leaf0", "spine1"), (), 1, ("leaf0", "leaf1")),
    ],
)
def test_suspects_are_twins_and_whoever_is_half_as_likely(
    alternatives: tuple[str, ...], odds: tuple[float, ...], twins: int, expected: tuple[str, ...]
) -> None:
    found = Finding(
        component="leaf1", kind="leaf", fault="loss", loss=0.1, delay_ns=0.0, confidence=0.6,
        window="10s", explains=9.0, paths=4, alternatives=alternatives, probabilities=odds,
        twins=twins,
    )  # fmt: skip
    assert suspected(found) == expected


@pytest.mark.parametrize(
    ("alternative", "odds", "expected"),
    [
        ("spine1->leaf0", 0.3, ("leaf0--spine1",)),
        ("leaf0--spine1", 0.3, ("leaf0--spine1",)),
        ("spine1->leaf0", 0.29, ("leaf0->spine1",)),
        ("leaf0->spine2", 0.3, ("leaf0->spine1", "leaf0->spine2")),
    ],
)
def test_a_link_whose_direction_is_not_known_is_named_by_its_cable(
    alternative: str, odds: float, expected: tuple[str, ...]
) -> None:
    found = Finding(
        component="leaf0->spine1", kind="link", fault="loss", loss=0.1, delay_ns=0.0,
        confidence=0.6, window="10s", explains=9.0, paths=4, alternatives=(alternative,),
        probabilities=(odds,), twins=0,
    )  # fmt: skip
    assert suspected(found) == expected


def test_a_nic_and_its_link_are_named_by_the_one_that_was_found() -> None:
    found = Finding(
        component="h0/rail0", kind="nic", fault="loss", loss=0.1, delay_ns=0.0,
        confidence=0.6, window="10s", explains=9.0, paths=4,
        alternatives=("h0/rail0->leaf0", "leaf0->h0/rail0"), probabilities=(0.5, 0.5), twins=0,
    )  # fmt: skip
    assert suspected(found) == ("h0/rail0",)

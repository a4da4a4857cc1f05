"""Contradictions, doubts and unchecked clocks of random meshes against loops over nodes and edges.

Every assertion names its seed.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from syntony.clock.contradiction import (
    CONTRADICTION_SIGMAS,
    DISPUTED,
    LEAST_LEFT,
    LEAST_PEERS,
    LEAST_REDUNDANCY,
    MAJORITY,
    ROUNDING,
    UNCONFIRMED,
    EdgeClaims,
    contradictions,
    redundancy,
)
from syntony.clock.doubt import FEW_EDGES, LEAST_DOUBT_NS, LEVEL, node_doubts
from syntony.clock.laplacian import Floats, Laplacian
from syntony.clock.mesh_solve import _unchecked

SEEDS = range(40)


class Drawn:
    """A connected mesh with parallel edges, bridges and clocks that are known to be wrong."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        count = int(rng.integers(4, 24))
        tree = np.arange(1, count), (rng.random(count - 1) * np.arange(1, count)).astype(np.intp)
        more = int(rng.integers(0, 16)) * count
        a, b = rng.integers(0, count, more), rng.integers(0, count, more)
        again = rng.integers(0, more + count - 1, int(rng.integers(0, 2)) * count)
        a, b = np.concatenate((tree[0], a)), np.concatenate((tree[1], b))
        a, b = np.concatenate((a, b[again])), np.concatenate((b, a[again]))
        a, b = a[a != b], b[a != b]
        size = len(a)
        self.mesh = Laplacian(a, b, count)
        sigma = rng.uniform(5, 50, size)
        wild = rng.random(size) < rng.choice([0.02, 0.1, 0.4])
        doubt = np.where(rng.random(size) < 0.2, rng.exponential(300, size), 0.0)
        known = rng.random(count) < rng.choice([0.0, 0.1])
        weights = np.where(rng.random(size) < 0.1, 0.0, 1 / sigma**2)
        self.claims = EdgeClaims(
            residual=rng.normal(0, sigma) + wild * rng.normal(0, 500, size),
            sigma=sigma,
            doubt=doubt * rng.integers(0, 2),
            weights=weights,
            left=redundancy(self.mesh, weights, self.mesh.spans(weights)),
            excluded=np.flatnonzero(known[a] | known[b]),
        )
        self.rng = rng

        self.edges: list[tuple[int, int]] = list(zip(a.tolist(), b.tolist(), strict=True))
        pairs = defaultdict(list)
        for edge, ends in enumerate(self.edges):
            pairs[frozenset(ends)].append(edge)
        self.twins = [pairs[frozenset(ends)] for ends in self.edges]
        """Of each edge, those of the same pair, itself too."""


def left_of(drawn: Drawn, weights: Floats) -> list[float]:
    spans = drawn.mesh.spans(weights)
    parts = [sum(weights[x] for x in drawn.twins[edge]) for edge in range(len(weights))]
    return [min(max(1 - part * span, 0.0), 1.0) for part, span in zip(parts, spans, strict=True)]


def expected(drawn: Drawn) -> tuple[list[float], list[float]]:
    """`contradictions`, rule by rule."""
    claims, edges = drawn.claims, drawn.edges
    nodes, places = range(drawn.mesh.count), range(len(edges))
    excluded = set(claims.excluded.tolist())
    share = [1 / len(drawn.twins[x]) for x in places]
    bad: dict[int, float] = {}
    vague = set()
    for x in places:
        if x in excluded or abs(claims.residual[x]) <= claims.sigma[x]:
            continue
        twins = drawn.twins[x]
        pull = sum(claims.weights[y] for y in twins)
        says = sum(claims.weights[y] * claims.residual[y] for y in twins)
        common = says / pull if pull > 0 else 0.0
        left = max(claims.left[x], LEAST_LEFT)
        away = abs(claims.residual[x] - common) + abs(common) / left
        limit = CONTRADICTION_SIGMAS * claims.sigma[x] / left**0.5
        if away > limit + CONTRADICTION_SIGMAS * claims.doubt[x]:
            bad[x] = away
        elif away > limit:
            vague.add(x)
    if not bad:
        return [0.0 for _ in nodes], [0.0 for _ in places]
    shaken = bad.keys() | excluded
    weights = [
        (UNCONFIRMED if x in shaken else 1.0) * share[x] / claims.sigma[x] ** 2 for x in places
    ]
    confirmed = [left >= LEAST_REDUNDANCY for left in left_of(drawn, np.array(weights))]
    votes = [0.0 if x in excluded | vague else share[x] for x in places]

    def total(of: list[float]) -> list[float]:
        return [sum(of[x] for x in places if node in edges[x]) for node in nodes]

    def beside(of: list[float], among: list[bool]) -> list[float]:
        found = [0.0 for _ in nodes]
        for x, (a, b) in enumerate(edges):
            found[a] += share[x] * among[x] * of[b]
            found[b] += share[x] * among[x] * of[a]
        return found

    def largest(of: list[float]) -> list[float]:
        return [max((of[x] for x in places if node in edges[x]), default=0.0) for node in nodes]

    contradicting = total([votes[x] if x in bad else 0.0 for x in places])
    wrong = [
        half > whole / 2 + ROUNDING for half, whole in zip(contradicting, total(votes), strict=True)
    ]
    among = [not wrong[a] and not wrong[b] for a, b in edges]
    own = total([votes[x] * among[x] for x in places])
    disputed = total([votes[x] if among[x] and x in bad else 0.0 for x in places])
    good = total([votes[x] if among[x] and x not in bad and confirmed[x] else 0.0 for x in places])
    near = [x + y for x, y in zip(own, beside(own, among), strict=True)]
    in_dispute = [x + y for x, y in zip(disputed, beside(disputed, among), strict=True)]
    clear = [
        not wrong[n]
        and in_dispute[n] <= (DISPUTED - ROUNDING) * near[n]
        and good[n] > max(MAJORITY * own[n], LEAST_PEERS) - ROUNDING
        for n in nodes
    ]
    worst = largest([bad.get(x, 0.0) for x in places])
    edge = [
        max(worst[a], worst[b]) if x not in shaken and not confirmed[x] else bad.get(x, 0.0)
        for x, (a, b) in enumerate(edges)
    ]
    node = [0.0 if clear[n] else most for n, most in enumerate(largest(edge))]
    around = largest([max(node[a], node[b]) for a, b in edges])
    return [node[n] if clear[n] or node[n] > 0 else around[n] for n in nodes], edge


@pytest.mark.parametrize("seed", SEEDS)
def test_contradictions_follow_the_rules(seed: int) -> None:
    drawn = Drawn(seed)
    found = contradictions(drawn.mesh, drawn.claims)
    node, edge = expected(drawn)
    assert found.edge == pytest.approx(edge, rel=1e-9), f"seed {seed}"
    assert found.node == pytest.approx(node, rel=1e-9), f"seed {seed}"


def test_the_meshes_drawn_have_every_case() -> None:
    cases: defaultdict[str, int] = defaultdict(int)
    for seed in SEEDS:
        drawn = Drawn(seed)
        node, edge = expected(drawn)
        cases["some clear"] += 0.0 in node and max(edge) > 0
        cases["some not"] += max(node) > 0
        cases["nothing"] += max(edge) == 0
        cases["excluded"] += len(drawn.claims.excluded) > 0
        cases["pairs"] += bool((drawn.mesh.share < 1).any())
        cases["sampled first"] += len(drawn.edges) > 6 * FEW_EDGES * drawn.mesh.count
        cases["bridges"] += bool((drawn.claims.left == 0).any())
    assert min(cases.values()) > 1, cases


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_and_means_of_pairs_are_those_of_their_edges(seed: int) -> None:
    drawn = Drawn(seed)
    mesh, claims = drawn.mesh, drawn.claims
    assert claims.left == pytest.approx(left_of(drawn, claims.weights), abs=1e-9), f"seed {seed}"
    means = mesh.pair_means(claims.weights, claims.residual)
    for edge, mean in enumerate(means.tolist()):
        twins = drawn.twins[edge]
        pull = claims.weights[twins].sum()
        says = (claims.weights[twins] * claims.residual[twins]).sum() / pull if pull else 0.0
        assert mean == pytest.approx(says, rel=1e-9), f"seed {seed}"
    peers: defaultdict[int, set[int]] = defaultdict(set)
    for a, b in drawn.edges:
        peers[a].add(b)
        peers[b].add(a)
    values = drawn.rng.random(mesh.count)
    out = drawn.rng.random(len(claims.residual)) < 0.3
    kept = np.concatenate((mesh.plus[~out], mesh.minus[~out])).tolist()
    for node in range(mesh.count):
        assert mesh.peers[node] == pytest.approx(len(peers[node])), f"seed {seed}"
        assert mesh.beside(values)[node] == pytest.approx(
            sum(values[other] for other in peers[node])
        ), f"seed {seed}"
        assert mesh.rest(out)[node] == kept.count(node), f"seed {seed}"


@pytest.mark.parametrize("few", [1, FEW_EDGES])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_is_as_doubtful_as_its_best_chain(
    seed: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where some edges are looked at first, and do not join all."""
    monkeypatch.setattr("syntony.clock.doubt.FEW_EDGES", few)
    drawn = Drawn(seed)
    count, edges, rng = drawn.mesh.count, drawn.edges, drawn.rng
    doubts = np.where(rng.random(len(edges)) < 0.5, rng.exponential(1e4, len(edges)), 0.0)
    doubts[rng.random(len(edges)) < 0.05] = np.inf
    weights = rng.random(len(edges))
    best = [0.0 for _ in range(count)]
    part = list(range(count))
    reached = [False for _ in range(count)]
    level = LEAST_DOUBT_NS
    while True:
        for x, (a, b) in enumerate(edges):
            if doubts[x] <= level:
                part = [part[b] if each == part[a] else each for each in part]
        for node in range(count):
            if not reached[node] and 2 * part.count(part[node]) > count:
                reached[node] = True
                best[node] = level if level > LEAST_DOUBT_NS else 0.0
        left = [
            doubts[x]
            for x, (a, b) in enumerate(edges)
            if part[a] != part[b] and np.isfinite(doubts[x])
        ]
        if not left:
            break
        level = LEVEL * min(left)
    for node, found in enumerate(node_doubts(drawn.mesh, doubts, weights)):
        mine = [x for x, ends in enumerate(edges) if node in ends and np.isfinite(doubts[x])]
        pull = sum(weights[x] for x in mine)
        mean = sum(weights[x] * doubts[x] for x in mine) / (pull or 1)
        assert found == pytest.approx(max(best[node], mean), rel=1e-9), f"seed {seed}"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_clock_with_one_peer_is_in_doubt_by_half_a_round_trip(seed: int) -> None:
    drawn = Drawn(seed)
    rtt_ns = drawn.rng.uniform(1e4, 1e5, len(drawn.edges))
    rejected = drawn.rng.random(len(rtt_ns)) < 0.2
    for node, found in enumerate(_unchecked(drawn.mesh, rtt_ns, rejected)):
        mine = [x for x, ends in enumerate(drawn.edges) if node in ends and not rejected[x]]
        peers = {other for x in mine for other in drawn.edges[x]} - {node}
        least_ns = min(rtt_ns[mine]) / 2 if len(peers) == 1 else 0.0
        assert found == pytest.approx(least_ns), f"seed {seed}"

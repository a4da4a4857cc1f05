"""Variances of potentials against exact ones, below and above the size where they are exact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from syntony.clock import laplacian
from syntony.clock.laplacian import DENSE_NODES, Floats, Laplacian, Places

Ends = tuple[Places, Places]


def clustered(count: int, rng: np.random.Generator) -> Ends:
    """Groups of fifty, tied to others by five links each."""
    a = np.repeat(np.arange(count), 8)
    b = np.minimum(a - a % 50 + rng.integers(0, 50, len(a)), count - 1)
    lone = np.arange(0, count, 10)
    return np.concatenate((a, lone)), np.concatenate((b, (lone + 50) % count))


def ring(count: int, rng: np.random.Generator) -> Ends:
    a = np.repeat(np.arange(count), 2)
    return a, (a + np.tile([1, 2], count)) % count


def expander(count: int, rng: np.random.Generator) -> Ends:
    orders = [rng.permutation(count) for _ in range(8)]
    return np.concatenate(orders), np.concatenate([np.roll(order, 1) for order in orders])


def random_mesh(count: int, rng: np.random.Generator) -> Ends:
    a = np.repeat(np.arange(count), 5)
    return a, (a + 1 + rng.integers(0, count - 1, len(a))) % count


def star(count: int, rng: np.random.Generator) -> Ends:
    a = np.arange(4, count)
    return np.repeat(a, 4), np.tile(np.arange(4), len(a))


MESHES: list[Callable[[int, np.random.Generator], Ends]] = [
    clustered,
    ring,
    expander,
    random_mesh,
    star,
]


def drawn(
    make: Callable[[int, np.random.Generator], Ends], count: int, seed: int
) -> tuple[Laplacian, Floats]:
    rng = np.random.default_rng(seed)
    plus, minus = make(count, rng)
    apart = plus != minus
    plus, minus = plus[apart].astype(np.intp), minus[apart].astype(np.intp)
    return Laplacian(plus, minus, count), 1 / rng.uniform(5, 50, len(plus)) ** 2


def exact(mesh: Laplacian, weights: Floats) -> Floats:
    """Against the mean of all nodes by their precision: from eigenvectors of the whole matrix."""
    matrix = np.zeros((mesh.count, mesh.count))
    for a, b, weight in zip(mesh.plus, mesh.minus, weights, strict=True):
        matrix[[a, b], [a, b]] += weight
        matrix[[a, b], [b, a]] -= weight
    values, vectors = np.linalg.eigh(matrix)
    scaled = vectors[:, 1:] / np.sqrt(values[1:])
    counts = np.diag(matrix)
    for _ in range(2):
        centred = scaled - counts @ scaled / counts.sum()
        counts = 1 / (centred**2).sum(axis=1)
    return np.asarray(np.sqrt(1 / counts))


@pytest.mark.parametrize("make", MESHES)
@pytest.mark.parametrize("seed", range(2))
def test_sigmas_beyond_the_exact_size_are_neither_small_nor_loose(
    make: Callable[[int, np.random.Generator], Ends], seed: int
) -> None:
    mesh, weights = drawn(make, DENSE_NODES + 200, seed)
    ratio = mesh.sigmas(weights) / exact(mesh, weights)
    assert float(np.quantile(ratio, 0.01)) > 0.85, f"seed {seed}"
    assert ratio.min() > 0.7, f"seed {seed}"
    assert 0.97 < float(np.median(ratio)) < 1.7, f"seed {seed}"
    assert ratio.max() < 3, f"seed {seed}"


@pytest.mark.parametrize("seed", range(3))
def test_where_every_node_has_many_peers_its_own_edges_say_nearly_all(seed: int) -> None:
    mesh, weights = drawn(expander, DENSE_NODES + 200, seed)
    ratio = mesh.sigmas(weights) / exact(mesh, weights)
    assert float(np.quantile(ratio, 0.01)) > 0.95, f"seed {seed}"
    assert float(np.median(ratio)) < 1.25, f"seed {seed}"


@pytest.mark.parametrize("make", MESHES)
def test_sigmas_of_small_meshes_are_exact(
    make: Callable[[int, np.random.Generator], Ends],
) -> None:
    mesh, weights = drawn(make, 60, seed=3)
    assert mesh.sigmas(weights) == pytest.approx(exact(mesh, weights), rel=1e-6)


def test_a_node_of_which_nothing_is_known_makes_no_other_worse() -> None:
    mesh, weights = drawn(expander, 60, seed=4)
    vague = np.where((mesh.plus == 7) | (mesh.minus == 7), weights * 1e-10, weights)
    before, after = mesh.sigmas(weights), mesh.sigmas(vague)
    others = np.arange(60) != 7
    assert after[7] > 1e4 * before[7]
    assert (after[others] < 1.2 * before[others]).all()


def test_spans_are_the_variance_of_differences() -> None:
    mesh, weights = drawn(random_mesh, 60, seed=5)
    rng = np.random.default_rng(5)
    drawn_ns = np.array(
        [
            mesh.differences(mesh.solve(weights, rng.normal(0, 1, len(weights)) / np.sqrt(weights)))
            for _ in range(600)
        ]
    )
    ratio = mesh.spans(weights) / drawn_ns.var(axis=0)
    assert ratio.min() > 0.7
    assert ratio.max() < 1.4


def test_edges_between_the_same_nodes_share_one_vote() -> None:
    mesh = Laplacian(np.array([0, 1, 0, 1]), np.array([1, 0, 1, 2]), 3)
    assert mesh.share == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])


def test_spans_of_large_meshes_are_what_both_ends_leave() -> None:
    """Between nodes of many peers, which is nearly all there is."""
    mesh, weights = drawn(expander, DENSE_NODES + 100, seed=6)
    matrix = np.zeros((mesh.count, mesh.count))
    np.add.at(matrix, (mesh.plus, mesh.plus), weights)
    np.add.at(matrix, (mesh.minus, mesh.minus), weights)
    np.add.at(matrix, (mesh.plus, mesh.minus), -weights)
    np.add.at(matrix, (mesh.minus, mesh.plus), -weights)
    inverse = np.linalg.pinv(matrix, hermitian=True)
    own = np.diag(inverse)
    ratio = mesh.spans(weights) / (
        own[mesh.plus] + own[mesh.minus] - 2 * inverse[mesh.plus, mesh.minus]
    )
    assert 0.8 < float(np.median(ratio)) <= 1
    assert 0.4 < ratio.min() < ratio.max() < 2


def test_a_mesh_of_just_so_many_nodes_is_solved_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    plus, minus = np.triu_indices(12, 1)
    keep = np.random.default_rng(2).random(len(plus)) < 0.5
    keep |= minus == plus + 1
    plus, minus = plus[keep], minus[keep]
    weights = np.random.default_rng(3).uniform(0.1, 10, len(plus))

    def reported() -> list[list[float]]:
        mesh = Laplacian(plus, minus, 12)
        requested = mesh.solve(weights, np.sin(np.arange(len(plus)))), mesh.sigmas(weights)
        return [each.tolist() for each in (*requested, mesh.spans(weights))]

    exact = reported()
    monkeypatch.setattr(laplacian, "DENSE_NODES", 12)
    assert reported() == exact
    monkeypatch.setattr(laplacian, "DENSE_NODES", 11)
    assert reported() != exact


def test_a_node_without_an_edge_is_cut_out() -> None:
    weights, values = np.array([1.0, 2.0]), np.array([5.0, 7.0])
    plus, minus = np.array([0, 1]), np.array([1, 2])
    three, four = (Laplacian(plus, minus, count) for count in (3, 4))
    assert four.spans(weights) == pytest.approx(three.spans(weights))
    assert four.solve(weights, values)[:3] == pytest.approx(three.solve(weights, values))

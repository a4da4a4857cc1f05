import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.clock import laplacian
from syntony.clock.laplacian import Floats, Laplacian, Places
from syntony.clock.mesh_edges import EdgeArrays
from syntony.clock.mesh_solve import Predicted, solve_mesh
from syntony.clock.robust import SMALL_NODES, robust_potentials

SIGMA_NS = 20.0
REF_NS = 1_750_000_000_000_000_000


def ring(count: int, peers: int, seed: int) -> tuple[Places, Places]:
    """Every node with its successor, and with others at random."""
    rng = np.random.default_rng(seed)
    plus = np.repeat(np.arange(count), peers)
    minus = (plus + rng.integers(1, count, len(plus))) % count
    minus[::peers] = (plus[::peers] + 1) % count
    return plus, minus


def centred(values: Floats) -> Floats:
    return np.asarray(values - values.mean())


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_consistent_edges_are_met_exactly(count: int, peers: int, seed: int) -> None:
    plus, minus = ring(count, peers, seed)
    rng = np.random.default_rng(seed)
    truth, sigmas = rng.normal(0, 1e6, count), rng.uniform(1, 1e3, len(plus))
    found = robust_potentials(
        Laplacian(plus, minus, count), truth[plus] - truth[minus], sigmas, least_reject=0.1
    )
    # Weights differ by up to a million, of which the dense inverse leaves nine digits.
    assert np.abs(centred(found.x) - centred(truth)).max() < 1e-8 * np.abs(truth).max()
    assert not found.rejected.any()
    assert found.scale == 1


def test_sparse_and_dense_systems_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    plus, minus = ring(60, 4, seed=1)
    rng = np.random.default_rng(1)
    values, weights = rng.normal(0, 100, len(plus)), rng.uniform(0.1, 10, len(plus))
    dense = Laplacian(plus, minus, 60).solve(weights, values)
    monkeypatch.setattr(laplacian, "DENSE_NODES", 1)
    sparse = Laplacian(plus, minus, 60).solve(weights, values)
    assert np.abs(sparse - dense).max() < 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_wild_edges_are_rejected_and_sigma_is_honest(seed: int) -> None:
    plus, minus = ring(300, 8, seed)
    rng = np.random.default_rng(seed)
    wild = rng.random(len(plus)) < 0.05
    noise = rng.normal(0, SIGMA_NS, len(plus)) + wild * rng.choice([-1, 1], len(plus)) * 5_000
    found = robust_potentials(
        Laplacian(plus, minus, 300), noise, np.full(len(plus), SIGMA_NS), least_reject=100
    )
    assert found.rejected.tolist() == wild.tolist()
    z = found.x / found.sigma
    assert 0.8 < float(np.sqrt(np.mean(z**2))) < 1.2


def mesh_edges(count: int, seed: int, lies: dict[int, float], sigma_ns: float) -> EdgeArrays:
    """Everyone probes everyone; a liar's edges are off by up to its lie, at the sigma it claims."""
    rng = np.random.default_rng(seed)
    a, b = np.nonzero(~np.eye(count, dtype=np.bool_))
    theta = rng.normal(0, SIGMA_NS, len(a))
    sigma = np.full(len(a), SIGMA_NS)
    for liar, most in lies.items():
        theta += (a == liar) * rng.uniform(-most, most, len(a))
        theta += (b == liar) * rng.uniform(-most, most, len(a))
        sigma[a == liar] = sigma_ns
    return EdgeArrays(
        nodes=count,
        a=a,
        b=b,
        ref_ns=np.full(len(a), REF_NS),
        theta_ns=theta,
        drift=np.zeros(len(a)),
        sigma_ns=sigma,
        drift_sigma=np.full(len(a), 5e-9),
        rtt_ns=np.full(len(a), 20_000.0),
        doubt_ns=np.zeros(len(a)),
    )


@pytest.mark.parametrize("claimed_ns", [0.5, SIGMA_NS, 1e4])
@pytest.mark.parametrize("most_ns", [60.0, 500.0, 5_000.0, 1e7])
@pytest.mark.parametrize("count", [5, 8, 16])
def test_a_liar_moves_nobody_by_10_ns(count: int, most_ns: float, claimed_ns: float) -> None:
    honest = solve_mesh(mesh_edges(count, 7, {}, claimed_ns)).offset_ns[1:]
    lied = solve_mesh(mesh_edges(count, 7, {0: most_ns}, claimed_ns)).offset_ns[1:]
    moved = (lied - np.median(lied)) - (honest - np.median(honest))
    limit_ns = 10 if count > 5 else 25  # of four peers' own 20 ns edges, one more or less counts
    assert np.abs(moved).max() < limit_ns


def test_a_liar_is_named_and_gets_a_wide_sigma() -> None:
    solution = solve_mesh(mesh_edges(8, 3, {2: 50_000.0}, SIGMA_NS))
    assert np.flatnonzero(solution.liars).tolist() == [2]
    assert solution.sigma_ns[2] > 10_000
    assert solution.sigma_ns[[0, 1, 3]].max() < 2 * SIGMA_NS


def test_two_liars_in_sixteen_are_both_named() -> None:
    solution = solve_mesh(mesh_edges(16, 4, {3: 50_000.0, 9: 9_000_000.0}, SIGMA_NS))
    assert np.flatnonzero(solution.liars).tolist() == [3, 9]
    honest = np.delete(solution.offset_ns, [3, 9])
    assert np.abs(honest - np.median(honest)).max() < 20


def test_who_is_contradicted_by_liars_alone_is_none() -> None:
    """Three of its six peers lie: it quarrels with as many as they would need to be cut out."""
    for seed in range(3):
        edges = mesh_edges(20, seed, dict.fromkeys((0, 1, 2), 5e6), SIGMA_NS)
        apart = ((edges.a == 5) & (edges.b > 8)) | ((edges.b == 5) & (edges.a > 8))
        apart |= ((edges.a == 5) | (edges.b == 5)) & ((edges.a == 3) | (edges.b == 3))
        apart |= ((edges.a == 5) | (edges.b == 5)) & ((edges.a == 4) | (edges.b == 4))
        columns = [edges.nodes, *(np.asarray(column)[~apart] for column in edges[1:])]
        solution = solve_mesh(EdgeArrays(*columns))
        assert np.flatnonzero(solution.liars).tolist() == [0, 1, 2], seed


def test_a_lone_path_is_bounded_by_half_its_round_trip() -> None:
    assert solve_mesh(mesh_edges(2, 1, {}, SIGMA_NS)).asymmetry_ns.tolist() == [10_000.0] * 2
    assert not solve_mesh(mesh_edges(3, 1, {}, SIGMA_NS)).asymmetry_ns.any()


def drawn(count: int, seed: int, moved_ns: Floats) -> EdgeArrays:
    """One window of a mesh of eight peers each, one edge in twenty off by microseconds."""
    plus, minus = ring(count, 8, seed=1)
    rng = np.random.default_rng(seed)
    wild = rng.random(len(plus)) < 0.05
    theta = moved_ns[minus] - moved_ns[plus] + rng.normal(0, SIGMA_NS, len(plus))
    return EdgeArrays(
        nodes=count,
        a=plus,
        b=minus,
        ref_ns=REF_NS + np.rint(moved_ns[plus]).astype(np.int64),
        theta_ns=theta + wild * rng.choice([-1, 1], len(plus)) * rng.exponential(5_000, len(plus)),
        drift=rng.normal(0, 5e-9, len(plus)),
        sigma_ns=np.full(len(plus), SIGMA_NS),
        drift_sigma=np.full(len(plus), 5e-9),
        rtt_ns=np.full(len(plus), 20_000.0),
        doubt_ns=np.zeros(len(plus)),
    )


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("step_ns", [3_000.0, 50_000.0, 1e7])
@pytest.mark.parametrize("seed", [3])
def test_a_warm_solve_says_what_a_cold_one_says(seed: int, step_ns: float, share: float) -> None:
    """Also of clocks that have stepped since, which the prediction is wrong about."""
    count = 600
    rng = np.random.default_rng(seed)
    first = solve_mesh(drawn(count, seed, np.zeros(count)))
    before = Predicted(first.local_ns, first.offset_ns, first.drift)
    moved_ns = np.where(rng.random(count) < share, step_ns, 0.0)
    later = drawn(count, seed + 100, moved_ns)
    for found in (solve_mesh(later, before), solve_mesh(later)):
        error = centred(found.offset_ns + moved_ns)
        assert np.abs(error).max() < 1.5 * SIGMA_NS, f"seed {seed}"
        assert np.sqrt(np.mean(error**2)) < 0.4 * SIGMA_NS, f"seed {seed}"
        assert not found.liars.any()


def test_an_edge_that_lies_about_the_offset_is_not_believed_about_the_rate() -> None:
    def rates(offset_ns: float, drift: float) -> Floats:
        edges = mesh_edges(8, 3, {}, SIGMA_NS)
        edges.theta_ns[0] += offset_ns
        edges.drift[0] = drift  # no more than its own noise: not left out for that
        return solve_mesh(edges).drift

    assert np.abs(rates(50_000.0, 12e-9) - rates(50_000.0, 0.0)).max() < 1e-13
    assert np.abs(rates(0.0, 12e-9) - rates(0.0, 0.0)).max() > 1e-10, "an honest one is"


@pytest.mark.parametrize("off_sigmas", [0.5, 1.0])
def test_a_guess_that_fits_spares_most_of_the_work(
    off_sigmas: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clocks have wandered a little since they were solved; one that has gone is no guess."""
    count = SMALL_NODES + 200
    plus, minus = ring(count, 8, seed=3)
    rng = np.random.default_rng(3)
    truth = rng.normal(0, 1e5, count)
    values = truth[plus] - truth[minus] + rng.normal(0, SIGMA_NS, len(plus))
    solved = 0
    solve = Laplacian.solve

    def counted(*args: object, **named: object) -> Floats:
        nonlocal solved
        solved += 1
        return solve(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Laplacian, "solve", counted)
    rounds = []
    wandered = truth + rng.normal(0, off_sigmas * SIGMA_NS, count)
    for start in (wandered, truth + rng.normal(0, 100 * SIGMA_NS, count)):
        solved = 0
        mesh = Laplacian(plus, minus, count)
        sigmas = np.full(len(plus), SIGMA_NS)
        robust_potentials(mesh, values, sigmas, least_reject=100.0, start=start)
        rounds.append(solved)
    near, far = rounds
    assert near == 2  # one, and the last
    assert far > near


@pytest.mark.parametrize("seed", range(4))
def test_a_liar_is_told_where_most_of_its_edges_put_it(seed: int) -> None:
    """That is its best reading, with the spread of what they say."""
    edges = mesh_edges(10, seed, {}, SIGMA_NS)
    rng = np.random.default_rng([seed, 1])
    said_ns = rng.uniform(0, 100_000, len(edges.a))
    theta_ns = edges.theta_ns + said_ns * (edges.a == 4) - said_ns * (edges.b == 4)
    solution = solve_mesh(edges._replace(theta_ns=theta_ns))
    assert np.flatnonzero(solution.liars).tolist() == [4]
    others = np.delete(solution.offset_ns, 4)
    away_ns = abs(float(solution.offset_ns[4] - np.median(others)))
    expected_ns = float(np.median(said_ns[(edges.a == 4) | (edges.b == 4)]))
    assert away_ns == pytest.approx(expected_ns, abs=100)

"""Doubt widens the bound of those it is about; contradictions widen where nobody can be blamed.

Meshes come from `edge_worlds`; every assertion names its seed.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.clock.edge_worlds import TOPOLOGIES, Judged, World

from syntony.clock.doubt import node_doubts
from syntony.clock.laplacian import Laplacian
from syntony.clock.network import NetworkSolver
from syntony.model import ClockState
from syntony.model.clocks import BOUND_SIGMAS

WIDE = {"sigma": {"sigma_ns": 200e3}, "doubt": {"sigma_ns": 30.0, "doubt_ns": 100e3}}
"""How an agent says that a queue may stand on its paths: up to 400 µs."""
SEEDS = range(6)


def innocent(found: Judged, *guilty: int) -> NDArray[np.intp]:
    return np.setdiff1d(np.arange(len(found.error_ns)), guilty)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_errors_stay_within_tight_bounds(topology: str) -> None:
    """Sigma from both sides: no bound is broken, and none is loose."""
    errors, sigmas = [], []
    for seed in range(20):
        found = World(seed, 18, topology, sigmas_ns=(20.0, 60.0)).solve()
        assert found.worst < 1, f"seed {seed}"
        errors.append(found.error_ns)
        sigmas.append(found.sigma_ns)
    z = np.concatenate(errors) / np.concatenate(sigmas)
    # Six peers average what one edge claims; a sigma is not allowed to be less than an edge's.
    assert 0.12 < float(np.sqrt(np.mean(z**2))) < 0.7
    assert float(np.median(4 * np.concatenate(sigmas))) < 40 * float(
        np.median(np.abs(np.concatenate(errors)))
    )


@pytest.mark.parametrize("claims", WIDE)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_doubtful_clock_ruins_no_other(topology: str, claims: str) -> None:
    """A restarted agent behind a standing queue: its own edges are wrong by up to 400 µs."""
    for seed in SEEDS:
        clean = World(seed, 18, topology).solve()
        world = World(seed, 18, topology)
        world.spoil(world.from_one(2, world.rng.uniform(0, 400e3, 18)), **WIDE[claims])
        found = world.solve()
        assert found.worst < 1, f"seed {seed}"
        others = innocent(found, 2)
        assert (found.bound_ns[others] < 2 * clean.bound_ns[others] + 20).all(), f"seed {seed}"
        assert np.abs(found.error_ns[others]).max() < 60, f"seed {seed}"
        # The others' own edges to it are good, so it is placed by those.
        assert abs(found.error_ns[2]) < 100, f"seed {seed}"


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("by_ppm", [2.0, 20.0, 500.0])
def test_peers_that_miss_a_slew_widen_the_drift_or_do_not_count(
    topology: str, by_ppm: float
) -> None:
    """Half of the edges about a clock are of before its rate changed, at the same small sigma."""
    for seed in SEEDS:
        world = World(seed, 12, topology)
        rng = world.rng
        clean = World(seed, 12, topology).solve()
        believers = set(rng.permutation(12)[:6].tolist()) - {5}
        world.slew(5, by_ppm * 1e3 * rng.choice([-1, 1]), believers)
        found = world.solve()
        # Half against half: the error is the contradiction itself, to a per cent.
        broken = np.abs(found.drift_error_ppb) > 1.01 * BOUND_SIGMAS * found.drift_sigma_ppb
        assert not broken.any(), f"seed {seed}: {found.drift_error_ppb[broken]}"
        tight = found.drift_sigma_ppb < 3 * clean.drift_sigma_ppb
        assert tight.sum() >= 3, f"seed {seed}: clocks far from it"


def test_eighteen_good_edges_of_24_place_all_four_clocks() -> None:
    """Four hosts, two rails, all pairs from both ends; one host's six edges say 5 ms."""
    for seed in SEEDS:
        world = World(seed, 4, "everyone", ports=2, sigmas_ns=(50.0, 50.01))
        world.spoil(world.from_one(1, world.rng.uniform(-2e6, 2e6, 4)), sigma_ns=5e6)
        found = world.solve()
        assert np.abs(found.error_ns).max() < 100, f"seed {seed}: {found.error_ns}"
        assert found.bound_ns.max() < 1_000, f"seed {seed}: {found.bound_ns}"


@pytest.mark.parametrize(
    ("island", "spilt_ns"), [((7,), 0.0), ((3, 4), 0.0), ((0, 3, 4, 8, 9), 3_000.0)]
)
def test_a_clock_tied_by_doubtful_edges_alone_is_in_doubt_with_all_behind_it(
    island: tuple[int, ...], spilt_ns: float
) -> None:
    """The others are not, but for a hundredth where nearly half of their own edges are doubtful."""
    for seed in SEEDS:
        clean = World(seed, 12, "everyone").solve()
        world = World(seed, 12, "everyone")
        queue_ns = float(world.rng.uniform(50e3, 300e3))

        # They share an uplink: sure of each other, in doubt against everybody else.
        late = np.isin(np.arange(12), island) * queue_ns / 2
        world.spoil(late[None, :] - late[:, None], doubt_ns=75e3)
        found = world.solve()
        assert found.worst < 1, f"seed {seed}"
        assert min(found.bound_ns[list(island)]) > queue_ns / 2, f"seed {seed}"
        others = innocent(found, *island)
        widened = found.bound_ns[others] - 2 * clean.bound_ns[others]
        assert widened.max() < spilt_ns, f"seed {seed}"


def test_a_fleet_in_which_nothing_is_confirmed_says_so() -> None:
    for seed in SEEDS:
        world = World(seed, 12)
        world.spoil(np.full((12, 12), 0.1), doubt_ns=2_500.0)
        found = world.solve()
        assert found.bound_ns.min() >= 4 * 2_500 * 0.99, f"seed {seed}"
        # The doubt is no noise: the random errors still average out.
        assert np.abs(found.error_ns).max() < 60, f"seed {seed}"


@pytest.mark.parametrize("count", [3, 4, 5, 6])
def test_unequal_paths_that_contradict_each_other_widen_the_bound(count: int) -> None:
    """100 to 200 ns of asymmetry on every path, told by both ends at 5 ns."""
    ratios = []
    for seed in range(40):
        world = World(seed, count, "everyone", sigmas_ns=(5.0, 5.01))
        half = world.rng.uniform(50, 100, (count, count)) * world.rng.choice(
            [-1, 1], (count, count)
        )
        half = np.triu(half, 1) - np.triu(half, 1).T
        world.spoil(half)
        closure = abs(half[0, 1] + half[1, 2] + half[2, 0])
        if count == 3 and closure < 60:  # what closes the only cycle shows in no data
            continue
        found = world.solve()
        assert found.worst < 1.05, f"seed {seed}: {found.error_ns} {found.bound_ns}"
        ratios.append(np.median(found.bound_ns) / np.median(np.abs(found.error_ns)))
    assert float(np.median(ratios)) < 30


@pytest.mark.parametrize("topology", ["everyone", "random_regular"])
def test_a_third_of_edges_in_dispute_is_nobodys_fault(topology: str) -> None:
    """Standing queues of up to 5 µs in one direction of a third of the pairs, from the start."""
    for seed in range(15):
        world = World(seed, 18, topology, sigmas_ns=(3.0, 10.0))
        bias = world.rng.uniform(-2_500, 2_500, (18, 18)) * (world.rng.random((18, 18)) < 1 / 3)
        world.spoil(np.triu(bias, 1) - np.triu(bias, 1).T)
        found = world.solve()
        assert found.worst < 1, f"seed {seed}: {found.error_ns} {found.bound_ns}"


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_one_liar_widens_its_own_bound_and_no_other(topology: str) -> None:
    """Below a microsecond it is not cut out, but nobody follows it."""
    for seed in SEEDS:
        clean = World(seed, 18, topology).solve()
        world = World(seed, 18, topology)
        lies = world.rng.uniform(300, 900, 18) * np.where(np.arange(18) % 2, 1, -1)
        lied = world.from_one(4, lies)
        world.spoil(lied - lied.T)
        found = world.solve()
        others = innocent(found, 4)
        near = np.abs(found.error_ns[others]) / found.bound_ns[others]
        assert near.max() < 1, f"seed {seed}"
        widened = found.bound_ns[others] / clean.bound_ns[others]
        assert float(np.median(widened)) < 1.5, f"seed {seed}"
        if topology == "everyone":
            assert found.bound_ns[4] > 300, f"seed {seed}"
            assert widened.max() < 1.5, f"seed {seed}"


def test_one_wrong_edge_of_many_widens_nobody() -> None:
    for seed in SEEDS:
        clean = World(seed, 18, "everyone").solve()
        world = World(seed, 18, "everyone")
        wrong = world.from_one(3, 5_000.0 * (np.arange(18) == 9))
        world.spoil(wrong - wrong.T)
        found = world.solve()
        assert found.worst < 1, f"seed {seed}"
        assert (found.bound_ns < 1.3 * clean.bound_ns).all(), f"seed {seed}"


def test_a_pair_has_one_vote_however_many_ports_tell_it() -> None:
    """Clock 0's edges to clock 1 are 90 ns off, on one port or on ten: it moves as far."""
    for seed in SEEDS:
        moved = []
        for copies in (1, 10):
            world = World(seed, 6, "everyone", sigmas_ns=(60.0, 60.01))
            wrong = world.from_one(0, 90.0 * (np.arange(6) == 1))
            world.spoil(wrong - wrong.T)
            pair = [edge for edge in world.edges if {edge.a, edge.b} == {"n0", "n1"}]
            world.edges += pair * (copies - 1)
            moved.append(world.solve().error_ns)
        assert np.abs(moved[1] - moved[0]).max() < 6, f"seed {seed}"


def test_edges_of_an_older_agent_are_read() -> None:
    """Version N-1 knows no `doubt_ns`."""
    world = World(1, 4, "everyone")
    old = [msgspec.to_builtins(edge) for edge in world.edges]
    for edge in old:
        del edge["doubt_ns"]
    solver = NetworkSolver()
    solver.update([msgspec.convert(edge, type(world.edges[0])) for edge in old], now_ns=0)
    assert {line.state for line in solver.solve(now_ns=0)} == {ClockState.SYNCHRONIZED}


def test_edges_that_are_left_out_cast_no_doubt_however_heavy() -> None:
    """A clock that was cut out: its edges are infinitely doubtful and most precise."""
    plus, minus = np.triu_indices(6, 1)
    mesh = Laplacian(plus.astype(np.intp), minus.astype(np.intp), 6)
    rng = np.random.default_rng(9)
    doubts, weights = rng.uniform(20, 30, len(plus)), rng.uniform(1, 3, len(plus))
    doubts[0], weights[0] = 400.0, 10.0  # between clocks 0 and 1
    out = (plus == 2) | (minus == 2)
    pulled = []
    for node in (0, 1):
        mine = ~out & ((plus == node) | (minus == node))
        pulled.append(np.average(doubts[mine], weights=weights[mine]))
    for weight in (0.0, 1.0, 1e9):
        reported = node_doubts(mesh, np.where(out, np.inf, doubts), np.where(out, weight, weights))
        assert reported[:2] == pytest.approx(pulled)
        assert reported[2] == 0
        assert ((reported[3:] > 20) & (reported[3:] < 40)).all()

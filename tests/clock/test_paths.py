"""Paths of one pair that are shorter one way: seen, corrected by the majority, never made worse."""

from __future__ import annotations

import numpy as np
import pytest
from bench.simulated.clocks import Queueing, SimulatedClocks
from tests.clock.test_pair import AT_NS, truth_ns

from syntony.clock.pair import PairEstimator, PairSamples
from syntony.clock.paths import PathBalance
from syntony.model import Edge, S

WINDOW_NS = 4 * S
FLOOR_NS = 5_000.0
MIN_WINDOWS, FORGET_WINDOWS = 8, 60


def together(paths: list[PairSamples]) -> PairSamples:
    """The probes of several paths, as an agent sees them: by the time they were sent."""

    def joined(name: str, order: np.ndarray) -> np.ndarray:
        return np.asarray(np.concatenate([getattr(path, name) for path in paths])[order])

    there = np.argsort(np.concatenate([path.fwd_tx for path in paths]), kind="stable")
    back = np.argsort(np.concatenate([path.rev_rx for path in paths]), kind="stable")
    sizes = [(len(path.fwd_tx), len(path.rev_tx)) for path in paths]
    numbers = [np.repeat(np.arange(len(paths)), [size[way] for size in sizes]) for way in (0, 1)]
    return PairSamples(
        fwd_tx=joined("fwd_tx", there),
        fwd_rx=joined("fwd_rx", there),
        rev_tx=joined("rev_tx", back),
        rev_rx=joined("rev_rx", back),
        fwd_path=numbers[0][there],
        rev_path=numbers[1][back],
    )


def run(
    seed: int, shorter_ns: list[float], windows: int = 20
) -> tuple[SimulatedClocks, list[Edge]]:
    """Windows of a pair whose paths' ways there are shorter by so much than their ways back."""
    clocks = SimulatedClocks(2, seed=seed)
    estimator = PairEstimator("a", "b")
    edges = []
    for window in range(windows):
        at_ns = AT_NS + window * WINDOW_NS
        back = Queueing(floor_ns=FLOOR_NS)
        samples = together(
            [
                clocks.probe(
                    0, 1, at_ns=at_ns, there=Queueing(floor_ns=FLOOR_NS - shorter), back=back
                )
                for shorter in shorter_ns
            ]
        )
        edge = estimator.estimate(samples)
        if edge is not None:
            edges.append(edge)
    return clocks, edges


@pytest.mark.parametrize("seed", range(4))
def test_one_path_that_is_shorter_one_way_is_outvoted(seed: int) -> None:
    clocks, edges = run(seed, [0.0, 0.0, 1_500.0, 0.0, 0.0])
    first, last = edges[0], edges[-1]
    assert last.paths == 5
    assert last.path_spread_ns == pytest.approx(750, abs=200)
    assert abs(first.theta_ns - truth_ns(clocks, first)) > 400, f"seed {seed}: nothing to correct"
    assert abs(last.theta_ns - truth_ns(clocks, last)) < 150, f"seed {seed}"
    assert abs(last.theta_ns - truth_ns(clocks, last)) < 5 * last.sigma_ns, f"seed {seed}"


@pytest.mark.parametrize("seed", range(4))
def test_paths_that_agree_correct_nothing(seed: int) -> None:
    _, edges = run(seed, [0.0] * 5)
    assert {edge.path_correction_ns for edge in edges} == {0.0}, f"seed {seed}"


def test_two_paths_cannot_say_which_is_right() -> None:
    _, edges = run(1, [0.0, 1_500.0])
    assert {edge.path_correction_ns for edge in edges} == {0.0}
    assert edges[-1].paths == 2


def test_a_path_has_a_voice_after_a_while_and_loses_it_when_it_is_gone() -> None:
    balance = PathBalance()
    there, back = {0: 0.0, 1: 0.0, 2: 0.0, 3: -900.0}, dict.fromkeys(range(4), 0.0)
    seen = [balance.take(there, back) for _ in range(MIN_WINDOWS)]
    assert [each.paths for each in seen] == [0] * (MIN_WINDOWS - 1) + [4]
    assert seen[-1].spread_ns == 450.0
    del there[3]
    for _ in range(100):
        last = balance.take(there, back)
    assert (last.paths, last.spread_ns) == (3, 0.0)


def test_nothing_is_digested() -> None:
    assert PathBalance().take({}, {}).paths == 0


def test_the_correction_is_the_median_and_its_sigma_that_of_the_paths_scatter() -> None:
    # Offsets 0, 0, 100, 40, 1000: median 40; away from it 40, 40, 60, 0, 960: median 40 again.
    there = dict(enumerate((0.0, 0.0, 200.0, 80.0, 2_000.0)))
    balance = PathBalance()
    for _ in range(MIN_WINDOWS):
        last = balance.take(there, dict.fromkeys(there, 0.0))
    assert (last.paths, last.spread_ns, last.correction_ns) == (5, 960.0, 40.0)
    assert last.sigma_ns == pytest.approx(1.2533 * 1.4826 * 40 / 5**0.5)


@pytest.mark.parametrize(("apart_ns", "disagrees"), [(30.0, False), (31.0, True)])
def test_a_little_is_no_disagreement(apart_ns: float, disagrees: bool) -> None:
    balance = PathBalance()
    there = {0: 0.0, 1: 0.0, 2: 2 * apart_ns}
    for _ in range(MIN_WINDOWS):
        last = balance.take(there, dict.fromkeys(there, 0.0))
    assert (last.spread_ns > 0) is disagrees


@pytest.mark.parametrize("scatter_ns", [10.0, 1_000.0])
def test_what_windows_scatter_is_no_disagreement_of_paths(scatter_ns: float) -> None:
    rng = np.random.default_rng(4)
    balance = PathBalance()
    spreads = []
    for _ in range(200):
        there = dict(enumerate(rng.normal(0, scatter_ns, 8).tolist()))
        spreads.append(balance.take(there, dict.fromkeys(there, 0.0)).spread_ns)
    assert np.mean(np.array(spreads) > 0) < 0.02


def test_a_path_is_forgotten_a_while_after_it_was_last_heard_of_both_ways() -> None:
    balance = PathBalance()
    three = dict.fromkeys(range(3), 0.0)
    for _ in range(MIN_WINDOWS):
        balance.take(three, three)
    for _ in range(FORGET_WINDOWS):
        assert balance.take(three, {0: 0.0, 1: 0.0}).paths == 3, "one way is not both"
    assert balance.take(three, {0: 0.0, 1: 0.0}).paths == 2
    assert balance.take(three, three).paths == 2, "and has to earn its voice again"

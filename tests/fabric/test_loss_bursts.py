"""Losses in bursts: recognised by the counts of paths across one component, and no reason for
further names."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.tallies import tally_losses
from tests.fabric.foreign import Grade, draw
from tests.fabric.test_misfits import graded, located
from tests.fabric.test_search import CANDIDATES, PENALTY, background

from syntony.fabric.loss import LossSearch
from syntony.fabric.loss_bursts import Across, _log_gamma, are_independent, dispersion_index
from syntony.fabric.tally import PartlyLearnt
from syntony.fabric.unevenness import weights


def counted(noise: np.random.Generator, mean: float, burst: float, paths: int) -> Across:
    """Paths that lose so many packets on average, so many at once."""
    lost = noise.poisson(mean, paths)
    if burst > 1:
        times = noise.poisson(mean / burst, paths)
        more = noise.negative_binomial(np.maximum(times, 1), 1 / burst)
        lost = np.where(times > 0, times + more, 0)
    every = lost.astype(np.float64)
    return Across(np.full(paths, every.mean()), every, np.ones(paths))


@pytest.mark.parametrize("mean", [0.5, 5.0, 60.0])
@pytest.mark.parametrize("paths", [2, 20, 200])
def test_independent_losses_are_no_bursts(mean: float, paths: int) -> None:
    noise = np.random.default_rng(1)
    found = [dispersion_index([counted(noise, mean, 1.0, paths)]) for _ in range(50)]
    assert sum(each > 1 for each in found) <= 1, found
    if mean * paths >= 600:
        assert are_independent([counted(noise, mean, 1.0, paths)])


@pytest.mark.parametrize("mean", [2.0, 40.0])
@pytest.mark.parametrize("burst", [3.0, 8.0])
def test_the_variance_of_bursts_is_measured(mean: float, burst: float) -> None:
    """It is about twice their mean length, less one, times the mean."""
    across = counted(np.random.default_rng(2), mean, burst, 400)
    ratio = 2 * burst - 1
    assert 0.5 * ratio < dispersion_index([across]) < 1.5 * ratio
    assert not are_independent([across])
    # Of twenty of these paths each alone nothing follows, as they are expected to lose that much.
    alone = [Across(across.lost[[n]], across.lost[[n]], np.ones(1)) for n in range(20)]
    assert dispersion_index(alone) == 1.0


def test_many_paths_without_loss_count_as_one_row() -> None:
    one_by_one = Across(np.full(40, 2.0), np.array([20.0] * 4 + [0.0] * 36), np.ones(40))
    at_once = Across(np.full(5, 2.0), np.array([20.0] * 4 + [0.0]), np.array([1.0] * 4 + [36.0]))
    assert dispersion_index([one_by_one]) == dispersion_index([at_once]) > 4
    # A fault of one flow in ten explains these as well: each of them loses as much.
    assert dispersion_index([at_once._replace(flows=0.1)]) == 1.0
    differ = Across(np.full(5, 2.0), np.array([60.0, 15, 4, 1, 0.0]), at_once.paths)
    assert dispersion_index([differ._replace(flows=0.1)]) > 4


def test_paths_that_do_not_cross_what_they_should_are_no_bursts() -> None:
    noise = np.random.default_rng(3)
    even = counted(noise, 40.0, 1.0, 40)
    stale = even._replace(lost=np.where(np.arange(40) < 4, 0.0, even.lost))
    assert dispersion_index([stale]) == 1.0


@pytest.mark.parametrize("value", [1e-9, 0.01, 1.0, 7.5, 400.0])
def test_the_logarithm_of_the_gamma_function(value: float) -> None:
    assert _log_gamma(np.array([value]))[0] == pytest.approx(math.lgamma(value), abs=2e-5)


def test_counts_in_bursts_weigh_less() -> None:
    sent, lost = np.array([400.0, 400.0]), np.array([4.0, 100.0])
    assert weights(sent, lost, 0.0, 5.0).tolist() == [0.2, 0.2]
    uneven = weights(sent, lost, 0.2)
    assert uneven[0] > 0.2 > uneven[1]
    assert weights(sent, lost, 0.2, 5.0).tolist() == [0.2, uneven[1]]


def named(lost: list[int], second: list[int], *, partly: bool = False) -> list[int]:
    """What is found of 0, whose forty paths lose so many in turn, and of 1, which other paths
    cross, or may cross."""
    paths = [[0]] * 40 + [[-1 if partly else 1]] * len(second) + background(400)
    counts = [lost[n % len(lost)] for n in range(40)] + second + [0] * 400
    combo = np.full(len(paths), -1)
    combo[40 : 40 + len(second)] = 0 if partly else -1
    window = tally_losses(
        np.array(paths, dtype=np.int32), np.full(len(paths), 400), np.array(counts), CANDIDATES,
        PartlyLearnt.of(combo, [[1]]),
    )  # fmt: skip
    return sorted(each.candidate for each in LossSearch(window, PENALTY).findings)


@pytest.mark.parametrize("bursts", [False, True])
def test_a_second_finding_that_is_a_burst_or_two_is_dropped(bursts: bool) -> None:
    """If the first fault loses packets in bursts, and not if it loses them independently."""
    lost = [0, 0, 0, 0, 0, 0, 12, 28] if bursts else [4, 5, 6]
    assert named(lost, [3, 2]) == ([0] if bursts else [0, 1])
    assert named(lost, [40] * 8) == [0, 1]


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ([240], [30], False), ([240], [30, 30], True), ([240], [400], True),
        ([5, 4, 6], [30], True),
    ],
    ids=["one path", "two paths", "a dead path", "even losses"],
)  # fmt: skip
def test_one_path_shows_no_second_fault_where_it_may_be_a_burst(
    first: list[int], second: list[int], both: bool
) -> None:
    """… or only if it certainly crosses it."""
    assert named(first, second, partly=True) == ([0, 1] if both else [0])
    assert named(first, second) == [0, 1]


@pytest.mark.parametrize(
    ("seed", "burst", "uneven"),
    [
        (71_000_021, 3.0, 0.0), (95_100_017, 10.0, 0.0), (98_000_033, 1.0, 0.5),
        (71_000_046, 10.0, 0.0),
    ],
)  # fmt: skip
def test_uneven_losses_of_one_fault_have_one_name(seed: int, burst: float, uneven: float) -> None:
    """The second: a dead link. The third is uneven as found by comparisons after the search."""
    case = draw(seed, burst=burst, uneven=uneven)
    found = located(case)
    assert graded(case, found) == Grade("right", (), 0)
    assert len(found) == 1

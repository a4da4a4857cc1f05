"""The search for delays on worlds of a few paths, where the answer is known without a fabric."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from syntony.fabric.crossed import PathCrossings
from syntony.fabric.delay import SlowParts, find_delays
from syntony.fabric.delay_search import DelayFinding
from syntony.fabric.effort import CUT, Effort

CANDIDATES = 12
PENALTY = np.full(CANDIDATES, math.log(CANDIDATES))


def slow_parts(
    paths: list[list[int]], change_ns: list[float], sigma_ns: float = 100.0,
    signs: list[list[int]] | None = None, penalty: np.ndarray = PENALTY,
    *, effort: Effort | None = None,
) -> SlowParts:  # fmt: skip
    """`signs` as `paths`; quiet paths of others are added, with noise of 100 ns."""
    rng = np.random.default_rng(3)
    quiet = [[6 + k % 6] for k in range(60)]
    width = max(map(len, paths))
    rows = [path + [-1] * (width - len(path)) for path in [*paths, *quiet]]
    sign = np.ones((len(rows), width), dtype=np.int8)
    for row, given in enumerate(signs or []):
        sign[row, : len(given)] = given
    change = np.concatenate((change_ns, np.zeros(len(quiet)))) + rng.normal(0, 100, len(rows))
    crossed = PathCrossings(np.array(rows, dtype=np.int32), sign, CANDIDATES)
    return find_delays(crossed, change, np.full(len(rows), sigma_ns), penalty, effort=effort)


def search(*args: Any, **more: Any) -> list[DelayFinding]:
    """Arguments as `slow_parts`."""
    return slow_parts(*args, **more).findings


def test_at_the_limit_of_its_work_the_strongest_comes_first_and_the_rest_is_said() -> None:
    paths, late_ns = [[0]] * 20 + [[1]] * 15 + [[2]] * 10, [9e4] * 20 + [5e4] * 15 + [3e4] * 10
    free, generous = Effort(), Effort(500)
    whole = slow_parts(paths, late_ns, effort=free)
    assert [each.candidate for each in whole.findings] == [0, 1, 2]
    assert whole.unexplained == 0
    assert slow_parts(paths, late_ns, effort=generous) == whole
    effort = Effort(18)
    cut = slow_parts(paths, late_ns, effort=effort)
    assert effort.spent <= 18 < free.spent
    (found,) = cut.findings
    assert found.candidate == 0
    assert found.confidence == pytest.approx(CUT * whole.findings[0].confidence, rel=0.01)
    assert cut.unexplained == 25
    nothing = slow_parts(paths, late_ns, effort=Effort(5))
    assert nothing == SlowParts([], 45)


def of_uplinks(seed: int, slow: int, effort: Effort) -> tuple[SlowParts, set[int]]:
    """Two tiers of six leaves and four spines with slow links; what is found, and the truth."""
    leaves, spines = 6, 4
    rng, half = np.random.default_rng(seed), leaves * spines
    late = rng.choice(2 * half, slow, replace=False)
    delay_ns = np.zeros(2 * half)
    delay_ns[late] = rng.uniform(3e4, 2e6, slow)
    pairs = [(a, b) for a in range(leaves) for b in range(leaves) if a != b for _ in range(6)]
    paths = []
    change_ns = []
    for a, b in pairs:
        spine = int(rng.integers(spines))
        paths.append([a * spines + spine, half + b * spines + spine])
        change_ns.append(delay_ns[paths[-1]].sum() + rng.normal(0, 300))
    sign = np.ones((len(paths), 2), dtype=np.int8)
    crossed = PathCrossings(np.array(paths, dtype=np.int32), sign, 2 * half)
    price = np.full(2 * half, math.log(2 * half))
    sigma_ns = np.full(len(paths), 300.0)
    parts = find_delays(crossed, np.array(change_ns), sigma_ns, price, effort=effort)
    return parts, {*late.tolist()}


def test_a_second_search_that_was_cut_does_not_take_the_place_of_a_first_that_was_not() -> None:
    whole, truth = of_uplinks(4, 8, Effort())
    found = [each.candidate for each in whole.findings]
    assert len(found) == 7
    assert truth.issuperset(found)
    cut, _ = of_uplinks(4, 8, Effort(200))
    assert [each.candidate for each in cut.findings] == found
    assert [each.confidence for each in cut.findings] == pytest.approx(
        [CUT * each.confidence for each in whole.findings], rel=0.01
    )


@pytest.mark.parametrize(("late_ns", "found"), [(1_500, False), (2_500, True), (1e6, True)])
def test_from_two_microseconds_on(late_ns: float, found: bool) -> None:
    findings = search([[0]] * 10, [late_ns] * 10)
    assert [each.candidate for each in findings] == ([0] if found else [])
    for each in findings:
        assert each.delay_ns == pytest.approx(late_ns, rel=0.1)
        assert each.paths == 10
        assert each.confidence > 0.99
        assert each.alternatives == ()


@pytest.mark.parametrize(("late", "found"), [(2, False), (3, True)])
def test_two_late_paths_are_never_a_finding(late: int, found: bool) -> None:
    assert bool(search([[0]] * late, [1e6] * late)) == found


@pytest.mark.parametrize(("sigma_ns", "found"), [(100, True), (2_000, False)])
def test_what_the_clocks_may_feign_is_nothing(sigma_ns: float, found: bool) -> None:
    assert bool(search([[0]] * 6, [3_000.0] * 6, sigma_ns)) == found


def test_a_median_is_never_trusted_to_less_than_a_quarter_of_a_microsecond() -> None:
    """With noise of 100 ns and clocks said to be perfect, 2.1 µs on three paths is not enough: at
    250 ns each it is 36 nats a path at the most, of which an outlier explains all but eight."""
    (found,) = search([[0]] * 3, [2_200.0] * 3, 0.0)
    # Three paths, each worth the cost of an outlier: price 2.5 + strictness 6 + 3 a path, at most.
    # A first finding is one of as many orders: log 2.
    most = 3 * (math.log(CANDIDATES) + 6 + 3) - math.log(CANDIDATES) - 6 + math.log(2)
    assert found.nats <= most + 1e-6
    assert found.nats == pytest.approx(most, rel=0.05)


@pytest.mark.parametrize("ahead_ns", [5_000.0, -5_000.0])
def test_a_clock_is_late_one_way_and_early_the_other(ahead_ns: float) -> None:
    paths = [[0]] * 6 + [[0]] * 6
    signs = [[1]] * 6 + [[-1]] * 6
    (found,) = search(paths, [ahead_ns] * 6 + [-ahead_ns] * 6, signs=signs)
    assert found.candidate == 0
    assert found.delay_ns == pytest.approx(ahead_ns, rel=0.1)
    assert found.paths == 12
    # What is no clock never makes anything faster.
    assert search([[0]] * 6, [-5_000.0] * 6) == []


def test_two_that_the_same_paths_cross_are_told_as_two() -> None:
    (found,) = search([[0, 1]] * 6, [9_000.0] * 6)
    assert {found.candidate, *found.alternatives} == {0, 1}
    assert found.confidence == pytest.approx(0.5, rel=0.01)
    dearer = PENALTY.copy()
    dearer[0] += 1.0
    (found,) = search([[0, 1]] * 6, [9_000.0] * 6, penalty=dearer)
    assert (found.candidate, found.alternatives) == (1, (0,))
    assert found.confidence == pytest.approx(1 / (1 + math.exp(-1)), rel=0.01)
    dearer[0] += 4.0
    (found,) = search([[0, 1]] * 6, [9_000.0] * 6, penalty=dearer)
    assert (found.candidate, found.alternatives) == (1, ())
    dearer[:2] = math.inf
    assert search([[0, 1]] * 6, [9_000.0] * 6, penalty=dearer) == []


def test_what_two_slow_ones_have_in_common_is_not_blamed() -> None:
    """A and B are slow by different amounts; C is on most late paths, and on some that are not."""
    a, b, c = 0, 1, 2
    paths = [[a, c]] * 6 + [[a]] * 6 + [[b, c]] * 6 + [[b]] * 6 + [[c]] * 6
    late = [8_000.0] * 12 + [30_000.0] * 12 + [0.0] * 6
    found = {each.candidate: each.delay_ns for each in search(paths, late)}
    assert found == pytest.approx({a: 8_000, b: 30_000}, rel=0.1)
    both = search([*paths, *[[a, b]] * 4], [*late, *[38_000.0] * 4])
    assert {each.candidate: each.delay_ns for each in both} == pytest.approx(found, rel=0.1)
    assert both[0].nats >= both[1].nats


def test_what_was_blamed_first_is_acquitted_once_others_explain_its_paths() -> None:
    """Three are slow, and one that is not crosses a good part of the paths of each."""
    paths = [path for bad in range(3) for path in [[bad, 3]] * 10 + [[bad]] * 14]
    found = {each.candidate: each.delay_ns for each in search(paths, [10_000.0] * len(paths))}
    assert found == pytest.approx(dict.fromkeys(range(3), 10_000), rel=0.05)


def test_two_slow_ones_on_the_same_paths_are_sized_each_by_itself() -> None:
    """Half of the paths of the first cross both: what it was taken for alone is put right."""
    paths = [[0, 1]] * 15 + [[0]] * 15 + [[1]] * 30
    late = [46_000.0] * 15 + [40_000.0] * 15 + [6_000.0] * 30
    found = {each.candidate: each.delay_ns for each in search(paths, late, 1_400.0)}
    assert found == pytest.approx({0: 40_000, 1: 6_000}, rel=0.03)


def test_paths_that_were_not_measured_do_not_count() -> None:
    late = [math.nan] * 4 + [1e6] * 2
    assert search([[0]] * 6, late) == []
    only = np.array([[0]] * 4, dtype=np.int32)
    nothing = np.full(4, np.nan)
    assert (
        find_delays(
            PathCrossings(only, np.ones((4, 1), dtype=np.int8), CANDIDATES),
            nothing,
            nothing,
            PENALTY,
        ).findings
        == []
    )


def test_what_is_crossed_twice_is_late_twice() -> None:
    late = [20_000.0] * 8 + [10_000.0] * 8
    (found,) = search([[0]] * 16, late, signs=[[2]] * 8 + [[1]] * 8)
    assert found.candidate == 0
    assert found.paths == 16
    assert found.delay_ns == pytest.approx(10_000, rel=0.03)


def test_early_paths_that_a_clock_explains_excuse_no_late_ones() -> None:
    """While nothing is found, four paths in ten that became faster say that paths jitter."""
    signs = [[1]] * 10 + [[-1]] * 40 + [[1]] * 4
    late = [5_000.0] * 10 + [-5_000.0] * 40 + [10_000.0] * 4
    found = search([[0]] * 50 + [[1]] * 4, late, signs=signs)
    assert {each.candidate: round(each.delay_ns, -3) for each in found} == {0: 5_000, 1: 10_000}


@pytest.mark.parametrize("alone", [3, 6, 12])
def test_two_slow_components_on_mostly_the_same_paths_are_two(alone: int) -> None:
    paths = [[0, 1]] * 10 + [[0]] * alone + [[1]] * alone
    late = [38_000.0] * 10 + [8_000.0] * alone + [30_000.0] * alone
    reported = search(paths, late)
    assert {each.candidate: round(each.delay_ns, -3) for each in reported} == {0: 8_000, 1: 30_000}

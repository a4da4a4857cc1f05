"""What candidates gain at tried rates, graded path by path and rate by rate with plain floats."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from syntony.fabric.loss_gains import MIN_SHARE, SOME_FLOWS_PRICE, CandidatePaths, Gains, PathLosses
from syntony.fabric.overflow import _medians
from syntony.fabric.tally import SHARES, Clean, Entries, PartlyLearnt

OUTLIER = 9.0


def log_likelihood(lost: float, arrived: float, rate: float) -> float:
    return lost * math.log(-math.expm1(-rate)) - arrived * rate


class Drawn:
    """Few different paths, many of each, and what crosses which; some candidates have no path."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        kinds = [
            (float(rng.randint(1, 3)), float(rng.randint(1, 400)),
             rng.choice((1e-5, 1e-3, 0.2)), -rng.choice((0.5, 6.0, 40.0)))
            for _ in range(rng.randint(1, 4))
        ]  # fmt: skip
        self.paths = [rng.choice(kinds) for _ in range(rng.randint(1, 60))]
        self.candidates = rng.randint(1, 9)
        self.sure, self.may = (
            {
                (path, candidate): rng.choice((1, 1, 2))
                for path in range(len(self.paths))
                for candidate in range(self.candidates)
                if rng.random() < density
            }
            for density in (0.3, rng.choice((0.0, 0.3)))
        )
        counts = [[float(rng.randint(0, 50)) for _ in range(self.candidates)] for _ in range(2)]
        self.clean = Clean(*map(np.array, (counts[0], [9 * n for n in counts[0]], counts[1],
                                           [7 * n for n in counts[1]])))  # fmt: skip
        self.asked = np.array(rng.sample(range(self.candidates), rng.randint(1, self.candidates)))
        self.grid = np.array([[rng.choice((1e-4, 0.01, 0.5, 3.0)) for _ in range(5)]
                              for _ in self.asked])  # fmt: skip

    def gains(self) -> Gains:
        sure, may = (
            Entries(
                np.array([path for path, _ in which], dtype=np.int64),
                np.array([candidate for _, candidate in which], dtype=np.int64),
                np.array([*which.values()], dtype=np.int8),
                self.candidates,
            )
            for which in (self.sure, dict.fromkeys(self.may, 1))
        )
        clean = Clean(*(each[self.asked] for each in self.clean))
        alike = np.array([self.paths.index(path) for path in self.paths])
        lost, arrived, rates, floor = (np.array(each) for each in zip(*self.paths, strict=True))
        beside = PathLosses(lost, arrived, rates, floor, alike)
        # No part is known beside the candidates, so that no other part's paths can be those hit.
        nothing = PartlyLearnt.nothing(len(self.paths))
        crossings = np.zeros((len(self.paths), 0), dtype=np.int32)
        paths = CandidatePaths(
            sure, may, clean, nothing, crossings, lambda _: Clean(*np.zeros((4, 0))),
            np.ones(len(self.asked), dtype=np.bool_), {},
        )  # fmt: skip
        return Gains(self.asked, paths, beside, OUTLIER)

    def gained(self, candidate: int, rate: float) -> float:
        """If all of its paths suffer, or only as many as lost anything, of which enough are more
        likely at this rate than without it."""
        lossy = sum(other == candidate for _, other in self.sure)
        clean = float(self.clean.paths[candidate])
        share = lossy / (lossy + clean) if lossy else 0.0
        some = self._gained_by(candidate, rate, share) - SOME_FLOWS_PRICE
        every = self._gained_by_all(candidate, rate)
        hit = 0
        for (path, other), times in self.sure.items():
            lost, arrived, rest, _ = self.paths[path]
            more = log_likelihood(lost, arrived, rest + rate * times)
            hit += other == candidate and more > log_likelihood(lost, arrived, rest)
        return max(every, some) if hit >= MIN_SHARE * max(lossy + clean, 1) else every

    def _gained_by(self, candidate: int, rate: float, share: float) -> float:
        paths, probes = (float(each[candidate]) for each in self.clean[:2])
        total = paths * self._well(share, rate * probes / max(paths, 1))
        for (path, other), times in self.sure.items():
            if other == candidate:
                lost, arrived, rest, floor = self.paths[path]
                plain = log_likelihood(lost, arrived, rest)
                across = math.log(share) + log_likelihood(lost, arrived, rest + rate * times)
                past = math.log1p(-share) + plain if share < 1 else -math.inf
                total += max(across, past, floor) - max(plain, floor)
        return total

    @staticmethod
    def _well(share: float, rate: float) -> float:
        unharmed = 1 - share + share * math.exp(-rate)
        return max(math.log(unharmed) if unharmed > 0 else -math.inf, -OUTLIER)

    def _gained_by_all(self, candidate: int, rate: float) -> float:
        paths, probes = (float(each[candidate]) for each in self.clean[:2])
        total = -paths * min(rate * probes / max(paths, 1), OUTLIER)
        for (path, other), times in self.sure.items():
            if other == candidate:
                lost, arrived, rest, floor = self.paths[path]
                with_it = log_likelihood(lost, arrived, rest + rate * times)
                total += max(with_it, floor) - max(log_likelihood(lost, arrived, rest), floor)
        return total

    def gained_of_share(self, candidate: int, rate: float, share: float) -> float:
        paths, probes = (float(each[candidate]) for each in self.clean[2:])
        total = paths * self._well(share, rate * probes / max(paths, 1))
        for path, other in self.may:
            if other == candidate:
                lost, arrived, rest, floor = self.paths[path]
                plain = log_likelihood(lost, arrived, rest)
                across = math.log(share) + log_likelihood(lost, arrived, rest + rate)
                past = math.log1p(-share) + plain if share < 1 else -math.inf
                total += max(across, past, floor) - max(plain, floor)
        return total


@pytest.mark.parametrize("draw", range(20))
def test_paths_that_are_alike_count_one_by_one(draw: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"draw {draw}, seed {seed}")
    drawn = Drawn(seed)
    gains = drawn.gains()
    sure, may = gains.sure(drawn.grid), gains.may(drawn.grid)
    for place, candidate in enumerate(drawn.asked.tolist()):
        for column, rate in enumerate(drawn.grid[place].tolist()):
            assert sure[place, column] == pytest.approx(drawn.gained(candidate, rate), abs=1e-9)
            if not {c for _, c in drawn.may} & {*drawn.asked.tolist()}:
                assert not may.any(), "no path that lost something may cross one of them"
                continue
            for number, share in enumerate(SHARES.tolist()):
                expected = drawn.gained_of_share(candidate, rate, share)
                assert may[number, place, column] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("draw", range(20))
def test_medians_of_groups_are_those_of_each_group_by_itself(draw: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"draw {draw}, seed {seed}")
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, rng.integers(1, 7))
    values = rng.integers(0, 5, (sizes.sum(), 4)).astype(np.float64)
    values[rng.random(values.shape) < 0.4] = np.nan
    begins = np.cumsum(sizes) - sizes
    found = _medians(values, begins)
    for group, part in enumerate(np.split(values, begins[1:])):
        for column in range(4):
            known = sorted(part[np.isfinite(part[:, column]), column].tolist())
            middle = known[(len(known) - 1) // 2 : len(known) // 2 + 1]
            expected = sum(middle) / len(middle) if middle else math.nan
            assert found[group, column] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(("explained", "of_another"), [(0, True), (20, False)])
def test_paths_that_another_fault_explains_are_unharmed_ones(
    explained: int, of_another: bool
) -> None:
    """Five paths across candidates 0 and 1 lose a tenth, and thirty across 0 alone nothing: the
    fault is at 1, unless paths across 1 lose no more than another fault explains."""
    paths = 5 + explained
    lost, arrived = np.full(paths, 40.0), np.full(paths, 360.0)
    rates = np.array([1e-5] * 5 + [-math.log(0.9)] * explained)
    rows = np.arange(paths)
    once = np.ones(paths, dtype=np.int8)
    clean = Clean(*np.array([[30.0, 0.0], [12_000.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    across = CandidatePaths(
        Entries(rows, rows * 0, once, 2),
        Entries(rows[:0], rows[:0], once[:0], 2),
        Clean(*(each[:1] for each in clean)),
        PartlyLearnt.nothing(paths),
        np.array([[0, 1]] * paths, dtype=np.int32),
        lambda each: Clean(*(part[each] for part in clean)),
        np.ones(1, dtype=np.bool_),
        {},
    )
    beside = PathLosses(lost, arrived, rates, np.full(paths, -1e9), np.zeros(paths, dtype=np.int64))
    gains = Gains(np.array([0], dtype=np.intp), across, beside, OUTLIER)
    assert gains._is_of_another(0) is of_another

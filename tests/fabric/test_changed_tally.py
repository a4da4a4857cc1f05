"""Losses reported as what changes of a window's sums, against all paths one after the other."""

from __future__ import annotations

import random

import numpy as np
from tests.fabric.test_same import drawn, plain_tally

from syntony.fabric.crossed import Carried, ChangedTally, PathCrossings
from syntony.fabric.tally import PartlyLearnt


def test_changes_of_sums_are_as_good_as_all_paths() -> None:
    first = random.randrange(1 << 30)
    for seed in range(first, first + 20):
        case, candidates = drawn(seed)
        crossed, rng = candidates.crossed, np.random.default_rng(seed)
        paths = len(case.sent)
        sent, lost = case.sent.copy(), case.lost.copy()
        sent[rng.random(paths) < 0.1] = 0
        sent[rng.random(paths) < 0.02] = -1
        carrying = crossed.carrying(int(rng.integers(1, paths + 1)))
        reported = rng.integers(-1, 90, carrying.paths)
        same = rng.random(carrying.paths) < 0.7
        reported[same] = sent[: carrying.paths][same]
        # Beyond the first, nothing is reported: what was sent there differs from nothing.
        differs = np.append(reported, np.zeros(paths - carrying.paths, np.int64)) != sent
        changed = np.flatnonzero(differs | (lost > 0))
        carried = Carried(reported, carrying.sums(reported), carrying.crossing)
        fast = ChangedTally(crossed, carried, changed, sent[changed], lost[changed])
        plain = plain_tally(crossed, sent, lost)
        every = np.arange(crossed.candidates)
        for one, other in zip(fast.clean_of(every), plain.clean_of(every), strict=True):
            assert one.tolist() == other.tolist(), f"{seed=}"
        for name in ("crossings", "times", "sent", "lost", "paths", "total_sent"):
            one, other = getattr(fast, name), getattr(plain, name)
            assert np.array_equal(one, other), f"{seed=} {name}"


def test_what_a_path_crosses_and_would_count_as_perhaps_crossed_is_known() -> None:
    crossings = np.array([[0, 1], [2, -1], [1, -1]], dtype=np.int32)
    partly = PartlyLearnt.of(np.array([0, 0, -1]), [[0, 2, 3]])
    crossed = PathCrossings(crossings, np.ones((3, 2), dtype=np.int8), 4, partly)
    path, candidate = crossed.listed_too
    assert [*zip(path.tolist(), candidate.tolist(), strict=True)] == [(0, 0), (1, 2)]

"""The search for losses on worlds of a few paths, where the answer is known without a fabric."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from syntony.fabric.loss import LossSearch, find_losses
from syntony.fabric.tally import LossTally, merge, tally_losses

CANDIDATES = 23
PRICE = np.full(CANDIDATES, math.log(CANDIDATES))


def tally(paths: list[list[int]], sent: list[int], lost: list[int]) -> LossTally:
    width = max(map(len, paths))
    crossings = np.array([path + [-1] * (width - len(path)) for path in paths], dtype=np.int32)
    return tally_losses(crossings, np.array(sent), np.array(lost), CANDIDATES)


def background(paths: int, first: int = 3) -> list[list[int]]:
    """Paths of others, which lose nothing."""
    return [[first + k % (CANDIDATES - first)] for k in range(paths)]


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("only_b", [0, 1])
def test_what_two_faults_have_in_common_is_not_blamed_for_one_of_them(
    share: float, only_b: int
) -> None:
    """Most lossy paths cross C, so that it looks worst at first; A and B explain them all, and the
    paths of A that do not cross C besides."""
    a, b, c = 0, 1, 2
    paths = [[a, c]] * 6 + [[a]] * 8 + [[b, c]] * 10 + [[b]] * only_b + background(400)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        risk = [share if {a, b} & set(path) else 1e-5 for path in paths]
        lost = rng.binomial(400, risk).tolist()
        found = find_losses(tally(paths, [400] * len(paths), lost), PRICE)
        assert {each.candidate for each in found} == {a, b}, f"seed {seed}"
        for each in found:
            assert 0.6 * share < each.loss < 1.6 * share
            assert c not in each.alternatives


@pytest.mark.parametrize(("lost", "named"), [([1, 1], []), ([1, 1, 1], [0]), ([1, 1, 1, 1], [0])])
def test_two_lost_probes_are_never_a_finding(lost: list[int], named: list[int]) -> None:
    """… however cheap the candidate and unlikely the loss."""
    paths = [[0] for _ in lost] + background(20)
    sent = [10] * len(lost) + [10**7] * 20
    found = find_losses(tally(paths, sent, lost + [0] * 20), np.zeros(CANDIDATES), strictness=0.0)
    assert [each.candidate for each in found] == named


def test_a_dearer_candidate_needs_more_evidence_and_an_endless_price_none_buys() -> None:
    paths = [[0, 1]] * 6 + background(100)
    counts = tally(paths, [100] * 106, [5] * 6 + [0] * 100)
    for price, best in (((0, 1), 0), ((1, 0), 1), ((math.inf, 1), 1), ((2, math.inf), 0)):
        prices = PRICE.copy()
        prices[:2] += price
        (found,) = find_losses(counts, prices)
        assert found.candidate == best
        other = 1 - best
        assert found.alternatives == ((other,) if max(price) <= 2 else ())
        # Its rival is as likely as it is cheap.
        rivals = math.exp(-abs(price[1] - price[0])) if max(price) <= 2 else 0.0
        assert found.confidence == pytest.approx(1 / (1 + rivals), rel=1e-3)
        assert found.loss == pytest.approx(0.05, rel=0.1)
        assert found.paths == 6
        assert found.lost == pytest.approx(30, rel=0.02)
    nothing = PRICE.copy()
    nothing[:2] = math.inf
    assert find_losses(counts, nothing) == []
    assert find_losses(counts, PRICE + 1_000) == []


def test_a_rival_far_behind_is_no_alternative() -> None:
    """Both cross all lossy paths; one of them also many that lose nothing."""
    paths = [[0, 1]] * 6 + [[1]] * 40 + background(100)
    (found,) = find_losses(tally(paths, [100] * 146, [5] * 6 + [0] * 140), PRICE)
    assert (found.candidate, found.alternatives) == (0, ())
    assert found.confidence > 0.99


def test_paths_that_lose_nothing_acquit() -> None:
    for clean, named in ((0, [0]), (400, [])):
        paths = [[0]] * 6 + [[0]] * clean + background(400)
        counts = tally(paths, [100] * len(paths), [1] * 6 + [0] * (clean + 400))
        assert [each.candidate for each in find_losses(counts, PRICE)] == named


def test_faults_are_found_up_to_so_many_most_certain_first() -> None:
    paths = [[k] for k in range(5) for _ in range(6)] + background(400, first=5)
    lost = [4 * (k + 1) for k in range(5) for _ in range(6)] + [0] * 400
    counts = tally(paths, [100] * len(paths), lost)
    found = find_losses(counts, PRICE)
    assert {each.candidate: round(each.loss, 2) for each in found} == {
        k: 0.04 * (k + 1) for k in range(5)
    }
    assert all(a.nats >= b.nats for a, b in pairwise(found))
    assert len(find_losses(counts, PRICE, max_found=2)) == 2


def test_newer_seconds_speak_for_or_against_a_fault_of_that_size() -> None:
    """The sign and the size of what they say, from first principles: k of n probes lost."""
    paths = [[0]] * 10 + [[1]] * 10 + background(100)
    sent = [1000] * 120
    quiet = LossSearch(tally(paths, sent, [0] * 120), PRICE)
    assert quiet.findings == []
    # Ten paths without a loss, 1,000 probes each, at 1e-4: 1 nat; at 10 %: as much as ten
    # outliers cost at most, which is three nats each where nothing was found at all.
    assert quiet.gain_at(0, 1e-4) == pytest.approx(-1.0, rel=0.01)
    assert quiet.gain_at(0, 0.1) == pytest.approx(-30.0, rel=0.01)
    assert quiet.gain_at(0, 1.0) == pytest.approx(-30.0, rel=0.01)
    lossy = LossSearch(tally(paths, sent, [20] * 10 + [0] * 110), PRICE)
    assert [each.candidate for each in lossy.findings] == [0]
    assert lossy.gain_at(1, 0.02) < -100
    assert lossy.gain_at(1, 1e-4) == pytest.approx(-1.0, rel=0.05)
    # Beside a known 2 % of its own there is no room for as much again.
    assert -500 < lossy.gain_at(0, 0.02) < -20


def test_a_tally_counts_what_lost_nothing_only_by_candidate() -> None:
    paths = [[0, 1], [1], [1, 2], [2], [0]]
    counts = tally(paths, [10, 20, 30, 0, 50], [0, 2, 0, 0, 0])
    assert counts.clean_paths[:3].tolist() == [2, 2, 1]
    assert counts.clean_probes[:3].tolist() == [60, 40, 30]
    assert (counts.paths, counts.total_sent, counts.total_lost) == (4, 110, 2)
    assert (counts.sent.tolist(), counts.lost.tolist()) == ([20], [2])
    assert counts.crossings.tolist() == [[1, -1]]
    assert counts.candidates == CANDIDATES
    both = merge([counts, tally([[5]], [7], [3])])
    assert both.crossings.tolist() == [[1, -1], [5, -1]]
    assert (both.paths, both.total_sent, both.total_lost) == (5, 117, 5)
    assert both.clean_probes[:3].tolist() == [60, 40, 30]

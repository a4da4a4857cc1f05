"""The search for losses on worlds of a few paths, where the answer is known without a fabric."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from bench.tallies import LossTally, merge, tally_losses

from syntony.fabric.loss import LossSearch
from syntony.fabric.loss_fit import Fit
from syntony.fabric.loss_gains import Gains
from syntony.fabric.loss_pairs import Pair, RivalPairs, instead, two_of
from syntony.fabric.loss_search import Search
from syntony.fabric.loss_suspects import OVERSTATED, SuspectSearch, may_exceed
from syntony.fabric.tally import CandidateParts, Floats, Index, NoStructure, PartlyLearnt

CANDIDATES = 23
PENALTY = np.full(CANDIDATES, math.log(CANDIDATES))


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
        found = LossSearch(tally(paths, [400] * len(paths), lost), PENALTY).findings
        assert {each.candidate for each in found} == {a, b}, f"seed {seed}"
        for each in found:
            assert 0.6 * share < each.loss < 1.6 * share
            assert c not in each.alternatives


@pytest.mark.parametrize(("lost", "named"), [([1, 1], []), ([1, 1, 1], [0]), ([1, 1, 1, 1], [0])])
def test_two_lost_probes_are_never_a_finding(lost: list[int], named: list[int]) -> None:
    """… however cheap the candidate and unlikely the loss."""
    paths = [[0] for _ in lost] + background(20)
    sent = [10] * len(lost) + [10**7] * 20
    found = LossSearch(
        tally(paths, sent, lost + [0] * 20), np.zeros(CANDIDATES), threshold=0.0
    ).findings
    assert [each.candidate for each in found] == named


@pytest.mark.parametrize("lost", [7, 11, 18, 29, 47, 76, 123, 199, 322, 521, 843])
def test_a_loss_is_told_to_a_third_of_a_per_cent_where_there_are_probes_enough(lost: int) -> None:
    paths = [[0]] * 20 + background(100)
    counts = tally(paths, [1_000] * 120, [lost] * 20 + [0] * 100)
    (found,) = LossSearch(counts, PENALTY).findings
    rate, expected = (-math.log1p(-share) for share in (found.loss, lost / 1_000))
    assert rate == pytest.approx(expected, rel=0.003)


@pytest.mark.parametrize(("few", "sure"), [(20, 0.5), (60, 0.5), (400, 0.9)])
def test_evidence_between_two_suspects_counts_for_less_than_its_nats(few: int, sure: float) -> None:
    """Paths of both lose, and one of the first alone that sent few probes loses nothing of them."""
    paths = [[0, 1]] * 8 + [[0]] + background(100)
    counts = tally(paths, [400] * 8 + [few] + [400] * 100, [20] * 8 + [0] * 101)
    (found,) = LossSearch(counts, PENALTY).findings
    nats = -few * math.log1p(-found.loss)
    assert found.candidate == 1
    assert found.confidence == pytest.approx(1 / (1 + math.exp(-nats / OVERSTATED)), abs=0.02)
    assert found.confidence > sure


def test_a_dearer_candidate_needs_more_evidence_and_an_endless_price_none_buys() -> None:
    paths = [[0, 1]] * 6 + background(100)
    counts = tally(paths, [100] * 106, [5] * 6 + [0] * 100)
    for penalty, best in (((0, 1), 0), ((1, 0), 1), ((math.inf, 1), 1), ((2, math.inf), 0)):
        prices = PENALTY.copy()
        prices[:2] += penalty
        (found,) = LossSearch(counts, prices).findings
        assert found.candidate == best
        other = 1 - best
        assert found.alternatives == ((other,) if max(penalty) <= 2 else ())
        # Its rival is as likely as it is cheap.
        rivals = math.exp(-abs(penalty[1] - penalty[0])) if max(penalty) <= 2 else 0.0
        assert found.confidence == pytest.approx(1 / (1 + rivals), rel=1e-3)
        assert found.loss == pytest.approx(0.05, rel=0.1)
        assert found.paths == 6
        assert found.lost == pytest.approx(30, rel=0.02)
    nothing = PENALTY.copy()
    nothing[:2] = math.inf
    assert LossSearch(counts, nothing).findings == []
    assert LossSearch(counts, PENALTY + 1_000).findings == []


def test_a_rival_far_behind_is_no_alternative() -> None:
    """Both cross all lossy paths; one of them also many that lose nothing."""
    paths = [[0, 1]] * 6 + [[1]] * 40 + background(100)
    (found,) = LossSearch(tally(paths, [100] * 146, [5] * 6 + [0] * 140), PENALTY).findings
    assert (found.candidate, found.alternatives) == (0, ())
    assert found.confidence > 0.99


def test_paths_that_lose_nothing_acquit() -> None:
    for clean, named in ((0, [0]), (400, [])):
        paths = [[0]] * 6 + [[0]] * clean + background(400)
        counts = tally(paths, [100] * len(paths), [1] * 6 + [0] * (clean + 400))
        assert [each.candidate for each in LossSearch(counts, PENALTY).findings] == named


def test_faults_are_found_up_to_so_many_most_certain_first() -> None:
    paths = [[k] for k in range(5) for _ in range(6)] + background(400, first=5)
    lost = [4 * (k + 1) for k in range(5) for _ in range(6)] + [0] * 400
    counts = tally(paths, [100] * len(paths), lost)
    found = LossSearch(counts, PENALTY).findings
    assert {each.candidate: round(each.loss, 2) for each in found} == {
        k: 0.04 * (k + 1) for k in range(5)
    }
    assert all(a.nats >= b.nats for a, b in pairwise(found))
    assert len(LossSearch(counts, PENALTY, max_found=2).findings) == 2


def test_newer_seconds_speak_for_or_against_a_fault_of_that_size() -> None:
    """The sign and the size of what they say, from first principles: k of n probes lost."""
    paths = [[0]] * 10 + [[1]] * 10 + background(100)
    sent = [1000] * 120
    quiet = LossSearch(tally(paths, sent, [0] * 120), PENALTY)
    assert quiet.findings == []
    # Ten paths without a loss, 1,000 probes each, at 1e-4: 1 nat; at 10 %: as much as ten
    # outliers cost at most, which is three nats each where nothing was found at all.
    assert quiet.gain_at(0, 1e-4) == pytest.approx(-1.0, rel=0.01)
    assert quiet.gain_at(0, 0.1) == pytest.approx(-30.0, rel=0.01)
    assert quiet.gain_at(0, 1.0) == pytest.approx(-30.0, rel=0.01)
    lossy = LossSearch(tally(paths, sent, [20] * 10 + [0] * 110), PENALTY)
    assert [each.candidate for each in lossy.findings] == [0]
    assert lossy.gain_at(1, 0.02) < -100
    assert lossy.gain_at(1, 1e-4) == pytest.approx(-1.0, rel=0.05)
    # What was found there itself is no evidence against it.
    assert lossy.gain_at(0, 0.02) > 100 > lossy.gain_at(0, 0.3)


def test_what_was_found_instead_of_a_candidate_does_not_speak_against_it() -> None:
    """Two that hardly differ: one of them is found, and the other is its alternative."""
    paths = [[0, 1]] * 10 + [[0]] + background(100)
    searched = LossSearch(tally(paths, [1000] * 111, [20] * 10 + [18] + [0] * 100), PENALTY)
    assert [(each.candidate, each.alternatives) for each in searched.findings] == [(0, ())]
    assert searched.gain_at(1, 0.02) < -20, "it is told from 0"
    searched = LossSearch(
        tally(paths[:10] + paths[11:], [1000] * 110, [20] * 10 + [0] * 100), PENALTY
    )
    (found,) = searched.findings
    assert {found.candidate, *found.alternatives} == {0, 1}
    assert min(searched.gain_at(0, 0.02), searched.gain_at(1, 0.02)) > 100


def partly(paths: int, may: list[int]) -> PartlyLearnt:
    """Of the first `may` paths it is known only that they may cross candidate 0."""
    combo = np.array([0 if path in may else -1 for path in range(paths)], dtype=np.int64)
    return PartlyLearnt.of(combo, [[0]])


@pytest.mark.parametrize("share", [0.05, 1.0])
def test_where_all_that_may_cross_it_do_it_is_as_certain_as_if_that_were_known(
    share: float,
) -> None:
    rng = np.random.default_rng(5)
    sent = np.full(430, 400)
    lost = np.where(np.arange(430) < 30, np.maximum(1, rng.binomial(400, share, 430)), 0)
    known = np.array([[0]] * 30 + background(400), dtype=np.int32)
    unknown = np.array([[-1]] * 30 + background(400), dtype=np.int32)
    (sure,) = LossSearch(tally_losses(known, sent, lost, CANDIDATES), PENALTY).findings
    counts = tally_losses(unknown, sent, lost, CANDIDATES, partly(430, list(range(30))))
    (may,) = LossSearch(counts, PENALTY).findings
    assert (may.candidate, may.paths) == (sure.candidate, sure.paths) == (0, 30)
    assert may.nats == pytest.approx(sure.nats, rel=1e-6)
    assert may.loss == pytest.approx(sure.loss, rel=1e-6)


@pytest.mark.parametrize("hit", [2, 4, 16])
def test_of_paths_that_may_cross_it_those_that_lose_are_taken_to_cross_it(hit: int) -> None:
    """One path in so many, of 128, goes by what is broken; nothing else explains their loss."""
    lost = np.array([40 if k < 128 and k % hit == 0 else 0 for k in range(528)])
    unknown = np.array([[-1]] * 128 + background(400), dtype=np.int32)
    counts = tally_losses(unknown, np.full(528, 400), lost, CANDIDATES,
                          partly(528, list(range(128))))  # fmt: skip
    (found,) = LossSearch(counts, PENALTY).findings
    assert (found.candidate, found.paths) == (0, 128 // hit)
    assert found.loss == pytest.approx(0.1, rel=0.05)


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


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6])
def test_what_is_crossed_twice_loses_twice(share: float) -> None:
    """Round trips cross a NIC twice, and single ways once: it is one fault of one size."""
    paths = [[0, 1]] * 20 + [[0, 2]] * 20 + background(200)
    times = np.ones((len(paths), 2), dtype=np.int8)
    times[:20, 0] = 2
    risk = [1 - (1 - share) ** 2] * 20 + [share] * 20 + [0.0] * 200
    sent, rows = np.full(len(paths), 500), [path + [-1] * (2 - len(path)) for path in paths]
    for seed in range(3):
        lost = np.random.default_rng(seed).binomial(500, risk)
        crossings = np.array(rows, dtype=np.int32)
        counts = tally_losses(crossings, sent, lost, CANDIDATES, times=times)
        (found,) = LossSearch(counts, PENALTY).findings
        assert found.candidate == 0, f"seed {seed}"
        assert found.loss == pytest.approx(share, rel=0.1)
        assert found.lost == pytest.approx(lost.sum(), rel=0.01)
        # Quiet ways that cross it twice speak against it twice.
        quiet = tally_losses(crossings, sent, lost * 0, CANDIDATES, times=times)
        assert quiet.clean_probes[0] == 3 * 20 * 500
        again = merge([counts, tally([[5]], [7], [3])])
        assert LossSearch(again, PENALTY).findings[0].loss == pytest.approx(share, rel=0.1)


class Fitted:
    """Rates and gains that are given, as `loss_pairs.Fits`; counts what is fitted together."""

    def __init__(self, gains: list[float]) -> None:
        self.price = np.zeros(len(gains))
        self._gains = np.array(gains)
        self.held = 0

    def fitted(self, candidates: Index, _rates: Floats, _floor: Floats) -> tuple[Floats, Floats]:
        return self._gains[candidates], np.full(len(candidates), 0.1)

    def gains(self, candidates: Index, _grid: Floats, _rates: Floats, _floor: Floats) -> Floats:
        return self._gains[candidates][:, None]

    def rows_of(
        self, _candidate: int, _rate: float, _rates: Floats, _floor: Floats
    ) -> tuple[Index, Floats]:
        self.held += 1
        return np.zeros(0, dtype=np.intp), np.zeros(0)


@pytest.mark.parametrize(("each", "fits_together"), [(40.0, True), (30.0, False)])
def test_parts_that_gain_too_little_alone_are_not_fitted_together(
    each: float, fits_together: bool
) -> None:
    """Of a switch that gains 100 nats."""
    fits = Fitted([100.0, each, each, 1.0])
    parts = CandidateParts(np.array([1, 2, 3]), np.array([0, 1, 2]))
    pair = two_of(fits, 0, parts, np.zeros(0), np.zeros(0))
    assert pair.parts == (1, 2)
    assert pair.nats == pytest.approx(2 * each - 100 - math.log(3))
    assert bool(fits.held) is fits_together


@pytest.mark.parametrize(
    ("others", "may"), [([50.1, 3.0], True), ([49.9, 49.9], False), ([], False)]
)
def test_a_second_search_needs_others_that_gain_half_as_much(
    others: list[float], may: bool
) -> None:
    assert may_exceed(np.array(others), 100.0) is may


@pytest.mark.parametrize(
    ("rival", "of_one", "of_two"), [((2, 3), {3}, set()), ((0, 1), set(), {0}), ((0, 3), {0}, {3})]
)
def test_of_an_alternative_pair_each_part_takes_the_place_it_fits(
    rival: tuple[int, int], of_one: set[int], of_two: set[int]
) -> None:
    """A part that both pairs have replaces itself."""
    rates = 0.1, 0.1
    pairs = RivalPairs(
        Pair((1, 2), rates, 50.0), (Pair(rival, rates, 49.0),), {n: n for n in range(4)}
    )
    found = instead(pairs)
    assert ({*found[1]}, {*found[2]}) == (of_one, of_two)
    odds = [share for each in found.values() for share in each.values()]
    assert odds == pytest.approx([math.exp(-1)] * len(odds))


def test_rates_are_refitted_until_they_are_stable_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted, refit = 0, Fit._set_background

    def counted(self: Fit) -> None:
        nonlocal fitted
        fitted += 1
        refit(self)

    monkeypatch.setattr(Fit, "_set_background", counted)
    paths = [[0]] * 20 + background(100)
    LossSearch(tally(paths, [1_000] * 120, [50] * 20 + [0] * 100), PENALTY)
    assert fitted < 12


def test_candidates_that_cannot_win_are_not_fitted_and_none_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of 20 others is on one of the paths across the faulty one."""
    fits: list[int] = []
    fit = Gains.fitted

    def counted(gains: Gains, grid: Floats) -> tuple[Floats, Floats]:
        fits.append(len(gains.share_of_flows))
        return fit(gains, grid)

    monkeypatch.setattr(Gains, "fitted", counted)
    paths = [[0, 3 + n] for n in range(20)] + [[1]] * 100
    counts = tally(paths, [1_000] * 120, [100] * 20 + [0] * 100)
    search = Search(counts, PENALTY + 4, 32, NoStructure())
    assert search._search()
    assert search._found.keys() == {0}
    assert max(fits) <= 8
    before = len(fits)
    search._restore(search._state())
    search._exchange()
    assert len(fits) == before


@pytest.mark.parametrize(("nats", "named"), [(1.0, True), (4.0, False)])
def test_what_another_result_has_instead_is_an_alternative_if_close(
    nats: float, named: bool
) -> None:
    paths = [[0]] * 20 + background(100)
    counts = tally(paths, [1_000] * 120, [50] * 20 + [0] * 100)
    search = SuspectSearch(counts, PENALTY + 4, 32, NoStructure())
    assert search.run()
    search._instead[0] = {2: math.exp(-nats)}
    assert search._finding(0).alternatives == ((2,) if named else ())


def test_rivals_are_compared_with_the_rates_of_all_others_refitted() -> None:
    """Candidate 2 in the place of 0 has more paths of 1, which then loses less."""
    paths = [[0, 2]] * 10 + [[1, 2]] * 10 + [[1]] * 10 + background(400)
    counts = tally(paths, [400] * 430, [20] * 10 + [32] * 10 + [28] * 10 + [0] * 400)

    def worth(*allowed: int) -> float:
        price = np.full(CANDIDATES, np.inf)
        price[[*allowed]] = PENALTY[0]
        search = SuspectSearch(counts, price, 32, NoStructure())
        search.run()
        assert search._found.keys() == {*allowed}
        return search._worth()

    search = SuspectSearch(counts, PENALTY, 32, NoStructure())
    search.run()
    assert search._found.keys() == {0, 1}
    search._refit_instead((0,), [2])
    # Worth of two findings: the second in the order of search is cheaper.
    assert search._refitted[0][2] == pytest.approx(worth(2, 1) - worth(0, 1), abs=0.05)

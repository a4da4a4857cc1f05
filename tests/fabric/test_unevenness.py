"""Losses that differ from path to path beyond chance: measured, and no reason for further names."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.tallies import tally_losses
from tests.fabric.foreign import Case, Shape, draw
from tests.fabric.test_foreign import located, verdict

from syntony.fabric import loss_suspects
from syntony.fabric.loss import LossSearch
from syntony.fabric.tally import Floats
from syntony.fabric.unevenness import TRIED, events, likelihood

WIDE = Shape(leaves=4, spines=3, hosts=3, rails=1, parallel=1)


def probability(lost: Floats, sent: int, rate: float, uneven: float) -> Floats:
    """Of each number of lost probes: with the binomial coefficient that `likelihood` leaves out."""
    ways = [math.lgamma(sent + 1) - math.lgamma(k + 1) - math.lgamma(sent - k + 1) for k in lost]
    return np.exp(np.array(ways) + likelihood(lost, sent - lost, np.array([rate]), uneven))


@pytest.mark.parametrize("uneven", [0.0, *TRIED])
@pytest.mark.parametrize("rate", [1e-5, 0.03, 0.5, 3.0])
def test_probabilities_have_the_mean_and_variance_that_they_stand_for(
    rate: float, uneven: float
) -> None:
    sent, lost = 200, np.arange(201.0)
    share, each = -math.expm1(-rate), probability(np.arange(201.0), 200, rate, uneven)
    assert each.sum() == pytest.approx(1.0)
    mean = float(each @ lost)
    assert mean == pytest.approx(sent * share)
    variance = sent * share * (1 - share) * (1 + (sent - 1) * uneven)
    assert float(each @ (lost - mean) ** 2) == pytest.approx(variance, rel=1e-4)


@pytest.mark.parametrize("uneven", TRIED)
def test_that_no_burst_came_is_less_evidence_than_that_no_single_loss_did(uneven: float) -> None:
    sent, rate, nothing = np.array([300.0]), np.array([0.01]), np.zeros(1)
    even, less = (likelihood(nothing, sent, rate, each)[0] for each in (0.0, uneven))
    assert even == pytest.approx(-3.0)
    assert even < less < 0


@pytest.mark.parametrize("uneven", [0.0, 0.01, 0.1])
def test_independent_losses_and_probes_give_the_most_likely_rate(uneven: float) -> None:
    sent = np.full(50, 300.0)
    lost = np.zeros(50)
    lost[:6] = 1, 1, 4, 12, 30, 2
    rate = 0.01
    for _ in range(200):
        gone, come = events(lost, sent, np.full(50, rate), uneven)
        rate = float(gone.sum() / come.sum())
    tried = rate * np.array([0.98, 1.0, 1.02])
    worth = [likelihood(lost, sent - lost, np.full(50, each), uneven).sum() for each in tried]
    # Of a rate λ the share 1 - exp(-λ) is lost: for small ones nearly the same.
    assert int(np.argmax(worth)) == 1


def test_even_losses_of_many_paths_are_told_from_uneven_ones() -> None:
    noise, paths = np.random.default_rng(1), [[0]] * 60 + [[1]] * 60
    sent, nothing = np.full(120, 400), np.zeros(60, dtype=np.int64)
    for uneven in (0.0, 0.03):
        share = np.full(60, 0.05) if not uneven else noise.beta(0.05 * 32, 0.95 * 32, 60)
        lost = np.concatenate((noise.binomial(400, share), nothing))
        counts = tally_losses(np.array(paths, dtype=np.int32), sent, lost, 2)
        search = LossSearch(counts, np.full(2, math.log(2)))
        assert [each.candidate for each in search.findings] == [0]
        assert (search.uneven > 0) == (uneven > 0)


@pytest.mark.parametrize("seed", [57_000_009, 57_000_018, 57_000_020])
def test_paths_that_lose_unevenly_are_one_fault(seed: int) -> None:
    """Each had names of parts beside its own."""
    case = draw(seed, uneven=0.3)
    assert verdict(case, located(case)) == ("right", 0)


def test_losses_in_bursts_are_one_fault() -> None:
    """Of few and short bursts alone the unevenness is not known: one may have a second name."""
    doubled = {
        (burst, seed, fault)
        for burst in (3.0, 10.0)
        for seed in range(8)
        for fault in ("spine", "leaf")
        if _doubled(draw(seed, shape=WIDE, known=1.0, fault=fault, burst=burst))
    }
    assert len(doubled) <= 2, doubled


def _doubled(case: Case) -> int:
    _, doubled = verdict(case, located(case))
    return doubled


def test_two_faults_are_both_found_among_uneven_losses() -> None:
    for seed in range(6):
        noise = np.random.default_rng(seed)
        case = draw(seed, shape=WIDE, known=1.0, fault="spine")
        other = next(
            name
            for path in case.paths
            for name in sorted(path.true)
            if "leaf" in name and "spine" not in name and "->" not in name and "--" not in name
        )
        hit = np.array([case.truth in path.true for path in case.paths])
        struck = np.array([other in path.true for path in case.paths])
        factor = noise.lognormal(0.0, 0.3, len(hit))
        rate = (0.05 * hit + 0.1 * struck) * factor
        lost = noise.binomial(case.sent, -np.expm1(-rate))
        found = {each.component for each in located(case._replace(lost=lost))}
        assert found == {case.truth, other}, f"seed {seed}"


def test_even_losses_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = 0
    run = loss_suspects.SuspectSearch.run

    def counting(search: loss_suspects.SuspectSearch) -> list[loss_suspects.LossFinding] | None:
        nonlocal runs
        runs += 1
        return run(search)

    monkeypatch.setattr(loss_suspects.SuspectSearch, "run", counting)
    case = draw(3, shape=WIDE, known=1.0, fault="spine")
    hit = np.array([case.truth in path.true for path in case.paths])
    noise = np.random.default_rng(3)
    lost = noise.binomial(case.sent, np.where(hit, 0.1, 0.0))
    located(case._replace(lost=lost))
    assert runs == 1
    lost = noise.binomial(case.sent, np.where(hit, 0.1 * noise.lognormal(0.0, 0.5, len(hit)), 0.0))
    located(case._replace(lost=lost))
    assert runs in {3, 4}, "with what was seen"

"""Losses that differ from path to path beyond chance: measured, and no reason for further names."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fabric.foreign import Case, Shape, draw
from tests.fabric.test_foreign import located, verdict

from syntony.fabric import loss_suspects
from syntony.fabric.tally import Floats, Index
from syntony.fabric.unevenness import MIN_PATHS, unevenness, weights

WIDE = Shape(leaves=4, spines=3, hosts=3, rails=1, parallel=1)


def counted(
    noise: np.random.Generator, rate: float, varies: float, paths: int
) -> tuple[Floats, Floats]:
    """Sent and lost of paths whose λ is gamma-distributed with this mean and relative variance."""
    sent = noise.integers(200, 600, paths).astype(np.float64)
    factor = noise.gamma(1 / varies, varies, paths) if varies else np.ones(paths)
    return sent, noise.binomial(sent.astype(np.int64), -np.expm1(-rate * factor)).astype(np.float64)


@pytest.mark.parametrize("rate", [0.03, 0.3, 2.0])
def test_what_chance_explains_is_even(rate: float) -> None:
    noise = np.random.default_rng(1)
    seen = 0
    for paths in (MIN_PATHS, 20, 100, 400) * 50:
        sent, lost = counted(noise, rate, 0.0, paths)
        seen += unevenness(sent, lost, np.full(paths, rate)) > 0
    assert seen <= 8, f"{seen} of 200"


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.5])
@pytest.mark.parametrize("varies", [0.1, 0.3])
def test_the_variance_between_paths_is_measured(varies: float, rate: float) -> None:
    noise = np.random.default_rng(2)
    sent, lost = counted(noise, rate, varies, 4_000)
    assert unevenness(sent, lost, np.full(4_000, rate)) == pytest.approx(varies, rel=0.35)


def test_paths_that_cross_something_else_too_make_none_uneven() -> None:
    noise = np.random.default_rng(3)
    sent, lost = counted(noise, 0.1, 0.0, 300)
    more, _ = counted(noise, 0.1, 0.0, 90)
    lost[:90] += noise.binomial(more.astype(np.int64), 0.1)
    assert unevenness(sent, lost, np.full(300, 0.1)) < 0.06
    sent, lost = counted(noise, 0.1, 0.3, 300)
    assert unevenness(sent, lost, np.full(300, 0.1)) > 0.15, "these are"


@pytest.mark.parametrize(
    ("paths", "sent", "rate"),
    [(MIN_PATHS - 1, 400.0, 0.3), (100, 400.0, 0.01), (100, 400.0, 6.0)],
    ids=["few paths", "few lost", "few came"],
)
def test_too_little_says_nothing(paths: int, sent: float, rate: float) -> None:
    lost = np.where(np.arange(paths) % 2, sent * 0.9, 0.0)
    assert unevenness(np.full(paths, sent), lost, np.full(paths, rate)) == 0.0


@pytest.mark.parametrize("rate", [0.03, 0.3, 1.5])
def test_counts_weigh_as_much_as_their_variance_allows(rate: float) -> None:
    noise = np.random.default_rng(4)
    sent = np.full(40_000, 400.0)
    factor = noise.gamma(20.0, 0.05, len(sent))
    lost = noise.binomial(400, -np.expm1(-rate * factor)).astype(np.float64)
    share = float(lost.mean() / 400)
    chance = 400 * share * (1 - share)
    (weight,) = weights(sent[:1], np.array([lost.mean()]), 0.05)
    assert lost.var() * weight == pytest.approx(chance, rel=0.15)
    assert weights(sent, lost, 0.0).tolist() == [1.0] * len(sent)


def test_a_path_that_lost_everything_is_full_evidence() -> None:
    (weight,) = weights(np.array([400.0]), np.array([400.0]), 0.1)
    assert weight > 0.3


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

    def counting(
        search: loss_suspects.SuspectSearch, known: Index
    ) -> list[loss_suspects.LossFinding] | None:
        nonlocal runs
        runs += 1
        return run(search, known)

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

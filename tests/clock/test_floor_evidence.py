"""A floor is touched in every stretch of a window, and how far below it lies shows in them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from bench.simulated import queues, stamps
from numpy.typing import NDArray

from syntony.clock.fit import fit_window
from syntony.clock.floor_evidence import FloorEvidence, floor_evidence
from syntony.clock.samples import Clouds, PairSamples

Floats = NDArray[np.float64]
Delays = Callable[[np.random.Generator, Floats], Floats]

SEEDS = 60
WINDOW_NS = 2e9


def _exponential(rng: np.random.Generator, t: Floats) -> Floats:
    return 5_000 + rng.exponential(200, len(t))


def _half_bell(rng: np.random.Generator, t: Floats) -> Floats:
    return 5_000 + np.abs(rng.normal(0, 30, len(t)))


def _steep(rng: np.random.Generator, t: Floats) -> Floats:
    return 5_000 + rng.weibull(0.8, len(t)) * 3_000


def _walk(rng: np.random.Generator, t: Floats) -> Floats:
    """A queue in heavy traffic that does not empty within the window."""
    steps = rng.normal(0, 1, len(t)) * np.sqrt(np.diff(t, prepend=0.0) / 1e9)
    return 25_000 + 4_000 * np.cumsum(steps)


def _standing(rng: np.random.Generator, t: Floats) -> Floats:
    """A queue that returns to a level of its own, with some bursts on top."""
    level = np.empty(len(t))
    state = 0.0
    for at in range(len(t)):
        state = 0.95 * state + rng.normal(0, 300)
        level[at] = state
    return 30_000 + level + rng.exponential(500, len(t))


def _sawtooth(rng: np.random.Generator, t: Floats) -> Floats:
    """One TCP flow fills the queue and halves."""
    return 20_000 + 15_000 * ((t / 3e8 + rng.uniform()) % 1.0) + rng.normal(0, 30, len(t))


def _full(rng: np.random.Generator, t: Floats) -> Floats:
    """A queue that is always full: whoever gets in waits for all of it but a part of one packet."""
    return 50_000 + rng.uniform(0, 480, len(t))


def _bell(rng: np.random.Generator, t: Floats) -> Floats:
    """Around a mean, as queues of many flows are."""
    return 30_000 + rng.normal(0, 2_000, len(t))


def _clouds(rng: np.random.Generator, forward: Delays, reverse: Delays, probes: int) -> Clouds:
    sent = [np.sort(rng.uniform(0, WINDOW_NS, probes)) for _ in range(2)]
    got = [sent[0] + forward(rng, sent[0]), sent[1] + reverse(rng, sent[1])]
    stamps = [np.round(at).astype(np.int64) for at in (sent[0], got[0], sent[1], got[1])]
    return Clouds.of(PairSamples(*stamps))


def _evidence(forward: Delays, reverse: Delays, probes: int) -> list[FloorEvidence]:
    rngs = [np.random.default_rng([seed, probes]) for seed in range(SEEDS)]
    return [
        floor_evidence(_clouds(rng, forward, reverse, probes), 0.0, clustered=False) for rng in rngs
    ]


def _share(forward: Delays, reverse: Delays, probes: int) -> float:
    return float(np.mean([each.confirmed for each in _evidence(forward, reverse, probes)]))


@pytest.mark.parametrize("probes", [128, 400, 2_000])
@pytest.mark.parametrize("delays", [_exponential, _half_bell, _steep])
def test_a_dense_edge_is_a_floor(delays: Delays, probes: int) -> None:
    assert _share(delays, delays, probes) > 0.75


@pytest.mark.parametrize("probes", [128, 400, 2_000])
@pytest.mark.parametrize("delays", [_walk, _standing, _sawtooth, _full, _bell])
def test_a_queue_that_stands_is_not(delays: Delays, probes: int) -> None:
    """In one direction is enough."""
    assert _share(delays, _exponential, probes) <= 0.04
    assert _share(_exponential, delays, probes) <= 0.04


@pytest.mark.parametrize("probes", [12_000, 40_000])
def test_so_many_probes_that_chances_leave_the_floats_range(probes: int) -> None:
    """As a pair of NICs with many paths in many classes has them."""
    rng = np.random.default_rng(probes)
    clouds = _clouds(rng, _steep, _exponential, probes)
    assert floor_evidence(clouds, 0.0, clustered=False).confirmed


def test_too_few_probes_prove_nothing() -> None:
    rng = np.random.default_rng(1)
    clouds = _clouds(rng, _exponential, _exponential, 60)
    assert not floor_evidence(clouds, 0.0, clustered=True).confirmed


def test_a_step_inside_the_window_is_not_a_floor() -> None:
    """Half the window seems slow in one direction, the other half in the other."""
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        at = rng.uniform(0.2, 0.8) * WINDOW_NS
        step = 3_000.0

        def forward(
            rng: np.random.Generator, t: Floats, at: float = at, step: float = step
        ) -> Floats:
            return _exponential(rng, t) + np.where(t > at, step, 0.0)

        def reverse(
            rng: np.random.Generator, t: Floats, at: float = at, step: float = step
        ) -> Floats:
            return _exponential(rng, t) - np.where(t > at, step, 0.0)

        clouds = _clouds(rng, forward, reverse, 400)
        assert not floor_evidence(clouds, 0.0, clustered=False).confirmed, seed


FLOOR_NS = 5_000.0
TRACES = {
    load: queues.bursty(load, np.random.default_rng(round(load * 100)), span_ns=WINDOW_NS)
    for load in (0.4, 0.8, 0.9)
}
HEAVY = queues.heavy_tailed(0.6, np.random.default_rng(1), span_ns=WINDOW_NS)


def _two_hops(*hops: queues.QueueTrace) -> Delays:
    """Probes over two links; from 0.8 on almost none finds both idle."""

    def delays(rng: np.random.Generator, t: Floats) -> Floats:
        phases = rng.uniform(0, WINDOW_NS, len(hops)).tolist()
        return queues.through(list(zip(hops, phases, strict=True)), t, FLOOR_NS)

    return delays


LOADED = {
    "0.4": _two_hops(TRACES[0.4], TRACES[0.4]),
    "0.8": _two_hops(TRACES[0.8], TRACES[0.8]),
    "0.9": _two_hops(TRACES[0.9], TRACES[0.9]),
    "Pareto 0.6": _two_hops(HEAVY, HEAVY),
}


@pytest.mark.parametrize("load", LOADED)
@pytest.mark.parametrize("noise", ["exponential", "gamma_edge", "two_wakeups"])
def test_the_gap_covers_what_the_lowest_probes_waited(load: str, noise: str) -> None:
    """From both sides: never broken at four sigmas, and no wilder than the error it stands for."""

    def delays(rng: np.random.Generator, t: Floats) -> Floats:
        return LOADED[load](rng, t) + stamps.NOISES[noise](rng, t)

    errors, gaps = [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, 11])
        clouds = _clouds(rng, delays, _exponential, 128)
        heights = clouds.heights(0.0)
        lows = heights[: clouds.forward].min(), heights[clouds.forward :].min()
        errors.append(abs(lows[0] - lows[1] - 2 * _theta_ns(clouds)) / 2)
        gaps.append(floor_evidence(clouds, 0.0, clustered=False).gap_ns)
    error, gap = np.array(errors), np.array(gaps)
    broken = np.flatnonzero(error > 4 * gap + 1)
    assert len(broken) <= 0.02 * SEEDS, f"seeds {broken}: {error[broken]} beyond {4 * gap[broken]}"
    assert np.mean(gap) <= 8 * np.mean(error), (np.mean(gap), np.mean(error))


def _theta_ns(clouds: Clouds) -> float:
    """Both clocks read true time, so theta is nothing but what the base took away."""
    return float(-clouds.base_ns)


def _full_buffer(rng: np.random.Generator, t: Floats) -> Floats:
    """A link offered 1.2 of what it carries, before an idle one."""
    return 5_000 + FULL.wait_ns(t, rng.uniform(0, WINDOW_NS))


def _teeth(rng: np.random.Generator, t: Floats) -> Floats:
    """Synchronised senders that never let the queue run empty."""
    return 5_000 + queues.sawtooth(20_000, 60_000, 0.31e9).wait_ns(t, rng.uniform(0, WINDOW_NS))


FULL = queues.standing(300e3, np.random.default_rng(4), span_ns=WINDOW_NS)


@pytest.mark.parametrize("noise", ["hardware", "kernel", "gamma_edge", "exponential"])
@pytest.mark.parametrize("queue", [_full_buffer, _teeth])
def test_a_cluster_that_the_fit_claims_to_see_in_a_queue_confirms_nothing(
    queue: Delays, noise: str
) -> None:
    """The mixture does find some in such windows; one window is never enough."""

    def delays(rng: np.random.Generator, t: Floats) -> Floats:
        return queue(rng, t) + stamps.NOISES[noise](rng, t)

    found = []
    for seed in range(SEEDS // 2):
        clouds = _clouds(np.random.default_rng([seed, 12]), delays, _exponential, 128)
        fit = fit_window(clouds)
        found.append(floor_evidence(clouds, fit.line.slope, clustered=fit.floor_confirmed))
    assert sum(each.confirmed for each in found) <= 2
    assert not any(each.certain for each in found)


@pytest.mark.parametrize("delays", [_exponential, _steep])
def test_a_floor_with_a_long_tail_needs_no_second_window(delays: Delays) -> None:
    assert np.mean([each.certain for each in _evidence(delays, delays, 400)]) > 0.9


def test_a_floor_without_one_needs_a_second_window() -> None:
    found = _evidence(_half_bell, _half_bell, 128)
    assert np.mean([each.confirmed for each in found]) > 0.75
    assert np.mean([each.certain for each in found]) < 0.1


def _rarely_idle(share: float, noise_ns: float) -> Delays:
    """Few coded pairs meet no queue, the others a log-normal one that no floor shows in."""

    def delays(rng: np.random.Generator, t: Floats) -> Floats:
        pairs = (len(t) + 1) // 2
        waits = rng.lognormal(np.log(8_000), 0.7, pairs) * (rng.random(pairs) >= share)
        return 5_000 + np.repeat(waits, 2)[: len(t)] + rng.normal(0, noise_ns, len(t))

    return delays


@pytest.mark.parametrize("noise_ns", [3.0, 15.0])
@pytest.mark.parametrize("share", [0.06, 0.15])
def test_few_probes_that_did_not_wait_show_the_floor(share: float, noise_ns: float) -> None:
    """The gap is theirs, not that of the stretches, and still covers the error."""
    gaps, errors = [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, 13])
        delays = _rarely_idle(share, noise_ns)
        clouds = _clouds(rng, delays, delays, 256)
        found = floor_evidence(clouds, 0.0, clustered=False)
        heights = clouds.heights(0.0)
        lows = heights[: clouds.forward].min(), heights[clouds.forward :].min()
        if found.confirmed:
            gaps.append(found.gap_ns)
            errors.append(abs(lows[0] - lows[1] - 2 * _theta_ns(clouds)) / 2)
    assert len(gaps) > 0.7 * SEEDS
    assert np.median(gaps) < 10 * noise_ns
    assert all(error <= 4 * gap for error, gap in zip(errors, gaps, strict=True))


@pytest.mark.parametrize("delays", [_walk, _standing, _sawtooth, _full, _bell])
def test_coded_pairs_that_wait_alike_are_no_cluster(delays: Delays) -> None:
    """Both probes of a pair lie within nanoseconds of each other in any slow queue."""

    def coded(rng: np.random.Generator, t: Floats) -> Floats:
        return np.repeat(delays(rng, t[::2]), 2)[: len(t)] + rng.normal(0, 2, len(t))

    found = _evidence(coded, coded, 256)
    assert sum(each.confirmed for each in found) <= 0.04 * SEEDS
    assert not any(each.certain for each in found)


def test_a_step_between_two_clusters_is_not_a_floor() -> None:
    """Each direction shows one, on its own side of the step."""
    idle = _rarely_idle(0.3, 3.0)
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, 14])
        at = rng.uniform(0.3, 0.7) * WINDOW_NS

        def forward(rng: np.random.Generator, t: Floats, at: float = at) -> Floats:
            return idle(rng, t) + np.where(t > at, 3_000.0, 0.0)

        def reverse(rng: np.random.Generator, t: Floats, at: float = at) -> Floats:
            return idle(rng, t) - np.where(t > at, 3_000.0, 0.0)

        clouds = _clouds(rng, forward, reverse, 256)
        assert not floor_evidence(clouds, 0.0, clustered=False).confirmed, seed


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("lost", [(), (0,), (0, 0)])
def test_the_two_probes_of_a_coded_pair_are_no_cluster(seed: int, lost: tuple[int, ...]) -> None:
    """They wait alike, also where the window begins in the middle of one; a queue of milliseconds
    that never empties hides its floor all the same."""
    rng = np.random.default_rng([seed, 5])
    stamps = []
    for _ in range(2):
        sent = np.repeat(np.sort(rng.uniform(0, WINDOW_NS, 256)), 2) + np.tile([0, 9_000], 256)
        waited = np.repeat(_bell(rng, sent[::2]) * 100, 2) + rng.integers(0, 2, 512)
        stamps += [np.delete(np.round(at).astype(np.int64), lost) for at in (sent, sent + waited)]
    found = floor_evidence(Clouds.of(PairSamples(*stamps)), 0.0, clustered=False)
    assert not found.confirmed, f"seed {seed}"
    assert found.gap_ns > 2_000, f"seed {seed}: {found}"

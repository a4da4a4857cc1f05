"""A floor is touched in every stretch of a window; a queue that never empties is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from syntony.clock.samples import Clouds, PairSamples
from syntony.clock.sharpness import touches_floor

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


def _share(forward: Delays, reverse: Delays, probes: int) -> float:
    rngs = [np.random.default_rng([seed, probes]) for seed in range(SEEDS)]
    return float(
        np.mean([touches_floor(_clouds(rng, forward, reverse, probes), 0.0) for rng in rngs])
    )


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


def test_too_few_probes_prove_nothing() -> None:
    rng = np.random.default_rng(1)
    assert not touches_floor(_clouds(rng, _exponential, _exponential, 60), 0.0)


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

        assert not touches_floor(_clouds(rng, forward, reverse, 400), 0.0), seed

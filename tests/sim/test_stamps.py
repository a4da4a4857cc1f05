"""Stamp noise is what its name says: moments, edges and shares, from 200,000 draws each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy
from bench.simulated import queues, stamps

COUNT = 200_000
AT_NS: stamps.Floats = np.sort(np.random.default_rng(1).uniform(0, 60e9, COUNT))


def drawn(name: str, seed: int = 2) -> stamps.Floats:
    return stamps.NOISES[name](np.random.default_rng(seed), AT_NS)


@pytest.mark.parametrize(
    ("name", "shape_of"),
    [
        ("exponential", lambda: scipy.stats.expon(scale=300)),
        ("half_normal", lambda: scipy.stats.halfnorm(scale=150)),
        ("log_normal", lambda: scipy.stats.lognorm(0.8, scale=300)),
        ("gamma_edge", lambda: scipy.stats.gamma(2, scale=200)),
        ("coalesced", lambda: scipy.stats.uniform(0, 10_000)),
    ],
)
def test_its_shape(name: str, shape_of: Callable[[], Any]) -> None:
    """Shapes are made here: `scipy.stats` takes a second to load, of every worker."""
    noise, shape = drawn(name), shape_of()
    for part in (0.02, 0.25, 0.5, 0.75, 0.98):
        expected = float(shape.ppf(part))
        # Batches are stamped a little later than the timer fires.
        assert np.quantile(noise, part) == pytest.approx(expected, rel=0.05, abs=110)
    if name != "coalesced":
        assert noise.mean() == pytest.approx(float(shape.mean()), rel=0.02)
        assert noise.std() == pytest.approx(float(shape.std()), rel=0.03)


def test_hardware_is_a_bell_of_5_ns_with_one_outlier_in_a_hundred_on_either_side() -> None:
    noise = drawn("hardware")
    inner = noise[np.abs(noise) < 15]
    assert inner.std() == pytest.approx(5, rel=0.04)
    wild = noise[np.abs(noise) > 25]
    assert len(wild) / COUNT == pytest.approx(0.01 * 175 / 200, rel=0.1)
    assert np.abs(wild).max() == pytest.approx(200, abs=20)
    assert np.mean(wild > 0) == pytest.approx(0.5, abs=0.05)


def test_a_kernel_is_late_by_a_microsecond_and_now_and_then_by_several() -> None:
    noise = drawn("kernel")
    assert noise.mean() == pytest.approx(900 + 0.03 * 6_000, rel=0.02)
    expected = np.sqrt(150**2 + 900**2 + 0.03 * 2 * 6_000**2 - (0.03 * 6_000) ** 2)
    assert noise.std() == pytest.approx(expected, rel=0.05)
    early = scipy.stats.exponnorm(900 / 150, scale=150)
    assert np.quantile(noise, 0.01) == pytest.approx(float(early.ppf(0.01)), abs=15)


def test_two_wakeups_are_two_clusters() -> None:
    noise = drawn("two_wakeups")
    deep = noise > 2_500
    assert np.mean(deep) == pytest.approx(0.6, abs=0.01)
    assert noise[deep].min() == pytest.approx(2_500, abs=20)
    for cluster in (noise[~deep], noise[deep] - 2_500):
        assert cluster.mean() == pytest.approx(200, rel=0.05)


def test_a_coarse_counter_ticks() -> None:
    noise = drawn("coarse_ticks")
    assert (np.mod(noise, 64) == 0).all()
    assert noise.min() == 0
    assert noise.mean() == pytest.approx(100, rel=0.03), "what ticks hide they add elsewhere"


def test_a_few_stamps_are_early() -> None:
    noise = drawn("rare_early")
    early = noise < -10
    assert np.mean(early) == pytest.approx(0.005, rel=0.25)
    assert noise.min() == pytest.approx(-4_000, rel=0.2)
    late = noise[noise > 2_000]
    # Pareto of 1.5: twice as far is 2^1.5 times as rare (the scale is added to the tail).
    assert np.mean(late > 4_200) == pytest.approx((2_200 / 4_400) ** 1.5, rel=0.1)
    assert len(late) / COUNT == pytest.approx((200 / 2_200) ** 1.5, rel=0.1)


def test_coalescing_follows_a_timer_of_its_own() -> None:
    at = np.arange(0, 100_000.0, 100.0)
    noise = stamps.coalesced(np.random.default_rng(3), at)
    fires = np.unique(np.round((at + noise) / 1_000))
    assert np.median(np.diff(fires[np.diff(fires, prepend=-9) > 2])) == 10
    far = stamps.coalesced(np.random.default_rng(3), at + 1e9)
    drift = np.abs(np.median(noise - far))
    assert drift > 100, "and not in phase with the probes for long"


def test_heavy_bursts_have_a_tail_of_1_6_and_the_mean_that_the_load_says() -> None:
    trace = queues.heavy_tailed(0.02, np.random.default_rng(4), span_ns=40e9)
    left = np.maximum(trace.work_ns[:-1] - np.diff(trace.arrival_ns), 0)
    sizes = (trace.work_ns[1:] - left) / 480
    assert np.median(sizes) == pytest.approx(3 * 2 ** (1 / 1.6), rel=0.05)
    for far in (12.0, 40.0):
        assert np.mean(sizes > 2 * far) / np.mean(sizes > far) == pytest.approx(2**-1.6, rel=0.12)
    assert sizes.max() <= 20_001
    light = queues.bursty(0.02, np.random.default_rng(4), span_ns=40e9)
    assert np.mean(light.work_ns / 480) == pytest.approx(8, rel=0.06)


def test_a_trace_goes_on_where_it_began() -> None:
    trace = queues.QueueTrace(np.array([10.0, 50.0]), np.array([20.0, 80.0]), 100.0)
    at = np.array([0.0, 9.0, 10.5, 29.0, 31.0, 51.0, 99.0, 100.0, 109.0, 1051.0])
    assert trace.wait_ns(at).tolist() == [30.0, 21.0, 19.5, 1.0, 0.0, 79.0, 31.0, 30.0, 21.0, 79.0]
    assert trace.wait_ns(at, 1.0)[0] == 29.0
    empty = queues.QueueTrace(np.zeros(0), np.zeros(0), 100.0)
    assert empty.wait_ns(at).tolist() == [0.0] * 10


def test_a_probe_meets_each_hop_when_it_comes_there() -> None:
    step = queues.LevelTrace(np.array([0.0, 99.0, 100.0]), np.array([0.0, 99.0, 0.0]), 100.0)
    waits = queues.through([(step, 0.0), (step, 0.0)], np.array([10.0]), 5.0)
    assert waits.tolist() == [10.0 + 20.0 + 5.0]


def test_a_buffer_that_is_offered_more_than_it_drains_stands_nearly_full() -> None:
    trace = queues.standing(600e3, np.random.default_rng(5), span_ns=2e8)
    assert trace.work_ns.max() <= 600e3
    assert np.mean(trace.work_ns) > 0.9 * 600e3
    barely = queues.standing(600e3, np.random.default_rng(5), span_ns=2e8, load=1.02)
    assert np.mean(barely.work_ns) < np.mean(trace.work_ns)

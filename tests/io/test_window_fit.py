"""The native window fit against its reference, on windows of every kind."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.simulated import stamps
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.clock import fit as reference
from syntony.clock.fit import Prior, WindowFit
from syntony.clock.samples import Clouds
from syntony.io.window_fit import fit_window


def clouds_of(  # noqa: PLR0917 - what a window is made of
    seed: int, forward: int, reverse: int, busy: float, noise_ns: float, wait_ns: float
) -> Clouds:
    """Random points: some at the floor within the noise, `busy` of them exponentially above it."""
    rng = np.random.default_rng(seed)
    count = forward + reverse
    side = np.where(np.arange(count) < forward, 1.0, -1.0)
    t = np.rint(rng.uniform(-2e9, 2e9, count))
    delay = 8_000 + rng.normal(0, noise_ns, count)
    delay += (rng.random(count) < busy) * rng.exponential(wait_ns, count)
    slope = rng.uniform(-5e-5, 5e-5)
    return Clouds(
        ref_ns=0,
        base_ns=0,
        span_ns=4e9,
        t=t,
        y=np.rint(slope * t + side * delay),
        side=side,
        purity=rng.integers(0, 7, count),
        forward=forward,
    )


def differ(one: WindowFit, other: WindowFit) -> float:
    """By how many ns the two lines are apart within the window, at most."""
    tilt = abs(one.line.slope - other.line.slope) * 4e9
    return max(
        tilt,
        abs(one.line.forward_ns - other.line.forward_ns),
        abs(one.line.reverse_ns - other.line.reverse_ns),
    )


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    forward=st.integers(4, 150),
    reverse=st.integers(4, 150),
    busy=st.floats(0, 1),
    noise_ns=st.sampled_from([0.0, 3.0, 20.0, 300.0]),
    wait_ns=st.sampled_from([100.0, 3_000.0, 200_000.0]),
    sigma=st.sampled_from([None, 1e-9, 1e-6]),
)
def test_equals_the_reference(  # noqa: PLR0917 - drawn by hypothesis
    seed: int,
    forward: int,
    reverse: int,
    busy: float,
    noise_ns: float,
    wait_ns: float,
    sigma: float | None,
) -> None:
    clouds = clouds_of(seed, forward, reverse, busy, noise_ns, wait_ns)
    prior = None if sigma is None else Prior(1e-5, sigma)
    expected, found = reference.fit_window(clouds, prior), fit_window(clouds, prior)
    # Sums are ordered differently: two ends of EM that are equally likely may change places, and
    # one more round may be made; then they are worth the same, and less than a sigma apart.
    assert found.clustered == expected.clustered
    assert differ(found, expected) <= max(0.01, 0.05 * math.sqrt(expected.theta_var))
    assert found.theta_var == pytest.approx(expected.theta_var, rel=0.05)
    assert math.isinf(found.slope_var) == math.isinf(expected.slope_var)
    assert found.noise_ns == pytest.approx(expected.noise_ns, rel=0.05)


def test_most_windows_are_equal_to_a_thousandth_of_a_nanosecond() -> None:
    off = []
    for seed in range(60):
        clouds = clouds_of(seed, 128, 128, 0.5, 20.0, 3_000.0)
        off.append(differ(fit_window(clouds), reference.fit_window(clouds)))
    assert float(np.percentile(off, 90)) < 1e-3, sorted(off)[-6:]


@pytest.mark.parametrize("noise", stamps.NOISES)
@pytest.mark.parametrize("probes", [40, 128, 500])
def test_equals_the_reference_whatever_the_stamps(noise: str, probes: int) -> None:
    """The same candidate wins in both, under every noise."""
    for seed in range(6):
        clouds = clouds_of(seed, probes, probes, 0.4, 0.0, 3_000.0)
        rng = np.random.default_rng(seed)
        wait = stamps.NOISES[noise](rng, clouds.t + 3e9)
        clouds = clouds._replace(y=clouds.y + clouds.side * np.rint(wait))
        expected, found = reference.fit_window(clouds), fit_window(clouds)
        assert found.clustered == expected.clustered, seed
        assert found.floor_confirmed == expected.floor_confirmed, seed
        assert differ(found, expected) <= max(0.01, 0.05 * math.sqrt(expected.theta_var)), seed
        assert found.theta_var == pytest.approx(expected.theta_var, rel=0.05), seed


def test_points_that_are_no_numbers_are_refused() -> None:
    clouds = clouds_of(1, 20, 20, 0.5, 20.0, 3_000.0)
    broken = clouds._replace(y=np.where(np.arange(40) == 7, math.nan, clouds.y))
    with pytest.raises(ValueError, match="window of 40 points"):
        fit_window(broken)

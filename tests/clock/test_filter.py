"""The pair's Kalman filter beside the textbook's, in matrices, and at the ends of its range."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from syntony.clock.filter import GATE_SIGMAS, WANDER_PPB, Covariance, OffsetDrift

Matrix = NDArray[np.float64]
PPB = 1e-9
NS = 1e9
"""Drifts in ppb, so that both states have numbers of like size."""
UNIT = np.array([1.0, NS])


def matrix(cov: Covariance) -> Matrix:
    plain = np.array([[cov.theta, cov.cross], [cov.cross, cov.drift]])
    return np.asarray(plain * np.outer(UNIT, UNIT))


def covariance(cov: Matrix) -> Covariance:
    plain = cov / np.outer(UNIT, UNIT)
    return Covariance(float(plain[0, 0]), float(plain[0, 1]), float(plain[1, 1]))


def drawn(rng: np.random.Generator) -> Matrix:
    """Any covariance, of 1 to 1,000 ns and ppb."""
    sigmas = 10 ** rng.uniform(0, 3, 2)
    correlation = rng.uniform(-0.95, 0.95)
    correlated = np.array([[1, correlation], [correlation, 1]])
    return np.asarray(np.outer(sigmas, sigmas) * correlated)


def textbook(x: Matrix, cov: Matrix, innovation: Matrix, h: Matrix, noise: Matrix) -> OffsetDrift:
    """What misses by more than the gate makes the prediction count for less, by as much."""
    spread = h @ cov @ h.T + noise
    nis = float(innovation @ np.linalg.solve(spread, innovation)) / len(innovation)
    if nis > GATE_SIGMAS**2 / 2:
        cov = cov * nis
        spread = h @ cov @ h.T + noise
    gain = cov @ h.T @ np.linalg.inv(spread)
    x = (x + gain @ innovation) / UNIT
    return OffsetDrift(float(x[0]), float(x[1]), covariance(cov - gain @ h @ cov))


def same(found: OffsetDrift, expected: OffsetDrift) -> None:
    assert found.theta_ns == pytest.approx(expected.theta_ns, rel=1e-6, abs=1e-6)
    assert found.drift == pytest.approx(expected.drift, rel=1e-6, abs=1e-6 * PPB)
    assert matrix(found.cov) == pytest.approx(matrix(expected.cov), rel=1e-4, abs=1e-2)


@given(st.integers(0, 2**32), st.sampled_from([0.3, 3.0, 30.0]))
def test_a_window_counts_as_in_the_textbook(seed: int, off_sigmas: float) -> None:
    rng = np.random.default_rng(seed)
    cov, noise = drawn(rng), drawn(rng)
    x = rng.normal(0, 1e3, 2)
    said = x + off_sigmas * np.sqrt(np.diag(cov + noise)) * rng.choice([-1, 1], 2)
    before = OffsetDrift(float(x[0]), float(x[1] * PPB), covariance(cov))
    both = before.update(float(said[0]), float(said[1] * PPB), covariance(noise))
    same(both, textbook(x, cov, said - x, np.eye(2), noise))
    alone = before.update_theta(float(said[0] - x[0]), float(noise[0, 0]))
    same(alone, textbook(x, cov, said[:1] - x[:1], np.eye(2)[:1], noise[:1, :1]))


@given(st.integers(0, 2**32))
def test_a_bias_moves_the_filter_as_the_windows_that_have_it_do(seed: int) -> None:
    """Two filters, one of which gets biased windows: they part by what the other one claims."""
    rng = np.random.default_rng(seed)
    right = wrong = OffsetDrift(cov=covariance(drawn(rng)))
    for _ in range(4):
        ahead_ns, noise = float(rng.uniform(0.1e9, 4e9)), drawn(rng)
        bias = (float(rng.uniform(0, 2)), float(rng.uniform(-1, 1) * PPB))
        right, wrong = (each.predict(ahead_ns, 0.0) for each in (right, wrong))
        alone = rng.random() < 0.5
        if alone:
            variance = float(noise[0, 0]) + 10.0
            off_ns = bias[0] - wrong.theta_ns
            right = right.update_theta(-right.theta_ns, variance, bias[0])
            wrong = wrong.update_theta(off_ns, variance)
        else:
            noise = noise + np.diag([10.0, 1.0])
            right = right.update(0.0, 0.0, covariance(noise), bias)
            wrong = wrong.update(*bias, covariance(noise))
    assert wrong.cov == right.cov, "no innovation was beyond the gate"
    assert wrong.theta_ns - right.theta_ns == pytest.approx(right.bias_ns, rel=1e-6, abs=1e-6)
    assert wrong.drift - right.drift == pytest.approx(right.bias_drift, rel=1e-6, abs=1e-6 * PPB)
    claimed = right.cov.theta + (right.bias_ns / 4) ** 2
    assert right.total_var == pytest.approx(claimed)


@given(st.integers(0, 2**32), st.sampled_from([0.0, 50.0]))
def test_time_passes_as_in_the_textbook(seed: int, ramp_ppb_per_s: float) -> None:
    """A random walk of the drift in many small steps, and a ramp of either sign."""
    rng = np.random.default_rng(seed)
    cov, x, seconds = drawn(rng), rng.normal(0, 1e3, 2), float(rng.uniform(0.1, 20))
    found = OffsetDrift(float(x[0]), float(x[1] * PPB), covariance(cov)).predict(
        seconds * 1e9, 70.0, ramp_ppb_per_s * 1e-18
    )
    move, steps = np.array([[1.0, seconds / 500], [0.0, 1.0]]), cov.copy()
    for _ in range(500):
        steps = move @ steps @ move.T + np.diag([0.0, WANDER_PPB**2 * seconds / 500])
    bent = ramp_ppb_per_s * np.array([seconds**2 / 2, seconds])
    expected = steps + np.outer(bent, bent)
    unit = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert matrix(found.cov) / unit == pytest.approx(expected / unit, abs=0.01)
    assert found.theta_ns == pytest.approx(x[0] + x[1] * seconds - 70.0, abs=1e-3)
    assert found.drift == pytest.approx(x[1] * PPB)


@pytest.mark.parametrize("cross", [-1.0, 1.0])
def test_rounding_never_makes_a_window_worth_more_than_windows_are(cross: float) -> None:
    none = Covariance(0.0, 0.0, -1e-30).sound()
    assert (math.sqrt(none.theta), math.sqrt(none.drift)) == pytest.approx((0.01, 0.001 * PPB))
    tied = Covariance(4.0, cross * 7.0 * PPB, 9.0 * PPB**2).sound()
    assert (tied.theta, tied.drift) == (4.0, 9.0 * PPB**2)
    left = math.sqrt(tied.theta - tied.cross**2 / tied.drift)
    assert left == pytest.approx(0.014 * 2.0, rel=0.02), "of the offset's sigma, at its best"
    assert math.copysign(1, tied.cross) == cross

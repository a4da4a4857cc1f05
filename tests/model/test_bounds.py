"""What a bound promises, held against clocks that do the worst it allows for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.model import ClockState, S, Timeline
from syntony.model.utc import Utc

REF_NS = 1_700_000_000 * S


def line(**changes: object) -> Timeline:
    fields: dict[str, object] = {
        "node": "a", "ref_ns": REF_NS, "offset_ns": 0.0, "drift_ppb": 0.0, "sigma_ns": 0.0,
        "state": ClockState.SYNCHRONIZED,
    }  # fmt: skip
    return Timeline(**(fields | changes))  # type: ignore[arg-type]


def utc(**changes: object) -> Utc:
    fields: dict[str, object] = {
        "ref_ns": 0, "offset_ns": 0.0, "drift_ppb": 0.0, "error_ns": 0.0, "confirmed_ns": REF_NS,
        "drift_sigma_ppb": 0.0, "state": ClockState.SYNCHRONIZED,
    }  # fmt: skip
    return Utc(**(fields | changes))  # type: ignore[arg-type]


def temperature_ns(seconds: int) -> float:
    """A frequency that moves by 2 ppb a second until it is 400 ppb off, summed second by second."""
    return sum(min(2.0 * (t + 0.5), 400.0) for t in range(seconds))


def walk_sigma_ns(seconds: int, ppb: float = 5.0) -> float:
    """Spread of 4,000 clocks whose frequency takes a Gaussian step every second."""
    rng = np.random.default_rng(seconds)
    frequency = rng.normal(0, ppb, (4000, seconds)).cumsum(axis=1)
    return float(frequency.sum(axis=1).std())


@pytest.mark.parametrize("seconds", [10, 60, 150, 400, 2000])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_bound_covers_a_quartz_that_walks_and_warms_and_hardly_more(
    seconds: int, sign: int
) -> None:
    """On either side of the instant where the clock was known."""
    least_ns = 4 * walk_sigma_ns(seconds) + temperature_ns(seconds)
    for bound_ns in (
        line().bound_ns(REF_NS + sign * seconds * S),
        utc().bound_ns(REF_NS + sign * seconds * S),
    ):
        assert 0.93 * least_ns < bound_ns < 1.3 * least_ns


def test_what_was_measured_counts_four_sigmas_and_asymmetry_as_it_is() -> None:
    assert line(sigma_ns=30.0).bound_ns(REF_NS) == pytest.approx(120.0)
    assert line(sigma_ns=30.0, asymmetry_ns=500.0).bound_ns(REF_NS) == pytest.approx(620.0)
    quiet = line(asymmetry_ns=7.0).bound_ns(REF_NS + 100 * S)
    assert quiet - line().bound_ns(REF_NS + 100 * S) == pytest.approx(7.0)
    assert utc(error_ns=30.0).bound_ns(REF_NS) == pytest.approx(30.0)
    assert utc(error_ns=30.0, ref_ns=REF_NS + S).bound_ns(REF_NS) == pytest.approx(30.0)


@pytest.mark.parametrize("seconds", [1, 20, 100])
def test_an_unsure_drift_grows_with_time(seconds: int) -> None:
    """10,000 ppb outweigh all else: 40 µs a second, at four sigmas."""
    at_ns = REF_NS + seconds * S
    expected = 4 * 10_000.0 * seconds
    assert line(drift_sigma_ppb=10_000.0).bound_ns(at_ns) == pytest.approx(expected, rel=0.02)
    assert utc(drift_sigma_ppb=10_000.0).bound_ns(at_ns) == pytest.approx(expected, rel=0.02)
    both = line(drift_sigma_ppb=10_000.0, sigma_ns=1e4 * seconds).bound_ns(at_ns)
    assert both == pytest.approx(math.sqrt(2) * expected, rel=0.02)


def test_nothing_is_promised_of_what_is_unknown() -> None:
    for state in ClockState:
        finite = state is not ClockState.UNKNOWN
        assert math.isfinite(line(state=state).bound_ns(REF_NS)) == finite
        assert math.isfinite(utc(state=state).bound_ns(REF_NS)) == finite
    assert (
        Timeline(node="a", ref_ns=0, offset_ns=0.0, drift_ppb=0.0, sigma_ns=0.0).asymmetry_ns == 0
    )
    assert math.isinf(
        Timeline(node="a", ref_ns=0, offset_ns=0, drift_ppb=0, sigma_ns=0).bound_ns(0)
    )


def test_an_offset_of_years_is_not_told_to_the_nanosecond() -> None:
    years_ns = 1.7e18
    assert line(offset_ns=years_ns).bound_ns(REF_NS) >= 128


@given(st.integers(-(10**12), 10**12), st.floats(-1e6, 1e6), st.floats(-1e4, 1e4))
def test_utc_is_a_line_over_fleet_time(away_ns: int, offset_ns: float, drift_ppb: float) -> None:
    place = utc(ref_ns=REF_NS, offset_ns=offset_ns, drift_ppb=drift_ppb)
    expected = offset_ns + drift_ppb * (away_ns / 1e9)
    assert place.to_utc_ns(REF_NS + away_ns) - REF_NS - away_ns == pytest.approx(expected, abs=1)
    same = line(offset_ns=offset_ns, drift_ppb=drift_ppb)
    assert same.to_fleet_ns(REF_NS + away_ns) - REF_NS - away_ns == pytest.approx(expected, abs=1)

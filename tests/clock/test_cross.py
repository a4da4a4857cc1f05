import numpy as np
import pytest

from syntony.clock.cross import CrossStamps
from syntony.clock.windows import WINDOW_NS
from syntony.model import MS, S

T0 = 1_750_000_000 * S
TAI_NS = 37 * S
"""A PHC usually keeps TAI, a host UTC."""


def test_a_reading_that_is_told_twice_counts_once() -> None:
    """Two readings always fit a line: three are needed."""
    stamps = CrossStamps("h0", "h0/rail0")
    for number in (0, 1, 1):
        stamps.add(number * 10**9, number * 10**9 + 500, 100)
    assert stamps.edge() is None


def filled(*, drift_ppb: float = 12_000.0, doubt_ns: int = 300, seed: int = 1) -> CrossStamps:
    rng = np.random.default_rng(seed)
    stamps = CrossStamps("h0", "h0/rail0")
    for tick in range(40):
        since_ns = tick * 200 * MS
        theta_ns = TAI_NS + drift_ppb * 1e-9 * since_ns + rng.uniform(-doubt_ns, doubt_ns)
        stamps.add(T0 + since_ns, T0 + since_ns + round(theta_ns), doubt_ns)
    return stamps


@pytest.mark.parametrize("seed", range(5))
def test_offset_and_drift_are_found_within_sigma(seed: int) -> None:
    edge = filled(seed=seed).edge()
    assert edge is not None
    assert (edge.a, edge.b) == ("h0", "h0/rail0")
    truth_ns = TAI_NS + 12_000e-9 * (edge.ref_ns - T0)
    assert abs(edge.theta_ns - truth_ns) < edge.sigma_ns
    assert edge.drift_ppb == pytest.approx(12_000, abs=3 * edge.drift_sigma_ppb)


def test_only_the_window_counts() -> None:
    edge = filled().edge()
    assert edge is not None
    assert edge.probes == WINDOW_NS // (200 * MS) + 1


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_readings_give_no_edge(count: int) -> None:
    stamps = CrossStamps("h0", "h0/rail0")
    for tick in range(count):
        stamps.add(T0 + tick * S, T0 + tick * S, 100)
    assert stamps.edge() is None


def test_readings_at_one_instant_give_no_edge() -> None:
    stamps = CrossStamps("h0", "h0/rail0")
    for _ in range(5):
        stamps.add(T0, T0, 100)
    assert stamps.edge() is None


@pytest.mark.parametrize(("claimed_ns", "sigma_ns"), [(0, 1.0), (1, 1.0), (2, 2.0), (300, 300.0)])
def test_readings_that_claim_to_be_exact_are_worth_a_nanosecond(
    claimed_ns: int, sigma_ns: float
) -> None:
    """An edge of no sigma would outweigh the whole mesh."""
    stamps = CrossStamps("h0", "h0/rail0")
    for tick in range(5):
        stamps.add(T0 + tick * S, T0 + tick * S + TAI_NS, claimed_ns)
    edge = stamps.edge()
    assert edge is not None
    assert edge.sigma_ns == sigma_ns
    assert edge.rtt_floor_ns == 2 * sigma_ns
    assert edge.drift_sigma_ppb == pytest.approx(2 * sigma_ns / 4)


def test_the_best_reading_of_a_window_says_what_the_edge_is_worth() -> None:
    stamps = CrossStamps("h0", "h0/rail0")
    for tick, claimed_ns in enumerate((900, 40, 2_000, 500)):
        off_ns = TAI_NS + (1_500 if claimed_ns == 2_000 else 0)
        stamps.add(T0 + tick * S, T0 + tick * S + off_ns, claimed_ns)
    edge = stamps.edge()
    assert edge is not None
    assert edge.sigma_ns == 40
    # The vague reading weighs as little as it says.
    assert abs(edge.theta_ns - TAI_NS) < 40


def test_a_clock_that_stepped_begins_anew() -> None:
    stamps = filled()
    stamps.forget()
    assert stamps.edge() is None


@pytest.mark.parametrize("seed", range(8))
def test_a_clock_that_somebody_sets_is_not_fitted_across_that(seed: int) -> None:
    """As ptp4l does, or a driver that begins its clock again; a slew of 500 ppm looks the same."""
    rng = np.random.default_rng(seed)
    doubt_ns, rate = int(rng.integers(1, 800)), rng.uniform(-1e-4, 1e-4)
    step_ns = int(rng.choice([-1, 1]) * 10 ** rng.uniform(4, 17))
    stamps = CrossStamps("h0", "h0/rail0")
    at = int(rng.integers(3, 12))
    for tick in range(20):
        theta_ns = TAI_NS + round(rate * tick * S + rng.uniform(-doubt_ns, doubt_ns))
        theta_ns += step_ns * (tick >= at)
        stepped = stamps.add(T0 + tick * S, T0 + tick * S + theta_ns, doubt_ns)
        assert stepped == (tick == at), (seed, tick, at, step_ns, doubt_ns)
        edge = stamps.edge()
        assert (edge is None) == (tick < 2 or at <= tick < at + 2)
        if edge is not None:
            truth_ns = TAI_NS + step_ns * (tick >= at) + rate * (edge.ref_ns - T0)
            assert abs(edge.theta_ns - truth_ns) < 4 * edge.sigma_ns + np.spacing(float(step_ns))


@pytest.mark.parametrize("seed", range(4))
def test_no_quartz_looks_like_a_clock_that_was_set(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stamps = CrossStamps("h0", "h0/rail0")
    rate, theta_ns = rng.uniform(-1e-4, 1e-4), 0.0
    for tick in range(200):
        doubt_ns = int(rng.integers(1, 20_000))
        rate += rng.normal(0, 50e-9)
        theta_ns += rate * S
        read_ns = round(theta_ns + rng.uniform(-doubt_ns, doubt_ns))
        assert not stamps.add(T0 + tick * S, T0 + tick * S + read_ns, doubt_ns)

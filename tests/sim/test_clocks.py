"""Simulated clocks do what they are reported: every number of a kind, seen from outside."""

from __future__ import annotations

import numpy as np
import pytest
from bench.simulated.clocks import EPOCH_NS, ClockKind, Queueing, SimulatedClocks

from syntony.model import S

STILL = ClockKind(max_offset_ns=0.0, max_drift_ppb=0.0)


def errors_ns(clocks: SimulatedClocks, clock: int, seconds: list[float]) -> np.ndarray:
    instants = EPOCH_NS + (np.array(seconds) * 1e9).astype(np.int64)
    return (clocks.read(clock, instants) - instants).astype(np.float64)


def test_a_steady_clock_is_a_line_and_steps_when_told() -> None:
    clocks = SimulatedClocks(200, seed=1)
    for clock in (0, 7, 199):
        offset, drift = clocks.offset_ns[clock], clocks.drift_ppb[clock]
        expected = [offset + drift * t for t in (-5.0, 0.0, 100.0)]
        assert errors_ns(clocks, clock, [-5.0, 0.0, 100.0]) == pytest.approx(expected, abs=1)
    before = errors_ns(clocks, 3, [9.0])[0]
    clocks.step_ns[3] = 12_345
    assert errors_ns(clocks, 3, [9.0])[0] - before == 12_345
    # As far apart as they may be, either way.
    for drawn, most in ((clocks.offset_ns, 50e6), (clocks.drift_ppb, 40e3)):
        assert 0.9 * most < drawn.max() <= most
        assert -most <= drawn.min() < -0.9 * most


@pytest.mark.parametrize("seconds", [4, 40, 400])
def test_a_walking_frequency_spreads_offsets_as_the_power_of_three_halves(seconds: int) -> None:
    """A random walk of w ppb per √s is w·t^1.5/√3 ns of offset after t seconds (1-sigma)."""
    clocks = SimulatedClocks(400, seed=2, kind=STILL._replace(wander_ppb=5.0))
    spread = np.std([errors_ns(clocks, k, [float(seconds)])[0] for k in range(400)])
    assert spread == pytest.approx(5.0 * seconds**1.5 / 3**0.5, rel=0.15)
    same = SimulatedClocks(400, seed=2, kind=STILL._replace(wander_ppb=5.0))
    assert errors_ns(same, 5, [77.0]) == errors_ns(clocks, 5, [77.0])
    assert errors_ns(same, 5, [77.0]) != errors_ns(clocks, 6, [77.0])


def test_a_swinging_frequency_comes_back_after_its_period() -> None:
    clocks = SimulatedClocks(20, seed=3, kind=STILL._replace(swing_ppb=200.0,
                                                             swing_period_ns=60.0 * S))  # fmt: skip
    times = [k / 2 for k in range(241)]
    for clock in range(20):
        seen = errors_ns(clocks, clock, times)
        assert abs(seen[0]) <= 1
        assert seen[120:] == pytest.approx(seen[:121], abs=2)
        rates = np.diff(seen) / 0.5
        assert rates.max() == pytest.approx(200, rel=0.02)
        assert rates.min() == pytest.approx(-200, rel=0.02)
    phases = {round(float(errors_ns(clocks, clock, [5.0])[0])) for clock in range(20)}
    assert len(phases) > 15, "each at its own phase"


def test_probes_wait_as_often_and_as_long_as_each_way_says() -> None:
    clocks = SimulatedClocks(2, seed=4, kind=STILL)
    there = Queueing(floor_ns=10_000.0, busy=0.25, wait_ns=50_000.0, jitter_ns=0.0)
    back = Queueing(floor_ns=30_000.0, busy=0.0, wait_ns=1e9, jitter_ns=100.0)
    at_ns = EPOCH_NS + 60 * S
    samples = clocks.probe(
        0, 1, at_ns=at_ns, probes=20_000, window_ns=2 * S, there=there, back=back
    )
    forward, reverse = samples.fwd_rx - samples.fwd_tx, samples.rev_rx - samples.rev_tx
    waited = forward > 10_000
    assert forward.min() == 10_000
    assert waited.mean() == pytest.approx(0.25, abs=0.02)
    assert (forward[waited] - 10_000).mean() == pytest.approx(50_000, rel=0.05)
    assert reverse.min() >= 30_000
    assert (reverse - 30_000).mean() == pytest.approx(100, rel=0.05)
    assert np.all(samples.rev_tx - samples.fwd_rx == 20_000)
    assert at_ns - 2 * S <= samples.fwd_tx.min() < at_ns - 1.99 * S
    assert at_ns - 0.01 * S < samples.fwd_tx.max() < at_ns


def test_a_machine_that_warms_up_is_off_by_the_square_of_time_either_way() -> None:
    clocks = SimulatedClocks(20, seed=5, kind=STILL._replace(ramp_ppb_per_s=100.0))
    at_ten = [float(errors_ns(clocks, k, [10.0])[0]) for k in range(20)]
    assert {abs(error) for error in at_ten} == {5_000.0}
    assert len(set(at_ten)) == 2
    assert [errors_ns(clocks, 0, [t])[0] / at_ten[0] for t in (0.0, 20.0)] == [0, 4]


def test_unless_told_otherwise_half_of_all_probes_wait_5_us_and_stamps_scatter_by_20_ns() -> None:
    clocks = SimulatedClocks(2, seed=6, kind=STILL)
    samples = clocks.probe(0, 1, at_ns=EPOCH_NS + 60 * S, probes=20_000)
    forward = samples.fwd_rx - samples.fwd_tx - 10_000
    assert forward.min() >= 0
    assert np.median(forward[forward < 200]) == pytest.approx(20 * np.log(2), abs=2)
    assert forward.mean() == pytest.approx(0.5 * 5_000 + 20, rel=0.05)

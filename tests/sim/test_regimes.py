"""Whole fleets in regimes whose fault the data can show: no bound breaks."""

from __future__ import annotations

import pytest
from bench.simulated import stamps
from bench.simulated.regimes import REGIMES, run

from syntony.io.window_fit import fit_window

BROKEN_ONCE = [
    # regime, noise, seed: a floor was believed that was none
    ("incast sawtooth", "kernel", 0),
    ("incast sawtooth", "kernel", 4),
    ("four hops 0.9 to one host", "kernel", 3),
    ("four hops 0.9 to one host", "kernel", 7),
    ("four hops 0.95 to one host", "kernel", 7),
    # a clique of clocks was confirmed by edges whose doubt allowed for anything
    ("standing 5 µs, all one way", "two_wakeups", 0),
    ("standing 5 µs, all one way", "two_wakeups", 1),
    # a ramp was hidden in noise, or within one window
    ("warming 0.1 ppm/s", "gamma_edge", 1),
    ("warming 0.1 ppm/s", "hardware", 0),
    ("warming 0.1 ppm/s", "kernel", 1),
]


@pytest.mark.parametrize(("name", "noise", "seed"), BROKEN_ONCE)
def test_what_broke_a_bound_once_does_not(name: str, noise: str, seed: int) -> None:
    outcome = run(REGIMES[name], stamps.NOISES[noise], seed, fit_window)
    assert outcome.readings
    assert not outcome.violations, (name, noise, seed, outcome.violations[:3])


@pytest.mark.parametrize("noise", ["coalesced", "rare_early"])
def test_stamps_of_another_kind_break_no_bound(noise: str) -> None:
    outcome = run(REGIMES["load 0.4"], stamps.NOISES[noise], 1, fit_window)
    assert len(outcome.readings) >= 0.9 * outcome.claims
    assert not outcome.violations, (noise, outcome.violations[:3])


def test_a_regime_is_the_same_for_the_same_seed() -> None:
    regime = REGIMES["on/off 0.95"]._replace(windows=2)
    one, two = (run(regime, stamps.gamma_edge, 5) for _ in range(2))
    assert [each.error_ns for each in one.readings] == [each.error_ns for each in two.readings]

"""Whole fleets in regimes whose fault the data can show: no bound breaks."""

from __future__ import annotations

import pytest

from syntony.sim import stamps
from syntony.sim.regimes import REGIMES, run

BROKEN_ONCE = [
    # regime, noise, seed: a floor was believed that was none
    ("incast sawtooth", "kernel", 0),
    ("incast sawtooth", "kernel", 4),
    ("four hops 0.9 to one host", "kernel", 3),
    ("four hops 0.9 to one host", "kernel", 7),
    ("four hops 0.95 to one host", "kernel", 7),
]


@pytest.mark.parametrize(("name", "noise", "seed"), BROKEN_ONCE)
def test_a_queue_that_never_empties_breaks_no_bound(name: str, noise: str, seed: int) -> None:
    outcome = run(REGIMES[name], stamps.NOISES[noise], seed)
    assert outcome.readings
    assert not outcome.violations, (name, noise, seed, outcome.violations[:3])


@pytest.mark.parametrize("noise", ["coalesced", "rare_early"])
def test_stamps_of_another_kind_break_no_bound(noise: str) -> None:
    outcome = run(REGIMES["load 0.4"], stamps.NOISES[noise], 1)
    assert len(outcome.readings) >= 0.9 * outcome.claims
    assert not outcome.violations, (noise, outcome.violations[:3])


def test_a_regime_is_the_same_for_the_same_seed() -> None:
    regime = REGIMES["on/off 0.95"]._replace(windows=2)
    one, two = (run(regime, stamps.gamma_edge, 5) for _ in range(2))
    assert [each.error_ns for each in one.readings] == [each.error_ns for each in two.readings]

"""Sigma from both sides: an estimate may be neither surer nor less sure of itself than it is."""

from __future__ import annotations

import math

import pytest
from bench.simulated import stamps
from tests.clock.pairs import STUCK, Pair

from syntony.clock.tracker import Tracked, WindowUse

AHEAD_NS = 4_000_000_000


def sigma_ns(tracked: Tracked, local_ns: float) -> float:
    return math.sqrt(tracked.theta_var + tracked.drift_var * (local_ns - tracked.ref_ns) ** 2)


@pytest.mark.parametrize("seed", range(3))
def test_a_window_that_tells_nothing_moves_no_line_and_makes_nobody_surer(seed: int) -> None:
    """Each answer is told at an instant of its own, where offset and drift are uncorrelated. While
    queues stand both ways it is the same line as before, and no surer of any later instant: less
    sure by what a crystal that is heated meanwhile may turn (0726)."""
    pair = Pair(seed, stamps.kernel)
    for _ in range(10):  # by then no ramp of the drift is possible any more
        before = pair.step()
    assert before is not None
    for _ in range(4):
        after = pair.step(STUCK, STUCK)
        assert after is not None
        assert after.mode is WindowUse.HELD
        line_ns = after.base_ns + after.theta_ns + after.drift * (before.ref_ns - after.ref_ns)
        assert line_ns - before.base_ns == pytest.approx(before.theta_ns, abs=2)
        later_ns = after.ref_ns + AHEAD_NS
        ratio = sigma_ns(after, later_ns) / sigma_ns(before, later_ns)
        assert 0.99 < ratio < 2, f"seed {seed}: {ratio:.3f}"
        before = after

"""Steps inside a window, from as few probes as can tell."""

from __future__ import annotations

import numpy as np
import pytest
from bench.simulated.clocks import EPOCH_NS

from syntony.clock.samples import Clouds, PairSamples
from syntony.clock.window_steps import HALF_DEPTH, STEP_NS, stepped_inside
from syntony.model import S

DELAY_NS = 7_000


def window(step_ns: int, *, each: int, late: bool = False) -> Clouds:
    """So many probes of each direction in each half; the peer's clock steps in the middle, or a
    queue on the way there begins."""
    at_ns = EPOCH_NS + np.linspace(0, 2 * S, 2 * each).astype(np.int64)
    after = np.arange(2 * each) >= each
    stepped_ns = np.where(after, step_ns, 0)
    back_ns = 0 if late else stepped_ns
    return Clouds.of(
        PairSamples(
            at_ns, at_ns + DELAY_NS + stepped_ns,
            at_ns + DELAY_NS + 1_000 + back_ns, at_ns + 2 * DELAY_NS + 1_000,
        )
    )  # fmt: skip


@pytest.mark.parametrize("step_ns", [-5_000, 5_000, 1_000_000])
def test_three_probes_of_each_half_and_direction_tell_a_step(step_ns: int) -> None:
    assert stepped_inside(window(step_ns, each=HALF_DEPTH), 0.0, 1e-12)


@pytest.mark.parametrize("step_ns", [-5_000, 5_000, 1_000_000])
def test_two_do_not(step_ns: int) -> None:
    """One of them may be a stamp gone wrong."""
    assert not stepped_inside(window(step_ns, each=HALF_DEPTH - 1), 0.0, 1e-12)


@pytest.mark.parametrize("each", [HALF_DEPTH, 60])
def test_a_queue_is_no_step_however_long(each: int) -> None:
    assert not stepped_inside(window(2_000_000, each=each, late=True), 0.0, 1e-12)


def test_what_a_doubtful_drift_explains_is_no_step() -> None:
    assert stepped_inside(window(3 * int(STEP_NS), each=60), 0.0, 1e-12)
    assert not stepped_inside(window(3 * int(STEP_NS), each=60), 0.0, 1e-6)


@pytest.mark.parametrize("step_ns", [-1_500, 1_500])
def test_a_late_step_is_told_as_small_either_way(step_ns: int) -> None:
    """Floors of halves do not tell it: both hold probes of before."""
    clouds = window(0, each=60)
    late = clouds.t > 0.35 * clouds.span_ns
    stepped = clouds._replace(y=clouds.y + np.where(late, step_ns, 0))
    assert stepped_inside(stepped, 0.0, 1e-12)

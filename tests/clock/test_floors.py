"""What windows that confirm a pair's floors leave in doubt of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from syntony.clock.envelope import EnvelopeLine
from syntony.clock.fit import WindowFit
from syntony.clock.floors import Floors, Lows, growth_ns, low_until_ns
from syntony.clock.samples import Clouds

KNOWN = Floors(5_000.0, 6_000.0, 11_000.0)


def _window(gap_ns: float, *, certain: bool = False) -> WindowFit:
    line = EnvelopeLine(0.0, 5_000.0, 6_000.0)
    return WindowFit(
        line,
        1.0,
        1e-18,
        0.0,
        5.0,
        clustered=False,
        floor_confirmed=True,
        certain=certain,
        gap_ns=gap_ns,
    )


def _confirmed(gaps_ns: list[float], *, certain: bool = False) -> Floors:
    floors = KNOWN
    for at, gap_ns in enumerate(gaps_ns):
        floors = floors.confirm(_window(gap_ns, certain=certain), at)
    return floors


def test_two_windows_or_a_certain_one_end_the_doubt() -> None:
    assert math.isinf(KNOWN.remaining_var)
    assert math.isinf(_confirmed([100.0]).remaining_var)
    assert _confirmed([100.0], certain=True).remaining_var == pytest.approx(100.0**2)
    assert _confirmed([100.0, 100.0]).remaining_var == pytest.approx(100.0**2 / 2, rel=0.05)


def test_one_good_window_is_enough_and_a_bad_one_takes_nothing_away() -> None:
    assert math.sqrt(_confirmed([400.0, 9.0, 400.0]).remaining_var) == pytest.approx(9, rel=0.1)
    assert math.sqrt(_confirmed([9.0, 400.0]).remaining_var) == pytest.approx(9, rel=0.1)


def test_any_number_of_windows_leaves_what_twenty_do() -> None:
    floors = _confirmed([100.0] * 20)
    later = _confirmed([100.0] * 2_000)
    assert 100 / math.sqrt(20) <= math.sqrt(later.remaining_var) * 1.001
    assert math.sqrt(floors.remaining_var) < 1.3 * math.sqrt(later.remaining_var)
    assert later.confirmed_ns == 1_999


def test_stamps_that_all_agree_leave_their_rounding() -> None:
    left_ns = math.sqrt(_confirmed([0.0, 0.0]).remaining_var)
    assert 0.2 < left_ns < 0.5


def test_a_queue_that_may_stand_may_fill_in_a_window() -> None:
    """Half a round trip that comes or goes in a window is a slope; stamps' noise is not."""
    queued = KNOWN._replace(doubt_var=1_000.0**2)
    assert queued.drift_doubt(2e9) == pytest.approx(1e-6)
    assert queued.drift_doubt(4e9) == pytest.approx(0.5e-6)
    assert KNOWN._replace(doubt_var=100.0**2).drift_doubt(2e9) == 0


@pytest.mark.parametrize("slope_ppb", [0.0, 300.0])
@pytest.mark.parametrize("grown_ns", [0.0, 900.0, -900.0])
def test_the_growth_of_a_queue_is_told_from_the_clocks(slope_ppb: float, grown_ns: float) -> None:
    """In the sum of both directions a slope cancels, and what the queue gains does not."""
    t = np.tile(np.linspace(-1e9, 1e9, 201), 2)
    side = np.repeat([1.0, -1.0], 201)
    queue_ns = np.where(side > 0, (t / 2e9 + 0.5) * grown_ns, 0.0)
    y = slope_ppb * 1e-9 * t + side * (5_000.0 + queue_ns)
    clouds = Clouds(0, 0, 2e9, t, y, side, np.zeros(402, dtype=np.intp), 201)
    rise_ns, scatter_ns = growth_ns(clouds, 0.0)
    assert rise_ns == pytest.approx(grown_ns, abs=25.0)
    apart_ns = (abs(grown_ns) + 2 * slope_ppb) / 200, 2 * slope_ppb / 200
    assert scatter_ns < 20 * math.hypot(*apart_ns) + 1.0, "that of a few probes"
    assert growth_ns(clouds.only(t > -0.02e9), 0.0) == (0.0, 0.0), (
        "too few probes in its first half"
    )


@pytest.mark.parametrize("scatter_ns", [1.0, 30.0])
@pytest.mark.parametrize(("stands_ns", "until_ns"), [(-0.6e9, -0.6e9), (0.55e9, 1e9), (2e9, 1e9)])
def test_delays_come_down_until_a_queue_stands(
    scatter_ns: float, stands_ns: float, until_ns: float
) -> None:
    """A last quarter of a window without low delays may be chance."""
    t = np.tile(np.linspace(-1e9, 1e9, 201), 2)
    side = np.repeat([1.0, -1.0], 201)
    slack_ns = max(20.0, 4 * scatter_ns)
    above_ns = np.where(side > 0, slack_ns - 1 + 2.0 * (t > stands_ns), 0.0)
    y = side * (np.where(side > 0, 5_000.0, 6_000.0) + above_ns)
    clouds = Clouds(7, 0, 2e9, t, y, side, np.zeros(402, dtype=np.intp), 201)
    lows = Lows(5_000.0, 6_000.0, scatter_ns, 0.0)
    forward_ns, reverse_ns = low_until_ns(clouds, 0.0, lows)
    assert forward_ns == pytest.approx(7 + until_ns, abs=0.01e9)
    assert reverse_ns == 7 + 1e9

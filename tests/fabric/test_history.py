"""Windows, changes and floors of delay against a list of all seconds that was never let go of."""

from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest

from syntony.fabric.history import FIELDS, FlowHistory, SecondCounts

Second = tuple[list[list[int]], list[list[float]], list[float]]
"""Counts by field and flow, delays there and back by flow, clock errors by flow."""


def draw(rng: random.Random, flows: int, at_s: int) -> Second:
    """`at_s`: paths become longer, so that what was the floor long ago is none any more."""
    counts = [[rng.randrange(50) for _ in range(flows)] for _ in range(FIELDS)]
    # The floor of each flow is its own; queues come and go, and often nothing is measured.
    delays = [
        [
            math.nan if rng.random() < 0.3
            else 1_000.0 * (flow + 1) + way + 5.0 * at_s
            + (rng.random() < 0.5) * rng.expovariate(1 / 5_000)
            for flow in range(flows)
        ]
        for way in range(2)
    ]  # fmt: skip
    return counts, delays, [rng.uniform(1, 100) for _ in range(flows)]


def add(history: FlowHistory, second: Second) -> None:
    counts, delays, errors = second
    usual, slowest = np.array(delays), np.array(delays)
    history.add(SecondCounts(np.array(counts), usual, slowest, np.array(errors)))


def summed(seconds: list[Second], flows: int) -> list[list[int]]:
    return [
        [
            sum(second[0][field][flow] for second in seconds if flow < len(second[2]))
            for flow in range(flows)
        ]
        for field in range(FIELDS)
    ]


def measured(seconds: list[Second], way: int, flow: int) -> list[float]:
    known = [second[1][way][flow] for second in seconds if flow < len(second[2])]
    return [value for value in known if not math.isnan(value)]


def error(seconds: list[Second], flow: int) -> float:
    return max(second[2][flow] if flow < len(second[2]) else 0.0 for second in seconds)


@pytest.mark.parametrize("seed", range(3))
def test_every_second_of_a_long_life(seed: int) -> None:
    """Flows join on the way; every few seconds all windows, changes and floors are compared."""
    rng = random.Random(seed)
    history, past, flows = FlowHistory(), list[Second](), 2
    for at_s in range(950):
        flows += rng.random() < 0.005
        past.append(draw(rng, flows, at_s))
        add(history, past[-1])
        if rng.random() < 0.04 or len(past) in {9, 10, 19, 20, 59, 60, 299, 300, 301, 601}:
            compare_windows(history, past, flows)
            compare_change(history, past, flows)
            compare_excess(history, past, flows)


def compare_windows(history: FlowHistory, past: list[Second], flows: int) -> None:
    found = {window.seconds: window for window in history.windows(flows)}
    whole = [seconds for seconds in (1, 3, 10, 30, 60, 300) if seconds <= len(past)]
    too_long = [seconds for seconds in (1, 3, 10, 30, 60, 300) if seconds > len(past)]
    assert sorted(found) == [*whole, *too_long[:1]][: len(whole) + (len(past) != whole[-1])]
    for seconds, window in found.items():
        assert window.name == f"{seconds}s"
        # Five minutes are kept in steps of ten seconds: up to a step more are in.
        more = len(past) % 10 if seconds == 300 else 0
        assert window.counts.tolist() == summed(past[-(seconds + more) :], flows)


def compare_change(history: FlowHistory, past: list[Second], flows: int) -> None:
    """The newest ten seconds' median less that of the rest of the minute, and the least of two."""
    change, soon = history.change(flows), history.change(flows, soon=True)
    if len(past) < 20:
        assert change is None
        assert soon is None
        return
    assert change is not None
    assert soon is not None
    now, before = past[-10:], past[-60:-10]
    for flow in range(flows):
        for way in range(2):
            new, old = measured(now, way, flow), measured(before, way, flow)
            known = len(new) >= 5 and len(old) >= 5
            expected = statistics.median(new) - statistics.median(old) if known else math.nan
            assert change.delay_ns[way, flow] == pytest.approx(expected, nan_ok=True)
            both = measured(past[-2:], way, flow)
            known = len(both) == 2 and len(old) >= 5
            expected = min(both) - statistics.median(old) if known else math.nan
            assert soon.delay_ns[way, flow] == pytest.approx(expected, nan_ok=True)
        assert change.sigma_ns[flow] == error(now, flow)


def compare_excess(history: FlowHistory, past: list[Second], flows: int) -> None:
    """What all but a fifth of the newest ten seconds had above the least of five to ten minutes,
    each with the clocks' error of its second."""
    excess = history.excess(flows)
    if len(past) < 20:
        assert excess is None
        return
    assert excess is not None
    began = max(0, (len(past) - 1) // 300 - 1) * 300
    for flow in range(flows):
        for way in range(2):
            new = sorted(measured(past[-10:], way, flow))
            fastest = (
                second[1][way][flow] + second[2][flow]
                for second in past[began:]
                if flow < len(second[2]) and not math.isnan(second[1][way][flow])
            )
            floor = min(fastest, default=math.nan)
            low = new[int(0.2 * (len(new) - 1))] if len(new) >= 5 else math.nan
            assert excess.delay_ns[way, flow] == pytest.approx(low - floor, nan_ok=True)
        assert excess.sigma_ns[flow] == error(past[-10:], flow)


def test_a_window_that_has_no_more_than_a_shorter_one_is_left_out() -> None:
    """What was counted before the newest 45 seconds belongs to paths that flows have left."""
    history = FlowHistory()
    for _ in range(200):
        add(history, ([[3, 2]] * FIELDS, [[1.0, 1.0]] * 2, [0.0, 0.0]))
    every = [1, 3, 10, 30, 60, 300]
    assert [window.seconds for window in history.windows(2)] == every
    history.forget(np.array([True, False]), 45)
    assert [window.seconds for window in history.windows(2)] == every
    history.forget(np.array([True, True]), 45)
    assert [window.seconds for window in history.windows(2)] == every[:-1]
    add(history, ([[0, 0]] * FIELDS, [[np.nan, np.nan]] * 2, [0.0, 0.0]))
    assert [window.seconds for window in history.windows(2)] == [1, 3, 10, 30, 60]


def test_nothing_is_known_of_nothing() -> None:
    history = FlowHistory()
    assert history.windows(3) == []
    assert history.change(3) is None
    assert history.excess(3) is None


def test_a_second_with_unknown_clocks_is_no_floor() -> None:
    """Clocks that are found again: a delay of 5 µs seemed to be -300 µs, give or take 2 ms."""
    history = FlowHistory()
    for at_s in range(100):
        delay_ns, error_ns = (-300_000.0, 2e6) if at_s == 50 else (5_000.0 + at_s, 300.0)
        add(history, ([[0]] * FIELDS, [[delay_ns], [delay_ns]], [error_ns]))
    excess = history.excess(1)
    assert excess is not None
    assert np.all(excess.delay_ns < 1_000)

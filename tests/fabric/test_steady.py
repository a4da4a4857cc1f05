"""Flows that are not measured because they were steady, against measuring all of them."""

from __future__ import annotations

import math
import random

import numpy as np

from syntony.fabric.history import FIELDS, DelayChange, DelayExcess, FlowHistory, SecondCounts
from syntony.fabric.steady import STEADY_NS, Steady

CHANGE_NS, QUEUE_NS = 20_000.0, 50_000.0


def reported(
    some: DelayChange | DelayExcess | None,
    every: DelayChange | DelayExcess | None,
    least_ns: float,
    seed: int,
) -> int:
    """Holds one against the other; how many of the known were left out."""
    assert (some is None) == (every is None)
    if some is None or every is None:
        return 0
    assert some.sigma_ns.tolist() == every.sigma_ns.tolist()
    left_out = np.isnan(some.delay_ns) & ~np.isnan(every.delay_ns)
    assert (np.abs(every.delay_ns[left_out]) < least_ns).all(), f"{seed=}"
    same = ~left_out
    np.testing.assert_array_equal(some.delay_ns[same], every.delay_ns[same], f"{seed=}")
    return int(left_out.sum())


def test_what_is_left_out_has_not_moved() -> None:
    first = random.randrange(1 << 30)
    lives = [live(seed) for seed in range(first, first + 4)]
    left_out, moved = map(sum, zip(*lives, strict=True))
    assert left_out > 200, f"{first=}"
    assert moved > 100, f"{first=}"


def live(seed: int) -> tuple[int, int]:
    """Flows join, jump, ramp, queue, fall silent; each has noise of its own. How many delays were
    left out, and how many had moved."""
    rng = random.Random(seed)
    history, flows = FlowHistory(), 1 + rng.randrange(6)
    base = [[rng.uniform(2_000, 90_000) for _ in range(40)] for _ in range(2)]
    noise = [rng.choice([50.0, 500.0, 7_000.0, 30_000.0]) for _ in range(40)]
    slope = [0.0] * 40
    left_out = moved = 0
    for second in range(200):
        flows += flows < 40 and rng.random() < 0.2
        for flow in range(flows):
            if rng.random() < 0.01:
                way = rng.randrange(2)
                base[way][flow] = max(
                    0, base[way][flow] + rng.choice([-1, 1]) * 10 ** rng.uniform(3, 5)
                )
            if rng.random() < 0.005:
                slope[flow] = rng.choice([0.0, 300.0, -300.0, 1_500.0])
            base[0][flow] += slope[flow]
        delays = [
            [
                math.nan if rng.random() < (0.6 if (flow + second // 30) % 7 == 0 else 0.02)
                else base[way][flow] + rng.gauss(0, noise[flow])
                for flow in range(flows)
            ]
            for way in range(2)
        ]  # fmt: skip
        errors = np.array([rng.uniform(10, 90) for _ in range(flows)])
        counts = np.zeros((FIELDS, flows), dtype=np.int64)
        history.add(SecondCounts(counts, np.array(delays), np.array(delays), errors))
        every = history.change(flows)
        left_out += reported(history.change(flows, CHANGE_NS), every, CHANGE_NS, seed)
        left_out += reported(history.excess(flows, QUEUE_NS), history.excess(flows), QUEUE_NS, seed)
        moved += 0 if every is None else int((np.abs(every.delay_ns) > CHANGE_NS).sum())
    return left_out, moved


def test_a_quiet_fabric_is_hardly_measured() -> None:
    """In steady state nothing is sorted where noise is small; all is where it is large."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for noise_ns, most in ((500.0, 0), (40_000.0, 100)):
        history = FlowHistory()
        for _ in range(45):
            delays = 50_000 + rng.normal(0, noise_ns, (2, 50))
            counts = np.zeros((FIELDS, 50), dtype=np.int64)
            history.add(SecondCounts(counts, delays, delays, np.full(50, 20.0)))
        change = history.change(50, CHANGE_NS)
        assert change is not None
        assert np.isfinite(change.delay_ns).sum() == most


def test_seconds_near_are_counted_as_one_by_one() -> None:
    """A ring of 12 seconds, of which 4 are the newest; flows join, and are aimed anew."""
    seed = random.randrange(1 << 30)
    rng = np.random.default_rng(seed)
    ring, newest, flows = 12, 4, 3
    steady, near = Steady(ring, newest), np.full((2, 30), np.nan)
    kept = np.full((2, 30, ring), np.nan)
    compared = 0
    for second in range(300):
        flows += int(flows < 30 and rng.random() < 0.1)
        place = second % ring
        delay_ns = rng.choice([0.0, 20_000.0, np.nan], (2, flows), p=[0.6, 0.3, 0.1])
        steady.add(place, delay_ns)
        kept[:, :, place] = np.nan
        kept[:, :flows, place] = delay_ns
        now = (place - np.arange(newest)) % ring
        if rng.random() < 0.3:
            some = np.flatnonzero(rng.random(flows) < 0.5)
            near[:, some] = rng.choice([0.0, 20_000.0, np.nan], (2, len(some)), p=[0.5, 0.4, 0.1])
            steady.aim(some, near[:, some], kept[:, some], now)
        inside = np.abs(kept - near[..., None]) < STEADY_NS
        of_now = inside[..., now].sum(axis=-1)
        of_before = inside.sum(axis=-1) - of_now
        seconds = min(second + 1, ring)
        expected = (of_now > newest / 2) & (of_before > (seconds - newest) / 2)
        found = ~steady.unsteady(seconds)
        assert found.tolist() == expected.all(axis=0)[:flows].tolist(), f"{seed=} {second=}"
        compared += int(found.sum())
    assert compared > 50, f"{seed=}"

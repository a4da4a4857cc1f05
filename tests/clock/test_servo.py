"""Steering a clock by timelines that are late and noisy, as the real ones are."""

from __future__ import annotations

import random

import pytest

from syntony.clock.served import ServedTimeline
from syntony.clock.servo import FINE_PPB, PULL_PPB, Adjustment, Servo
from syntony.model import MS, US, ClockState, S, Timeline

START_NS = 1_700_000_000 * S
SECONDS = 500


class Quartz:
    """A clock with a drift of its own, against seconds of fleet time; it can be adjusted."""

    def __init__(self, drift_ppb: float, offset_ns: float) -> None:
        self.drift_ppb, self.offset_ns, self.rate_ppb = drift_ppb, offset_ns, 0.0
        self.ahead: list[float] = []

    def second(self) -> None:
        self.ahead.append(self.offset_ns)
        self.offset_ns += self.drift_ppb + self.rate_ppb

    def adjust(self, wanted: Adjustment) -> None:
        self.rate_ppb = wanted.rate_ppb
        self.offset_ns += wanted.step_ns


def solved(clock: Quartz, second: int, chance: random.Random) -> Timeline:
    """What a window of the last four seconds says, told one second late."""
    first, last = clock.ahead[-5], clock.ahead[-2]
    rate_ppb = (last - first) / 3
    middle_ns = (first + last) / 2 + chance.gauss(0, 30)
    return Timeline(
        node="h0",
        ref_ns=START_NS + second * S - 5 * S // 2 + round(middle_ns),
        offset_ns=-middle_ns,
        drift_ppb=-rate_ppb + chance.gauss(0, 10),
        sigma_ns=30.0,
        drift_sigma_ppb=10.0,
        state=ClockState.SYNCHRONIZED,
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("offset_ns", [-800 * US, 0, 300 * US])
def test_a_clock_arrives_and_stays(seed: int, offset_ns: int) -> None:
    chance = random.Random(seed)
    clock = Quartz(chance.uniform(-40_000, 40_000), float(offset_ns))
    servo = Servo(limit_ppb=200_000.0)
    coarse = []
    for second in range(SECONDS):
        clock.second()
        if second < 5:
            continue
        local_ns = START_NS + second * S + round(clock.offset_ns)
        before_ppb = clock.rate_ppb
        wanted = servo.update(solved(clock, second, chance), local_ns, before_ppb)
        if wanted is not None:
            assert wanted.step_ns == 0
            assert abs(wanted.rate_ppb) <= 200_000
            assert wanted.coarse or abs(wanted.rate_ppb - before_ppb) <= FINE_PPB + 1e-6
            coarse += [second] * wanted.coarse
            clock.adjust(wanted)
    assert len(coarse) <= 4, f"seed {seed}: coarse changes at {coarse} s"
    assert max(coarse, default=0) < 300
    assert max(map(abs, clock.ahead[-60:])) < 3 * US, f"seed {seed}"


def test_a_step_only_if_told() -> None:
    line = Timeline(
        node="h0",
        ref_ns=START_NS,
        offset_ns=50.0 * MS,
        drift_ppb=0.0,
        sigma_ns=30.0,
        state=ClockState.SYNCHRONIZED,
    )
    assert Servo(2e5).update(line, START_NS, 0.0) == (PULL_PPB, 0, True)
    assert Servo(2e5, step_ns=60 * MS).update(line, START_NS, 0.0) == (PULL_PPB, 0, True)
    assert Servo(2e5, step_ns=10 * MS).update(line, START_NS, 0.0) == (0.0, 50 * MS, True)
    assert Servo(5e3).update(line, START_NS, 0.0) == (5e3, 0, True)


def test_an_unsure_clock_is_left_alone() -> None:
    line = Timeline(node="h0", ref_ns=START_NS, offset_ns=5.0, drift_ppb=0.0, sigma_ns=30.0)
    assert Servo(1e5).update(line, START_NS, 0.0) is None


def test_served_time_knows_of_our_own_adjustments() -> None:
    """A fine one changes nothing in fleet time."""
    served = ServedTimeline()
    line = Timeline(
        node="h0",
        ref_ns=START_NS,
        offset_ns=1000.0,
        drift_ppb=-20_000.0,
        sigma_ns=30.0,
        state=ClockState.SYNCHRONIZED,
    )
    served.take(line, START_NS)
    at_ns = START_NS + 3 * S
    before = served.at(at_ns)
    assert before is not None
    fine = served.adjusted(at_ns, rate_ppb=10.0)
    assert fine is not None
    assert fine.to_fleet_ns(at_ns) == before.to_fleet_ns(at_ns)
    # Ten seconds later the clock has counted 100 ns more.
    later_ns = at_ns + 10 * S
    assert fine.to_fleet_ns(later_ns + 100) == pytest.approx(before.to_fleet_ns(later_ns), abs=2)

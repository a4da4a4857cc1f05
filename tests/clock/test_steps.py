"""What counts as a disruption of the local clock, and what as a change of its rate."""

from __future__ import annotations

import random

import pytest

from syntony.clock.steps import EDGE_NS, Disruption, Moment, Slew, StepDetector
from syntony.model import MS, S

FIRST = Moment(local_ns=1000 * S, mono_ns=50 * S, boot_ns=60 * S, raw_ns=49 * S, width_ns=300)


def later(gone_ns: int, *, step_ns: int = 0, slept_ns: int = 0, marker: int = 0) -> Moment:
    return FIRST._replace(
        local_ns=FIRST.local_ns + gone_ns + step_ns,
        mono_ns=FIRST.mono_ns + gone_ns,
        boot_ns=FIRST.boot_ns + gone_ns + slept_ns,
        raw_ns=FIRST.raw_ns + gone_ns,
        marker=marker,
    )


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (later(S), None),
        (later(S, step_ns=300 + EDGE_NS), None),
        (later(S, step_ns=400), (FIRST.local_ns + 1, 400)),
        (later(S, step_ns=-400), (FIRST.local_ns - 399, -400)),
        (later(S, step_ns=40_000), (FIRST.local_ns + 1, 40_000)),
        (later(S, step_ns=-10 * MS), (FIRST.local_ns + 1 - 10 * MS, -10 * MS)),
        (later(S, slept_ns=S), (FIRST.local_ns + 1, 0)),
        (later(S, step_ns=S, slept_ns=S), (FIRST.local_ns + 1, S)),
        (later(S, marker=1), (FIRST.local_ns + 1, 0)),
    ],
)
def test_disruptions(now: Moment, what: tuple[int, int] | None) -> None:
    watch = StepDetector()
    assert watch.look(FIRST) is None
    found: Disruption | None = watch.look(now)
    assert (None if found is None else found[:2]) == what
    assert watch.look(now) is None


@pytest.mark.parametrize("step_ns", [0, 400, -400, 56 * 365 * 86_400 * S])
def test_a_clock_that_was_never_set_is_watched_too(step_ns: int) -> None:
    """It reads less than the time since boot, until somebody sets it."""
    watch, behind_ns = StepDetector(), FIRST.local_ns - FIRST.mono_ns // 2
    found = []
    for gone_s, stepped_ns in ((0, 0), (1, 0), (2, step_ns), (3, step_ns)):
        now = later(gone_s * S, step_ns=stepped_ns)
        found.append(watch.look(now._replace(local_ns=now.local_ns - behind_ns)))
    assert [None if each is None else each.step_ns for each in found] == [
        None, None, step_ns or None, None
    ]  # fmt: skip


def test_the_kernels_word_is_enough() -> None:
    watch = StepDetector()
    assert watch.look(FIRST, was_set=True) is None, "there is nothing before it"
    found = watch.look(later(S), was_set=True)
    assert found is not None
    assert found.step_ns == 0


class Machine:
    """Clocks of a host, read now and then as a busy machine does: each reading's order and delays
    are drawn, and the width is all that the watch learns of them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.raw_ns = float(self.chance.randrange(S, 10**6 * S))
        self.fast_ns = self.chance.uniform(-S, S)
        """CLOCK_MONOTONIC minus the raw clock."""
        self.stepped_ns = self.chance.randrange(1_700_000_000 * S)
        self.rate_ppb = self.chance.uniform(-80_000, 80_000)

    def rest(self, for_ns: float) -> None:
        self.raw_ns += for_ns
        self.fast_ns += self.rate_ppb * 1e-9 * for_ns

    def read(self) -> Moment:
        busy = self.chance.random() < 0.1
        waits = [self.chance.uniform(20, 2_000 if busy else 60) for _ in range(3)]
        before_ns = self.mono()
        self.rest(waits[0])
        raw_ns = self.raw_ns
        self.rest(waits[1])
        local_ns = self.mono() + self.stepped_ns
        self.rest(waits[2])
        width_ns = self.mono() - before_ns
        mono_ns = before_ns + width_ns // 2
        return Moment(local_ns, mono_ns, mono_ns, raw_ns=round(raw_ns), width_ns=width_ns)

    def mono(self) -> int:
        return round(self.raw_ns + self.fast_ns)


def looks(machine: Machine, watch: StepDetector, seconds: float) -> list[Disruption | Slew]:
    """Five a second, give or take what a busy machine does; everything that was found."""
    found: list[Disruption | Slew] = []
    end_ns = machine.raw_ns + seconds * S
    while machine.raw_ns < end_ns:
        machine.rest(machine.chance.uniform(0.1, 0.3) * S)
        disruption = watch.look(machine.read())
        slew = watch.slew()
        if disruption is not None:
            found.append(disruption)
        elif watch.left_pace and slew is not None:
            found.append(slew)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_clock_left_alone_is_left_alone(seed: int) -> None:
    machine, watch = Machine(seed), StepDetector()
    assert looks(machine, watch, 120) == [], seed
    off_ppb = abs(watch.pace.rate_ppb - machine.rate_ppb)
    assert off_ppb <= watch.pace.tolerance_ppb < 100, seed


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("step_ns", [3_000, 15_000, -19_000, 700])
def test_small_steps_are_seen_at_the_next_look(seed: int, step_ns: int) -> None:
    machine, watch = Machine(seed), StepDetector()
    looks(machine, watch, 3)
    machine.stepped_ns += step_ns
    machine.rest(0.2 * S)
    found = watch.look(machine.read())
    while found is None and abs(step_ns) < 2_000:  # a look may be as wide as that
        found = watch.look(machine.read())
    assert found is not None, seed
    assert found.step_ns == pytest.approx(step_ns, abs=2_100), seed
    assert looks(machine, watch, 10) == [], seed


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("by_ppb", [20_000.0, -20_000.0, 500_000.0, -500_000.0, 300.0])
def test_a_slew_is_seen_and_followed(seed: int, by_ppb: float) -> None:
    """Within a look where it is fast; anyone who follows it knows how far the clock has gone."""
    machine, watch = Machine(seed), StepDetector()
    looks(machine, watch, 10)
    before_ppb, raw_ns, fast_ns = machine.rate_ppb, machine.raw_ns, machine.fast_ns
    machine.rate_ppb += by_ppb
    found = looks(machine, watch, 1.0 if abs(by_ppb) > 1_000 else 4.0)
    assert found, seed
    assert not any(isinstance(each, Disruption) for each in found), seed
    looks(machine, watch, 5)
    slew = watch.slew()
    assert slew is not None
    expected_ns = fast_ns + before_ppb * 1e-9 * (machine.raw_ns - raw_ns)
    assert abs(slew.phase_ns - (machine.fast_ns - expected_ns)) <= slew.tolerance_ns, seed
    assert slew.tolerance_ns < 20_000, seed
    assert slew.rate_ppb == pytest.approx(by_ppb, abs=150), seed
    watch.settle()
    assert watch.slew() is None
    assert looks(machine, watch, 20) == [], seed


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("by_ppb", [20_000.0, -500_000.0])
def test_a_slew_that_came_and_went_while_nobody_looked_is_seen(seed: int, by_ppb: float) -> None:
    """The agent was paused; where the clock ended is known at the first look, and is told once."""
    machine, watch = Machine(seed), StepDetector()
    looks(machine, watch, 10)
    for rate_ppb, seconds in ((0.0, 5.0), (by_ppb, 1.0), (-by_ppb, 14.0)):
        machine.rate_ppb += rate_ppb
        machine.rest(seconds * S)
    assert watch.look(machine.read()) is None, seed
    assert watch.left_pace, seed
    slew = watch.slew()
    assert slew is not None
    assert abs(slew.phase_ns - by_ppb) <= slew.tolerance_ns + 2_100, seed
    assert abs(by_ppb) <= watch.off_ns <= abs(by_ppb) + 10_000, seed
    watch.look(machine.read())
    assert not watch.left_pace, seed


@pytest.mark.parametrize("seed", range(20))
def test_a_quartz_that_warms_up_while_nobody_looks_has_left_no_pace(seed: int) -> None:
    """As fast as docs/reference/clock.md allows, which every bound holds."""
    machine, watch = Machine(seed), StepDetector()
    looks(machine, watch, 20)
    ramp_ppb = machine.chance.choice([-1.9, 1.9])
    for _ in range(machine.chance.randrange(30, 120)):
        machine.rest(S)
        machine.rate_ppb += ramp_ppb
    assert watch.look(machine.read()) is None, seed
    assert not watch.left_pace, seed
    assert watch.off_ns == 0, seed


@pytest.mark.parametrize("gone_ns", [0, 1, 2, 10 * MS])
def test_the_first_rate_of_a_slew_is_what_it_went_since(gone_ns: int) -> None:
    """Looks may be closer to each other than the raw clock's ticks."""
    watch = StepDetector()
    for at_ns in (0, S, 2 * S - 1, 2 * S):
        assert watch.look(later(at_ns)) is None
    now = later(2 * S + gone_ns)
    watch.look(now._replace(mono_ns=now.mono_ns + 5_000, local_ns=now.local_ns + 5_000,
                            boot_ns=now.boot_ns + 5_000))  # fmt: skip
    slew = watch.slew()
    assert slew is not None
    assert slew.phase_ns == pytest.approx(5_000)
    assert slew.rate_ppb == pytest.approx(5_000 * 1e9 / max(gone_ns, 1))

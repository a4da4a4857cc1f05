"""Served time, servos and step detectors for `test_recorded`: results for drawn events."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

from syntony.clock.anchors import Vote
from syntony.clock.served import ServedTimeline, TimelinePiece
from syntony.clock.servo import Servo
from syntony.clock.steps import Disruption, Moment, Slew, StepDetector
from syntony.clock.utc import UtcServo
from syntony.model import MS, ClockState, S, Timeline

START_NS = 1_700_000_000 * S
SYNCHRONIZED, HOLDOVER = ClockState.SYNCHRONIZED, ClockState.HOLDOVER


def solved(chance: random.Random, at_ns: int, spread_ns: float, epoch: int = 0) -> Timeline:
    return Timeline(
        node="h0",
        ref_ns=at_ns - 2 * S,
        offset_ns=5e3 + chance.uniform(-spread_ns, spread_ns),
        drift_ppb=chance.uniform(-30e3, 30e3),
        sigma_ns=chance.uniform(10, 400),
        drift_sigma_ppb=chance.uniform(5, 50),
        state=chance.choice([SYNCHRONIZED] * 5 + [HOLDOVER, ClockState.DISRUPTED]),
        asymmetry_ns=chance.choice([0.0, 2_000.0]),
        epoch=epoch,
    )


def piece(found: TimelinePiece | None, at_ns: int) -> str:
    if found is None:
        return "none"
    return (
        f"{found.state} from={(found.from_ns - at_ns) * 1e-6:.5g} left={found.residual_ns:.5g}"
        f" steps={found.steps} off={found.shift_ns(at_ns + 3 * S):.5g}"
        f" bound={found.bound_ns(at_ns + 3 * S):.5g}"
        f" goes={found.left_ns(found.from_ns + 100 * MS):.5g}"
    )


def served() -> Iterator[str]:
    """Timelines come, stay away, step; the clock leaves its pace, is adjusted, is disrupted."""
    for seed, step_ns in ((1, math.inf), (2, 40e3)):
        chance = random.Random(seed)
        reported, at_ns = ServedTimeline(step_ns=step_ns), START_NS
        for _ in range(50):
            at_ns += chance.randrange(10 * MS, 4 * S)
            match chance.randrange(9):
                case 0:
                    at_ns += chance.choice([2, 5, 6, 400]) * S
                    found = reported.tick(at_ns)
                case 1:
                    found = reported.disrupt(at_ns, reported.epoch + 1)
                case 2:
                    reported.leave_pace(reported.epoch + 1)
                    slew = Slew(
                        chance.uniform(-3e3, 3e3), chance.uniform(50, 900),
                        chance.uniform(-2e4, 2e4)
                    )  # fmt: skip
                    found = reported.follow(slew, at_ns)
                    yield piece(
                        reported.follow(slew._replace(phase_ns=slew.phase_ns + 15), at_ns), at_ns
                    )
                case 3:
                    found = reported.adjusted(at_ns, chance.uniform(-10, 10))
                case _:
                    spread_ns = chance.choice([100.0, 30e3, 300e3, 3e6])
                    line = solved(
                        chance, at_ns, spread_ns, reported.epoch - (chance.random() < 0.1)
                    )
                    found = reported.take(line, at_ns, stepped=chance.random() < 0.1)
            yield piece(found, at_ns)
            yield f"{piece(reported.at(at_ns), at_ns)} {reported.following}"


def steered() -> Iterator[str]:
    """Frequencies that a servo asks for."""
    for seed, step_ns in ((1, 0), (2, 20_000_000)):
        chance = random.Random(seed)
        servo, at_ns, rate_ppb = Servo(60_000.0, step_ns), START_NS, 0.0
        for _ in range(40):
            at_ns += chance.randrange(S, 30 * S)
            line = solved(chance, at_ns, chance.choice([50.0, 5e3, 3e6, 3e7]))
            line = Timeline(
                node="h0",
                ref_ns=line.ref_ns,
                offset_ns=line.offset_ns,
                drift_ppb=line.drift_ppb * chance.choice([1e-4, 3e-3, 1.0, 3.0]),
                sigma_ns=line.sigma_ns,
                state=line.state,
            )
            wanted = servo.update(line, at_ns, rate_ppb)
            if wanted is None:
                yield "none"
                continue
            rate_ppb = wanted.rate_ppb
            yield f"rate={wanted.rate_ppb:.6g} step={wanted.step_ns} coarse={wanted.coarse}"


def watched() -> Iterator[str]:
    """A clock that is slewed, set, suspended and migrated, as looks of some width see it."""
    rates_ppb = {12: 300.0, 25: 900.0, 50: 20_000.0, 62: -20_000.0}
    steps_ns = {20: -900, 30: 600, 40: 50_000}
    sleeps_ns = {33: 90_000, 36: 110_000}
    for seed in (1, 2):
        chance, watch = random.Random(seed), StepDetector()
        raw_ns, fast_ns, ahead_ns, slept_ns, rate_ppb = 9 * S, 3e6, START_NS, 0, 4_000.0
        for look in range(80):
            gone_ns = chance.randrange(100 * MS, 600 * MS)
            raw_ns += gone_ns
            fast_ns += rate_ppb * 1e-9 * gone_ns
            rate_ppb += rates_ppb.get(look, 0.0)
            ahead_ns += steps_ns.get(look, 0)
            slept_ns += sleeps_ns.get(look, 0)
            if look == 58:
                watch.settle()
            if look == 66:
                watch.changed()
            mono_ns = raw_ns + round(fast_ns)
            width_ns = chance.choice([100, 180, 260, 4_001])
            local_ns = mono_ns + ahead_ns + chance.randint(-width_ns // 2, width_ns // 2)
            now = Moment(local_ns, mono_ns, mono_ns + slept_ns, look // 45, raw_ns, width_ns)
            yield seen(watch, watch.look(now, was_set=look == 70), local_ns)


def seen(watch: StepDetector, happened: Disruption | None, local_ns: int) -> str:
    words = [f"pace={watch.pace.rate_ppb:.5g} give={watch.pace.tolerance_ppb:.5g}"]
    words.append(f"left={watch.left_pace} take={watch.expected.rate_ppb:.5g}")
    if happened is not None:
        from_ns = happened.from_ns - local_ns
        words.append(f"{happened.reason} by={happened.step_ns} from={from_ns}")
    if (slew := watch.slew()) is not None:
        words.append(f"off={slew.phase_ns:.5g} by={slew.rate_ppb:.5g}")
        words.append(f"within={slew.tolerance_ns:.5g}")
    return " ".join(words)


def utc() -> Iterator[str]:
    """Anchors that come, go, lie and run away; fleet time is led, or steps where told to."""
    for seed, step_ns in ((1, 0.0), (2, 0.1 * S)):
        chance = random.Random(seed)
        servo, at_ns = UtcServo(3, step_ns), START_NS
        true_ns, rate_ppb, lies = 3e7, 8_000.0, [0.0, 0.0, 0.0]
        for turn in range(110):
            seconds = chance.choice([1, 1, 1, 2, 12])
            at_ns += seconds * S
            true_ns += rate_ppb * seconds
            if turn == 40:
                lies[1] = 2e6
            if turn == 60:
                true_ns -= S
            lies[2] += 20e3 * seconds * (turn > 80)
            here = [n for n in range(3) if turn < 20 or chance.random() < 0.8]
            said = [
                Vote(f"h{n}", true_ns + lies[n] + chance.gauss(0, 300), 900.0 + 10 * n)
                for n in here
            ]
            if 30 < turn < 36:
                said = []
            if turn == 37:
                servo.lose("nobody is there")
            lead = servo.step(said, at_ns, {"h9": "not heard of"} if turn % 7 == 0 else {})
            at_ns += lead.step_ns
            true_ns -= lead.step_ns
            rate_ppb -= lead.rate_ppb
            found = servo.utc
            if found is None:
                yield "none"
                continue
            yield (
                f"{found.state} off={found.offset_ns - true_ns:.5g} rate={found.drift_ppb:.5g}"
                f" sigma={found.drift_sigma_ppb:.5g} bound={found.bound_ns(at_ns):.5g}"
                f" reach={found.error_ns:.5g} ago={(at_ns - found.confirmed_ns) / S:.5g}"
                f" step={lead.step_ns} turn={lead.rate_ppb:.5g} {' '.join(found.anchors)}"
                f" {found.reason}"
            )


CASES: dict[str, Callable[[], Iterator[str]]] = {
    f"time {story.__name__}": story for story in (served, steered, watched, utc)
}

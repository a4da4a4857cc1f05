"""Histories of one pair of clocks for `test_recorded`: results of its tracker, by window."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from bench.simulated import stamps
from bench.simulated.clocks import ClockKind
from bench.simulated.fleet import QUIET, Way, probe_pairs
from tests.clock.pairs import LONGER, STUCK, WINDOW_NS, Pair

from syntony.clock.innovation import DriftRamp, Innovations
from syntony.clock.paths import PathBalance
from syntony.clock.samples import Clouds
from syntony.clock.tracker import Tracked

BUSY = Way(load=0.8)
FULL = Way(floor_ns=605e3)
Ways = tuple[Way, Way]


def line(pair: Pair, tracked: Tracked | None) -> str:
    if tracked is None:
        return "torn"
    turn_ppb = tracked.drift * 1e9 - float(pair.clocks.drift_ppb[1] - pair.clocks.drift_ppb[0])
    return (
        f"{tracked.mode} off={pair.error_ns(tracked):.5g} turn={turn_ppb:.5g}"
        f" sigma={math.sqrt(tracked.theta_var):.5g} doubt={math.sqrt(tracked.doubt_var):.5g}"
        f" rate={math.sqrt(tracked.drift_var) * 1e9:.5g} floor={tracked.rtt_floor_ns:.5g}"
        f" ago={(pair.at_ns + pair.clocks.offset_ns[0] - tracked.ref_ns) * 1e-6:.5g}"
    )


def reported(pair: Pair, story: Iterable[Ways], advance_ns: int = WINDOW_NS) -> Iterator[str]:
    for there, back in story:
        yield line(pair, pair.step(there, back, advance_ns=advance_ns))


def learned(pair: Pair, windows: int = 3) -> Pair:
    for _ in range(windows):
        pair.step()
    return pair


def routes() -> Iterator[str]:
    """Longer there, and back again; longer both ways; shorter than ever."""
    for noise in (stamps.hardware, stamps.kernel):
        pair = Pair(1, noise)
        yield from reported(
            pair, [(QUIET, QUIET)] * 3 + [(LONGER, QUIET)] * 5 + [(QUIET, QUIET)] * 2
        )
        yield from reported(pair, [(LONGER, LONGER)] * 4 + [(Way(floor_ns=3e3), QUIET)] * 2)


def standing() -> Iterator[str]:
    """Queues that never empty, in one direction, in the other, in both."""
    for noise in (stamps.hardware, stamps.exponential):
        pair = Pair(2, noise)
        yield from reported(
            pair, [(QUIET, QUIET)] * 3 + [(STUCK, QUIET)] * 2 + [(QUIET, STUCK)] * 2
        )
        yield from reported(pair, [(STUCK, STUCK)] * 3 + [(QUIET, QUIET)])


def from_the_start() -> Iterator[str]:
    """Busy, or standing, before any floor was seen; then it drains."""
    for seed, way in enumerate((BUSY, STUCK, Way(load=0.95), FULL)):
        pair = Pair(seed, stamps.kernel, pairs=60)
        yield from reported(pair, [(way, QUIET)] * 4 + [(QUIET, QUIET)] * 2)


def slight() -> Iterator[str]:
    """So little above the floor that it may be in either direction."""
    for noise, extra_ns in ((stamps.hardware, 45.0), (stamps.hardware, 90.0), (stamps.kernel, 900)):
        pair = learned(Pair(3, noise))
        beyond = Way(floor_ns=QUIET.floor_ns + extra_ns)
        yield from reported(pair, [(beyond, QUIET)] * 3 + [(beyond, beyond)] * 2 + [(QUIET, QUIET)])


def sliding() -> Iterator[str]:
    """A window of two seconds, asked every half a second, and every 20 ms."""
    for noise in (stamps.gamma_edge, stamps.two_wakeups):
        pair = Pair(4, noise, pairs=64)
        yield from reported(pair, [(Way(0.4), Way(0.6))] * 8, WINDOW_NS // 4)
        yield from reported(pair, [(STUCK, QUIET)] * 3, WINDOW_NS // 100)


def drained() -> Iterator[str]:
    """What was taken for a longer route becomes shorter, but to no floor never seen before."""
    pair = learned(Pair(5, stamps.kernel))
    draining = Way(load=0.9, floor_ns=305e3)
    yield from reported(pair, [(FULL, QUIET)] * 5 + [(draining, QUIET)] * 2 + [(QUIET, QUIET)] * 2)


def lost() -> Iterator[str]:
    """Told that a clock has stepped and left its pace: the paths are remembered."""
    later = (QUIET, Way(load=0.3, floor_ns=65e3), Way(floor_ns=3e3), Way(floor_ns=5_060.0))
    for seed, there in enumerate(later):
        pair = learned(Pair(seed, stamps.kernel if seed % 2 else stamps.hardware))
        pair.step(LONGER, QUIET)
        pair.clocks.step_ns[1] = 3e3
        pair.clocks.drift_ppb[1] += 20_000.0
        pair.tracker.forget()
        yield from reported(pair, [(there, QUIET)] * 2 + [(QUIET, QUIET)])


def stepped() -> Iterator[str]:
    """Between windows, inside one, and beside queues that make the prediction vague."""
    for step_ns in (900.0, 3e3, -10e6):
        pair = learned(Pair(6))
        pair.clocks.step_ns[1] = step_ns
        yield from reported(pair, [(QUIET, QUIET)] * 2)
    for step_ns, part in ((5e3, 0.5), (800.0, 0.5), (-50e3, 0.2), (10e6, 0.02), (2e3, 0.9)):
        for windows in (0, 3):
            pair = learned(Pair(7, stamps.kernel), windows)
            yield line(pair, pair.tracker.step(torn(pair, step_ns, part)))
    for seed, excess_ns in enumerate((2e3, 3.5e3, 6e3)):
        pair = learned(Pair(seed, stamps.kernel), 4)
        vague = Way(load=0.95, standing_ns=300e3)
        yield from reported(pair, [(vague, vague)] * 4)
        for _ in range(2):
            yield line(pair, pair.tracker.step(torn(pair, 40e3, 0.0, excess_ns)))
        yield from reported(pair, [(QUIET, QUIET)] * 2)


def torn(pair: Pair, step_ns: float, part: float, excess_ns: float = 0.0) -> Clouds:
    """A window in which the second clock stepped after that part of the probes."""
    pair.at_ns += WINDOW_NS
    span = (pair.at_ns - WINDOW_NS, pair.at_ns)
    samples = probe_pairs(pair.clocks, (0, 1), span, 200, (QUIET, QUIET), stamps.kernel)
    late = samples.fwd_tx >= np.quantile(samples.fwd_tx, part)
    return Clouds.of(
        samples._replace(
            fwd_rx=samples.fwd_rx + late * round(step_ns + excess_ns),
            rev_tx=samples.rev_tx + np.resize(late, len(samples.rev_tx)) * round(step_ns),
        )
    )


def unsteady() -> Iterator[str]:
    """Clocks that wander more than assumed, and that warm up."""
    for kind in (ClockKind(wander_ppb=80.0), ClockKind(ramp_ppb_per_s=300.0)):
        pair = Pair(9, stamps.exponential, kind=kind)
        yield from reported(pair, [(QUIET, QUIET)] * 4, WINDOW_NS // 2)
        yield from reported(pair, [(Way(0.3), QUIET)] * 6, WINDOW_NS)


def backwards() -> Iterator[str]:
    """The prober's clock was set back: everything starts over."""
    pair = learned(Pair(10))
    pair.clocks.step_ns[0] -= 60e9
    yield from reported(pair, [(QUIET, QUIET)] * 2)


def ramps() -> Iterator[str]:
    """Slopes of windows and how they bend, without a tracker."""
    for bend_ppb_per_s, noise_ns in ((400.0, 5.0), (40.0, 20.0), (4_000.0, 5.0), (0.0, 50.0)):
        rng = np.random.default_rng(11)
        seen, missed = DriftRamp(), Innovations()
        for window in range(9):
            clouds = bent(rng, window * 10**9, bend_ppb_per_s, noise_ns)
            slope = bend_ppb_per_s * 1e-18 * clouds.ref_ns
            seen.take(clouds, slope, (2 * noise_ns / clouds.span_ns / 10) ** 2)
            missed.take(noise_ns * window, 30.0**2)
            yield (
                f"seen={seen.seen * 1e18:.5g} ramp={seen.ramp * 1e18:.5g}"
                f" off={seen.line_error_ns(clouds.ref_ns + 10**9):.5g}"
                f" turn={seen.line_turn(clouds.ref_ns + 10**9) * 1e9:.5g} more={missed.factor:.5g}"
            )


def bent(rng: np.random.Generator, ref_ns: int, bend_ppb_per_s: float, noise_ns: float) -> Clouds:
    """Four seconds around an instant of a clock whose drift ramps; delays are exponential."""
    t = np.rint(rng.uniform(-2e9, 2e9, 120))
    side = np.where(np.arange(120) < 60, 1.0, -1.0)
    ramp = bend_ppb_per_s * 1e-18
    y = ramp * (t + ref_ns) ** 2 / 2 + side * (9_000 + rng.exponential(noise_ns, 120))
    return Clouds(ref_ns, 0, 4e9, t, y, side, np.zeros(120, dtype=np.intp), 60)


def detours() -> Iterator[str]:
    """Paths of which one is longer one way: who has a voice, who is right, who is forgotten."""
    rng = np.random.default_rng(12)
    paths = PathBalance()
    for window in range(90):
        there = {n: 5_000 + 400.0 * (n == 2) + rng.exponential(20.0) for n in range(4)}
        back = {n: 5_000 + rng.exponential(20.0) for n in range(5)}
        if window >= 20:
            there.pop(3)
        if window >= 86:
            there[3] = 9_000.0
        said = paths.take(there, back)
        if window % 3 == 0 or window > 78:
            yield (
                f"{said.paths} spread={said.spread_ns:.5g} by={said.correction_ns:.5g}"
                f" sigma={said.sigma_ns:.5g}"
            )


STORIES = (
    routes, standing, from_the_start, slight, sliding, drained, lost, stepped, unsteady, backwards,
    ramps, detours,
)  # fmt: skip
CASES: dict[str, Callable[[], Iterator[str]]] = {
    f"pair {story.__name__}": story for story in STORIES
}

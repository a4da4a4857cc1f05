import math

import numpy as np
import pytest
from bench.simulated import queues, stamps
from bench.simulated.clocks import ClockKind
from bench.simulated.fleet import QUIET, Way, probe_pairs
from numpy.typing import NDArray
from tests.clock.pairs import LONGER, STUCK, WINDOW_NS, Pair

from syntony.clock.floor_evidence import floor_evidence
from syntony.clock.samples import Clouds
from syntony.clock.tracker import WindowUse
from syntony.io.window_fit import fit_window
from syntony.model import S


@pytest.mark.parametrize("seed", range(4))
def test_a_moved_floor_is_learned_in_three_windows_and_moves_no_clock(seed: int) -> None:
    pair = Pair(seed)
    modes = pair.run([(QUIET, QUIET)] * 3 + [(LONGER, QUIET)] * 6)
    assert modes[:3] == [WindowUse.FIRST, WindowUse.BOTH, WindowUse.BOTH]
    assert modes[3:6] == [WindowUse.REVERSE, WindowUse.REVERSE, WindowUse.REBASED]
    assert set(modes[6:]) == {WindowUse.BOTH}


@pytest.mark.parametrize("seed", range(4))
def test_a_standing_queue_leaves_the_other_direction_to_speak(seed: int) -> None:
    pair = Pair(seed)
    modes = pair.run(
        [(QUIET, QUIET)] * 3 + [(STUCK, QUIET)] * 6 + [(QUIET, QUIET)] * 2 + [(QUIET, STUCK)] * 3
    )
    assert set(modes[3:9]) == {WindowUse.REVERSE}
    assert set(modes[9:11]) == {WindowUse.BOTH}
    assert set(modes[11:]) == {WindowUse.FORWARD}


@pytest.mark.parametrize("seed", range(4))
def test_a_lone_direction_that_wobbles_widens_sigma(seed: int) -> None:
    """Its floor comes and goes by more than its probes scatter: what it claims is not its worth."""
    sigmas = []
    for longer_ns in (0.0, 80.0):
        pair = Pair(seed)
        pair.run([(QUIET, QUIET)] * 4)
        wobbling = Way(floor_ns=QUIET.floor_ns + longer_ns)
        modes = pair.run([(STUCK, QUIET), (STUCK, wobbling)] * 5)
        assert set(modes) == {WindowUse.REVERSE}, f"seed {seed}"
        tracked = pair.step(STUCK, QUIET)
        assert tracked is not None
        sigmas.append(math.sqrt(tracked.theta_var))
    assert sigmas[1] > 1.5 * sigmas[0], f"seed {seed}: {sigmas}"


def test_queues_in_both_directions_are_held_over_with_a_growing_sigma() -> None:
    pair = Pair(1)
    pair.run([(QUIET, QUIET)] * 4)
    sigmas = []
    for _ in range(4):
        tracked = pair.step(STUCK, STUCK)
        assert tracked is not None
        assert tracked.mode is WindowUse.HELD
        sigmas.append(tracked.theta_var)
        assert abs(pair.error_ns(tracked)) < 300
    assert sigmas == sorted(sigmas)


@pytest.mark.parametrize("step_ns", [3e3, -50e3, 10e6, -3e9])
def test_a_step_between_windows_is_told_at_once(step_ns: float) -> None:
    pair = Pair(2)
    pair.run([(QUIET, QUIET)] * 3)
    pair.clocks.step_ns[1] = step_ns
    tracked = pair.step()
    assert tracked is not None
    assert tracked.mode is WindowUse.STEPPED
    assert abs(pair.error_ns(tracked)) < 40
    assert pair.run([(QUIET, QUIET)] * 2) == [WindowUse.BOTH] * 2


@pytest.mark.parametrize(
    ("step_ns", "part"),
    [(step_ns, part) for step_ns in (5e3, -50e3, 10e6) for part in (0.25, 0.5, 0.75)]
    + [(step_ns, part) for step_ns in (-10e6, 10e6) for part in (0.02, 0.98)],
)
def test_a_step_inside_a_window_gives_no_answer(step_ns: float, part: float) -> None:
    pair = Pair(3)
    pair.run([(QUIET, QUIET)] * 3)
    pair.at_ns += WINDOW_NS
    span = (pair.at_ns - WINDOW_NS, pair.at_ns)
    samples = probe_pairs(pair.clocks, (0, 1), span, 200, (QUIET, QUIET), stamps.hardware)
    late = samples.fwd_tx > np.quantile(samples.fwd_tx, part)
    shifted = samples._replace(
        fwd_rx=samples.fwd_rx + np.where(late, round(step_ns), 0),
        rev_tx=samples.rev_tx + np.where(late, round(step_ns), 0),
    )
    assert pair.tracker.step(Clouds.of(shifted)) is None


@pytest.mark.parametrize("seed", range(6))
def test_a_queue_in_one_direction_hides_the_drift_from_then_on(seed: int) -> None:
    """Of two directions that are used the one whose delays came down earlier counts."""
    pair = Pair(seed)
    pair.run([(QUIET, QUIET)] * 5)
    pair.at_ns += WINDOW_NS
    span = (pair.at_ns - WINDOW_NS, pair.at_ns)
    samples = probe_pairs(pair.clocks, (0, 1), span, 200, (QUIET, QUIET), stamps.hardware)
    queued = np.where(samples.fwd_tx > np.median(samples.fwd_tx), 3_000, 0)
    tracked = pair.tracker.step(Clouds.of(samples._replace(fwd_rx=samples.fwd_rx + queued)))
    assert tracked is not None
    assert tracked.mode is WindowUse.BOTH
    hidden_s = WINDOW_NS / 2 / S  # in which a heated crystal turns by 0.1 ppm/s
    assert 4 * math.sqrt(tracked.drift_var) > 0.8 * 1e-7 * hidden_s, f"seed {seed}"


def test_overlapping_windows_do_not_count_noise_twice() -> None:
    sliding, apart = Pair(4, stamps.kernel), Pair(4, stamps.kernel)
    for _ in range(5):
        every = apart.step()
    for _ in range(17):
        often = sliding.step(advance_ns=WINDOW_NS // 4)
    assert every is not None
    assert often is not None
    assert often.theta_var > 0.5 * every.theta_var


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("noise", [stamps.hardware, stamps.kernel])
def test_sigma_is_honest(seed: int, noise: stamps.StampNoise) -> None:
    pair = Pair(seed, noise)
    for _ in range(8):
        tracked = pair.step(Way(0.4), Way(0.4))
        assert tracked is not None
        assert abs(pair.error_ns(tracked)) < 5 * pair.sigma_ns(tracked)


@pytest.mark.parametrize("seed", range(2))
def test_variances_stay_variances_however_often_it_is_asked(seed: int) -> None:
    """An agent without fleet time asks several times within one window."""
    pair = Pair(seed)
    for turn in range(60):
        tracked = pair.step(STUCK if turn % 7 == 0 else QUIET, advance_ns=S // 50)
        assert tracked is None or min(tracked.theta_var, tracked.drift_var) > 0, f"seed {seed}"


FULL = Way(floor_ns=605e3)
"""A shaper's queue that stays full delays all probes alike, as a longer route does."""


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("left_ns", [450e3, 305e3, 80e3])
def test_a_full_queue_that_drains_a_little_moves_no_clock(seed: int, left_ns: float) -> None:
    """What was taken for a longer route gets shorter, but not to a floor never seen before: how the
    round trip is shared was known before it."""
    pair = Pair(seed, stamps.kernel)
    modes = pair.run([(QUIET, QUIET)] * 4 + [(FULL, QUIET)] * 6)
    assert WindowUse.REBASED in modes, "else this test is about nothing"
    draining = Way(load=0.9, floor_ns=left_ns)
    for there in (draining, draining, FULL, draining, QUIET, QUIET):
        tracked = pair.step(there, QUIET)
        assert tracked is not None
        assert abs(pair.error_ns(tracked)) < 1_500, (seed, there, tracked)
        assert abs(pair.error_ns(tracked)) < 5 * pair.sigma_ns(tracked), (seed, there, tracked)


@pytest.mark.parametrize("seed", range(3))
def test_a_floor_never_seen_before_is_shared_evenly(seed: int) -> None:
    """Also after a longer route: the first one of all was not the shortest there is."""
    pair = Pair(seed)
    longer = Way(floor_ns=15e3)
    modes = pair.run([(longer, longer)] * 3 + [(Way(floor_ns=40e3), longer)] * 6)
    assert WindowUse.REBASED in modes, "else this test is about nothing"
    pair.step()
    tracked = pair.step()
    assert tracked is not None
    assert abs(pair.error_ns(tracked)) < 200, (seed, tracked)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("step_ns", [700.0, 3e3, -19e3, 10e6])
@pytest.mark.parametrize("queued", [False, True])
def test_told_of_a_step_only_the_paths_are_remembered(
    seed: int, step_ns: float, queued: bool
) -> None:
    """Also of steps too small to be told from noise, and beside a queue in one direction, which is
    known from the floor."""
    pair = Pair(seed, stamps.kernel)
    pair.run([(QUIET, QUIET)] * 4)
    pair.clocks.step_ns[1] = step_ns
    pair.clocks.drift_ppb[1] += 20_000.0
    pair.tracker.forget()
    there = Way(load=0.3, floor_ns=65e3) if queued else QUIET
    tracked = pair.step(there, QUIET)
    assert tracked is not None
    assert tracked.mode is WindowUse.STEPPED
    assert abs(pair.error_ns(tracked)) < 5 * pair.sigma_ns(tracked), (seed, tracked)
    assert queued or pair.sigma_ns(tracked) < 1_500
    tracked = pair.step(QUIET, QUIET)
    assert tracked is not None
    assert abs(pair.error_ns(tracked)) < 300, (seed, tracked)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("off_ns", [-683e3, 40e3])
@pytest.mark.parametrize("excess_ns", [2e3, 3.5e3, 6e3, 20e3])
def test_one_window_whose_line_went_wrong_moves_no_clock(
    seed: int, off_ns: float, excess_ns: float
) -> None:
    """A queue can move the offset by half of what it adds to the round trip, not by more: beside a
    vague prediction, too, such a window contradicts itself."""
    pair = Pair(seed, stamps.kernel)
    pair.run([(QUIET, QUIET)] * 4)
    busy = Way(load=0.95, standing_ns=300e3)
    for _ in range(4):
        pair.step(busy, busy)
    pair.at_ns += WINDOW_NS
    span = (pair.at_ns - WINDOW_NS, pair.at_ns)
    samples = probe_pairs(pair.clocks, (0, 1), span, 200, (QUIET, QUIET), stamps.kernel)
    wrong = samples._replace(
        fwd_rx=samples.fwd_rx + round(off_ns + excess_ns), rev_rx=samples.rev_rx - round(off_ns)
    )
    tracked = pair.tracker.step(Clouds.of(wrong))
    if tracked is not None and tracked.mode is not WindowUse.STEPPED:
        assert abs(pair.error_ns(tracked)) < 5_000, (seed, tracked)
    for _ in range(3):
        tracked = pair.step()
    assert tracked is not None
    assert abs(pair.error_ns(tracked)) < 1_000, (seed, tracked)


@pytest.mark.parametrize("seed", range(6))
def test_doubt_of_a_floor_is_dropped_by_windows_with_probes_of_their_own(seed: int) -> None:
    """Two C-states spread delays almost evenly: one window alone does not show a floor."""
    pair, certain = Pair(seed, stamps.two_wakeups, pairs=64), False
    doubtful: list[float] = []
    for quarter in range(20):
        clouds = pair.window(advance_ns=WINDOW_NS // 4)
        fit = fit_window(clouds)
        certain |= floor_evidence(clouds, fit.line.slope, clustered=fit.floor_confirmed).certain
        tracked = pair.tracker.step(clouds)
        assert tracked is not None
        doubtful.append(pair.sigma_ns(tracked))
        if quarter < 3 and not certain:
            assert doubtful[-1] > 500, f"seed {seed}: windows that share probes confirmed it"
    assert doubtful[-1] < 200, f"seed {seed}: {np.round(doubtful)}"


def slow_queue(rng: np.random.Generator, fastest: float) -> Way:
    """A queue that grows from the eighth second on by 10 ns/s to `fastest`, and then stands."""
    rate, grows_s = 10 ** rng.uniform(1, math.log10(fastest)), rng.uniform(3, 20)
    print(f"{rate:.0f} ns/s for {grows_s:.1f} s")
    at_ns = np.array([0, 8, 8 + grows_s, 600]) * S
    depth_ns = rate * grows_s
    return Way(queue=queues.LevelTrace(at_ns, np.array([0, 0, depth_ns, depth_ns]), 600.0 * S))


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5])
def test_queues_that_grow_slowly_stay_within_four_sigmas(seed: int, *, both: bool) -> None:
    """Floors follow them, and half of what one direction gains goes into the offset. A second one
    in the other direction grows unnoticed beside the first."""
    rng = np.random.default_rng((seed, 41))
    ways = slow_queue(rng, 10_000), slow_queue(rng, 300) if both else QUIET
    if seed % 2:
        ways = ways[1], ways[0]
    pair = Pair(seed, stamps.kernel if seed % 3 == 2 else stamps.hardware)
    for second in range(36):
        tracked = pair.step(*ways, advance_ns=S if second else WINDOW_NS)
        if tracked is not None:
            assert abs(pair.error_ns(tracked)) < 4 * pair.sigma_ns(tracked) + 20, f"at {second}"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("there", [STUCK, QUIET])
def test_a_clock_heated_behind_queues_stays_within_four_sigmas(seed: int, there: Way) -> None:
    """Windows hold the prediction, or one direction rises, which may be a queue. The lone direction
    covers half of 0.1 ppm/s: its first probes are at the floor."""
    bend = 50 if there is STUCK else 25
    pair = Pair(seed, kind=ClockKind())
    pair.run([(QUIET, QUIET)] * 6)
    began_ns, straight = pair.at_ns, pair.clocks.read

    def heated(clock: int, true_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        since_s = np.maximum(true_ns - began_ns, 0) * 1e-9
        return straight(clock, true_ns) + np.rint(clock * bend * since_s**2).astype(np.int64)

    pair.clocks.read = heated  # type: ignore[method-assign]
    for window in range(2):
        tracked = pair.step(there, STUCK)
        assert tracked is not None
        if there is STUCK or window:
            assert abs(pair.error_ns(tracked)) < 4 * pair.sigma_ns(tracked), f"seed {seed}"

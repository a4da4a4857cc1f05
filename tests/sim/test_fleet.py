"""What a simulated pair meets on its way, and which way each regime gives it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from bench.simulated import queues, stamps
from bench.simulated.clocks import EPOCH_NS, STEADY, ClockKind, SimulatedClocks
from bench.simulated.fleet import QUIET, SimulatedFleet, Traffic, Way, probe_pairs
from bench.simulated.regimes import (
    LATE,
    REGIMES,
    Outcome,
    Regime,
    everywhere,
    hot,
    on_off_everywhere,
    one_pair,
    run,
    towards,
    uneven,
)
from msgspec import structs

from syntony.clock.samples import PairSamples
from syntony.model import ClockState, S

STILL = ClockKind(max_offset_ns=0.0, max_drift_ppb=0.0)
IDLE = Way(load=0.0, floor_ns=5_000.0)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def probed(there: Way, back: Way = IDLE, pairs: int = 400, seed: int = 2) -> PairSamples:
    clocks = SimulatedClocks(2, seed=seed, kind=STILL)
    span = (EPOCH_NS, EPOCH_NS + 2 * S)
    return probe_pairs(clocks, (0, 1), span, pairs, (there, back), stamps.exact)


def delays(samples: PairSamples) -> tuple[np.ndarray, np.ndarray]:
    return samples.fwd_rx - samples.fwd_tx, samples.rev_rx - samples.rev_tx


def test_an_idle_way_is_its_floor() -> None:
    samples = probed(IDLE, IDLE._replace(floor_ns=7_000.0))
    forward, reverse = delays(samples)
    assert set(forward.tolist()) == {5_000}
    assert set(reverse.tolist()) == {7_000}
    assert set((samples.rev_tx - samples.fwd_rx).tolist()) == {20_000}
    assert samples.fwd_path is samples.rev_path is None
    assert samples.fwd_tx.min() >= EPOCH_NS
    assert samples.rev_rx.max() < EPOCH_NS + 2 * S, "all come within the window"


def test_probes_are_sent_up_to_a_millisecond_before_the_window_ends() -> None:
    samples = probed(IDLE, pairs=40_000)
    left_ns = EPOCH_NS + 2 * S - samples.fwd_tx
    assert 990_000 <= left_ns.min() < 1_200_000
    assert left_ns.max() > 2 * S - 200_000


def test_probes_of_a_pair_leave_back_to_back() -> None:
    samples = probed(IDLE, pairs=50)
    assert samples.fwd_pair is not None
    for number in range(50):
        first, second = samples.fwd_tx[samples.fwd_pair == number].tolist()
        assert second - first == 10_000


def test_losses_are_those_of_their_own_direction() -> None:
    samples = probed(IDLE._replace(loss=0.3), IDLE._replace(loss=0.5), pairs=4_000)
    assert len(samples.fwd_tx) / 8_000 == pytest.approx(0.7, abs=0.02)
    assert len(samples.rev_tx) / 8_000 == pytest.approx(0.35, abs=0.02), (
        "no reply without a request"
    )


def test_detours_are_taken_in_turn_and_named() -> None:
    samples = probed(IDLE._replace(detours_ns=(0.0, 400.0, 1_500.0)))
    forward, reverse = delays(samples)
    assert samples.fwd_path is not None
    for path, extra in enumerate((0, 400, 1_500)):
        assert set(forward[samples.fwd_path == path].tolist()) == {5_000 + extra}
    assert set(reverse.tolist()) == {5_000}
    assert samples.rev_path is None


def test_a_hop_that_all_share_and_a_standing_buffer_add_their_wait() -> None:
    forward, _ = delays(probed(IDLE._replace(queue=queues.constant(3_000.0))))
    assert set(forward.tolist()) == {8_000}
    full, _ = delays(probed(IDLE._replace(standing_ns=600e3)))
    assert full.min() > 300_000
    assert full.max() <= 605_000


def test_loaded_hops_are_four_of_which_the_outer_ones_have_a_third_of_the_load() -> None:
    forward, reverse = delays(probed(Way(load=0.6), pairs=4_000))
    assert set(reverse.tolist()) == {5_000}
    # No queue at all: both inner hops (0.4 free each) and both outer ones (0.8 each).
    assert np.mean(forward == 5_000) == pytest.approx(0.4**2 * 0.8**2, abs=0.05)
    together, _ = delays(probed(Way(load=0.6, together=True), pairs=4_000))
    assert together.std() > 1.15 * forward.std()
    heavy, _ = delays(probed(Way(load=0.6, heavy=True), pairs=4_000))
    assert np.quantile(heavy, 0.99) > 1.5 * np.quantile(forward, 0.99)


def ways(traffic: Traffic, window: int, a: int, b: int) -> tuple[Way, Way]:
    found = traffic(window, a, b)
    assert found is not None
    return found


def test_regimes_give_each_direction_its_way() -> None:
    hard = Way(0.9)
    assert ways(everywhere(hard)(rng()), 0, 3, 4) == (hard, hard)
    assert ways(everywhere(hard, QUIET)(rng()), 0, 3, 4) == (hard, QUIET)
    to_two = towards(2, lambda _: hard, since=LATE)(rng())
    for window, a, b, expected in (
        (LATE, 1, 2, (hard, QUIET)), (LATE, 2, 1, (QUIET, hard)), (LATE, 0, 1, (QUIET, QUIET)),
        (LATE - 1, 1, 2, (QUIET, QUIET)),
    ):  # fmt: skip
        assert ways(to_two, window, a, b) == expected
    only = one_pair(hard)(rng())
    assert ways(only, 0, 0, 1) == (hard, QUIET)
    assert ways(only, 0, 1, 0) == ways(only, 0, 1, 2) == (QUIET, QUIET)


def test_a_hot_queue_is_one_and_on_off_is_one_for_each_direction() -> None:
    downlink = towards(2, hot(0.9))(rng())
    one, other = ways(downlink, 0, 0, 2)[0].queue, ways(downlink, 3, 1, 2)[0].queue
    assert one is not None
    assert one is other
    each = on_off_everywhere(rng())
    there, back = ways(each, 0, 0, 1)
    assert there.queue is not back.queue
    assert ways(each, 5, 1, 0) == (back, there)


def test_uneven_pairs_differ_by_half_to_all_of_the_limit_in_some_directions() -> None:
    traffic = uneven(200.0)(rng())
    extra = [
        way.floor_ns - QUIET.floor_ns
        for a in range(20) for b in range(20) if a != b
        for way in ways(traffic, 0, a, b)
    ]  # fmt: skip
    assert set(np.array(extra) > 0) == {True, False}
    assert all(each == 0 or 100 <= each <= 200 for each in extra)
    assert ways(traffic, 0, 3, 4)[0] == ways(traffic, 7, 4, 3)[1]


def test_a_fleet_without_queues_is_right_within_its_bounds_and_feels_a_cut() -> None:
    fleet = SimulatedFleet(seed=3, nodes=4, noise=stamps.hardware)
    quiet = everywhere(QUIET)(rng())
    for _ in range(4):
        readings = fleet.step(quiet)
    assert [each.line.node for each in readings] == ["n0", "n1", "n2", "n3"]
    assert all(abs(each.error_ns) <= each.bound_ns for each in readings)
    assert np.median([each.error_ns for each in readings]) == pytest.approx(0, abs=1)
    assert {each.line.state for each in readings} == {ClockState.SYNCHRONIZED}

    def cut(window: int, a: int, b: int) -> tuple[Way, Way] | None:
        return None if 3 in {a, b} else (QUIET, QUIET)

    for _ in range(8):
        readings = fleet.step(cut)
    assert readings[3].line.state is ClockState.HOLDOVER
    assert readings[0].line.state is ClockState.SYNCHRONIZED


def test_the_dead_are_not_probed_and_liars_add_to_every_stamp() -> None:
    fleet = SimulatedFleet(seed=3, nodes=3)
    fleet.dead = {0}
    quiet = everywhere(QUIET)(rng())
    assert fleet._edge((0, 1), EPOCH_NS, quiet) is None
    assert fleet._edge((1, 2), EPOCH_NS, quiet) is not None
    fleet.lies = {1: lambda peer: 1_000 * peer}
    honest = probed(IDLE)
    as_prober, as_peer = fleet._reported(honest, (1, 2)), fleet._reported(honest, (0, 1))
    assert (as_prober.fwd_tx - honest.fwd_tx == 2_000).all()
    assert (as_prober.rev_rx - honest.rev_rx == 2_000).all()
    assert (as_prober.fwd_rx == honest.fwd_rx).all()
    assert (as_peer.fwd_rx == honest.fwd_rx).all(), "to peer 0 it adds nothing"
    fleet.lies = {1: lambda _peer: 5}
    assert (fleet._reported(honest, (0, 1)).rev_tx - honest.rev_tx == 5).all()


def test_a_run_counts_what_every_clock_could_have_claimed() -> None:
    outcome = run(Regime(everywhere(QUIET), nodes=3, windows=2), stamps.hardware, 1)
    assert outcome.claims == 6
    assert 0 < len(outcome.readings) <= 6
    reading = outcome.readings[0]
    for error, broken in ((reading.bound_ns + 0.9, False), (-reading.bound_ns - 1.1, True)):
        changed = Outcome([reading._replace(error_ns=error)], [], 6)
        assert bool(changed.violations) is broken


NAMED = {
    "load": r"^load ([\d.]+)|^Pareto bursts ([\d.]+)|^four hops ([\d.]+)|several paths ([\d.]+)",
    "ramp_ppb_per_s": r"warming ([\d.]+) ppm/s",
    "swing_ppb": r"swing ([\d.]+) ppb",
    "swing_period_ns": r"swing .* in ([\d.]+) s",
    "wander_ppb": r"wander ([\d.]+) ppb",
}
SCALE = {"ramp_ppb_per_s": 1e3, "swing_period_ns": 1e9}


@pytest.mark.parametrize("name", REGIMES)
def test_a_regime_is_what_its_name_says(name: str) -> None:
    regime = REGIMES[name]
    there, back = ways(regime.traffic(rng()), regime.windows - 1, 0, 2)
    for setting, pattern in NAMED.items():
        if match := re.search(pattern, name):
            (reported,) = (float(group) for group in match.groups() if group)
            found = there.load if setting == "load" else getattr(regime.kind, setting)
            assert found == pytest.approx(reported * SCALE.get(setting, 1.0)), setting
        elif setting != "load":
            assert getattr(regime.kind, setting) == getattr(STEADY, setting), setting
    early, _ = ways(regime.traffic(rng()), 0, 0, 2)
    later = early is QUIET and there is not QUIET
    assert later == name.endswith("later"), "it changes while it is looked at"
    if "one way" in name or "one host" in name or "downlink" in name:
        assert back is QUIET
        assert there is not QUIET
    if "one pair" in name:
        assert there is back is QUIET
        assert ways(regime.traffic(rng()), 0, 0, 1)[0] is not QUIET
    if match := re.search(r"standing ([\d.]+) µs", name):
        way, _ = ways(regime.traffic(rng()), 0, 0, 1 if "pair" in name else 2)
        assert way.queue is not None
        assert way.queue.wait_ns(np.zeros(1)).tolist() == [1e3 * float(match[1])]
    if match := re.search(r"hot downlink ([\d.]+)", name):
        assert there.queue is not None
        waits = there.queue.wait_ns(np.random.default_rng(1).uniform(0, 8e9, 20_000))
        assert np.mean(waits > 0) == pytest.approx(float(match[1]), abs=0.03)
    if match := re.search(r"(\d+) clocks", name):
        assert regime.nodes == int(match[1])


@pytest.mark.parametrize("seed", range(3))
def test_pairs_are_judged_by_what_their_clocks_read(seed: int) -> None:
    """Moved by a known amount, each edge is wrong by that much, within bounds that stay."""
    fleet = SimulatedFleet(seed=seed, nodes=3, noise=stamps.exact)
    for _ in range(3):
        fleet.step(everywhere(QUIET)(np.random.default_rng(seed)))
    honest = fleet.pair_readings()
    assert len(honest) == len(fleet.edges) == 6
    assert max(abs(each.error_ns) for each in honest) < 5, f"seed {seed}"
    assert all(abs(each.error_ns) < each.bound_ns for each in honest), f"seed {seed}"
    fleet.edges = [
        structs.replace(
            edge, theta_ns=edge.theta_ns + 700, sigma_ns=30, doubt_ns=40, drift_sigma_ppb=0
        )
        for edge in fleet.edges
    ]
    for before, after in zip(honest, fleet.pair_readings(), strict=True):
        assert after.error_ns == pytest.approx(before.error_ns + 700, abs=1)
        assert after.bound_ns == pytest.approx(4 * 50)


def test_only_a_hidden_longer_path_is_invisible() -> None:
    assert {name for name, regime in REGIMES.items() if not regime.visible} == {
        "standing 5 µs, one host"
    }

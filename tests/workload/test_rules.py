"""What tells a class from what looks like it: each case with a neighbour on the other side."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.workload.made import MS, T0, Columns, bundle
from tests.workload.test_exceptions import MESH, NICS, WINDOWS, ring, star

from syntony.model.names import host_of
from syntony.workload.classes import (
    clock_fault,
    contention,
    host_jitter,
    slow_flow,
    slow_receiver,
    straggler,
)
from syntony.workload.facts import BundleFacts
from syntony.workload.grid import episodes, significant_episodes

US = 1_000.0
AFTER = 15


def mesh(**columns: np.ndarray) -> Columns:
    """Flows of a star whose delays are 4 µs, give or take 2 %."""
    made = star(MESH)
    rng = np.random.default_rng(3)
    made["flows"]["owd_p50_ns"] = 4 * US * rng.normal(1, 0.02, WINDOWS * len(MESH))
    made["flows"] |= columns
    return made


def of_flow(values: np.ndarray, flow: int, begin: int = AFTER) -> np.ndarray:
    """A view of one flow's windows since `begin`."""
    return values.reshape(WINDOWS, len(MESH))[begin:, flow]


@pytest.mark.parametrize(
    ("times", "rate", "begin", "named"),
    [
        (23.0, 1.0, AFTER, True),  # 94 µs among 4 µs, in a ring in which all go at its pace
        (23.0, 0.3, AFTER, True),
        (4.5, 0.3, AFTER, True),  # slow as well
        (4.5, 1.0, AFTER, False),  # it costs nothing: bursts of the job's own
        (4.5, None, AFTER, False),
        (23.0, None, AFTER, True),
        (8.0, 1.0, AFTER, True),
        (8.0, 1.0, 0, False),  # always so: it may be how the job is placed
        (23.0, 1.0, 0, True),
    ],
)
def test_a_short_delay_of_a_flow_that_keeps_pace_is_no_fault(
    times: float, rate: float | None, begin: int, named: bool
) -> None:
    made = mesh()
    of_flow(made["flows"]["owd_p50_ns"], 7, begin)[:] *= times
    if rate is not None:
        made["flows"]["rate_bps"] = np.full(WINDOWS * len(MESH), 1e10)
        of_flow(made["flows"]["rate_bps"], 7, begin)[:] *= rate
    found = slow_flow.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([("qp7",)] if named else [])


@pytest.mark.parametrize("little", [3.0, 12.0, 24.0])
def test_a_slow_flow_stands_out_of_what_others_and_it_itself_wait_a_little(little: float) -> None:
    """Half of the flows elsewhere wait for `little` times as long as usual, now and then from the
    start, and so does the one that is slow later on, for 60 times as long."""
    made = mesh()
    delays = made["flows"]["owd_p50_ns"]
    elsewhere = [flow for flow, (src, dst) in enumerate(MESH)
                 if src != MESH[7][0] and dst != MESH[7][1]]  # fmt: skip
    for flow in elsewhere[::2]:
        of_flow(delays, flow, 0)[np.arange(WINDOWS) % 5 < 3] *= little
    of_flow(delays, 7, 0)[np.arange(WINDOWS) % 5 < 3] *= 3
    of_flow(delays, 7)[:] = 60 * 4 * US
    found = slow_flow.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == [("qp7",)]
    assert all(each.onset_ns == T0 + AFTER * 100 * MS for each in found)


@pytest.mark.parametrize(("least", "named"), [(20.0, True), (4.0, False)])
def test_a_queue_that_drains_now_and_then_is_no_slow_flow(least: float, named: bool) -> None:
    made = mesh()
    delays = of_flow(made["flows"]["owd_p50_ns"], 7)
    delays[:] *= np.where(np.arange(len(delays)) % 5, 30.0, least)
    found = slow_flow.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([("qp7",)] if named else [])


@pytest.mark.parametrize(
    ("hosts", "away_us", "named"), [(0, 2e3, 0), (1, 2e3, 1), (3, 2e3, 3), (4, 2e3, 0), (1, 280, 0)]
)
@pytest.mark.parametrize("starved", [False, True])
def test_pollers_that_are_away_here_and_there_are_a_fleet_short_of_cpu(
    hosts: int, away_us: float, named: int, starved: bool
) -> None:
    made = mesh()
    flows = made["flows"]
    jittery = {f"h{3 * each}" for each in range(hosts)}
    ends = [{host_of(src), host_of(dst)} & jittery
            for src, dst in zip(flows["src"], flows["dst"], strict=True)]  # fmt: skip
    late = flows["at_ns"] >= T0 + AFTER * 100 * MS
    flows["poll_gap_ns"] = np.where(
        np.array([bool(each) for each in ends]) & late, away_us * US, 1e5
    )
    flows["poll_gap_ns"][late & (flows["at_ns"] // MS % 500 < 300)] *= 1.2
    at = np.repeat(np.arange(WINDOWS), 12)
    made["hosts"] = {
        "host": [f"h{each}" for each in range(12)] * WINDOWS, "at_ns": T0 + at * 100 * MS,
        "window_ns": np.full(len(at), 100 * MS),
        "runq_ns": np.full(len(at), (20.0 if starved else 0.1) * MS),
    }  # fmt: skip
    found = host_jitter.find(BundleFacts(bundle(made)))
    assert len(found) == (0 if starved else named)
    assert {each.subjects[0] for each in found} <= jittery


@pytest.mark.parametrize(("elsewhere", "named"), [(0.4, False), (0.1, True)])
def test_a_host_whose_pollers_are_away_little_more_often_than_others_does_not_stand_out(
    elsewhere: float, named: bool
) -> None:
    """Its pollers are away for long in six of ten windows, others in so many."""
    made = mesh()
    rng = np.random.default_rng(3)
    flows = made["flows"]
    own = np.array(["h4" in {host_of(src), host_of(dst)}
                    for src, dst in zip(flows["src"], flows["dst"], strict=True)])  # fmt: skip
    away = np.where(own, flows["at_ns"] // (100 * MS) % 10 < 6, rng.random(len(own)) < elsewhere)
    flows["poll_gap_ns"] = np.where(away, 3e6, 1e5)
    found = host_jitter.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == [("h4",)] * named


def receivers(blocked: float, held: int, consume: float | None, peers: int = 2) -> Columns:
    """Flows to rank 3 that wait for its credit, `held` of four, from window 15 on; communicators
    of so many ranks."""
    made = star([(f"h{each}/n", f"h{(each + step) % 8}/n") for each in range(8)
                 for step in (1, 2, 3, 4)])  # fmt: skip
    flows = made["flows"]
    flows["rank"] = np.array([int(each[1]) for each in flows["src"]], float)
    flows["peer_rank"] = np.array([int(each[1]) for each in flows["dst"]], float)
    late = flows["at_ns"] >= T0 + AFTER * 100 * MS
    far = (flows["peer_rank"] - flows["rank"]) % 8
    hit = (flows["peer_rank"] == 3) & (far <= held) & late
    flows["credit_blocked_ns"] = np.where(hit, blocked * 100 * MS, 0.003 * 100 * MS)
    rank, step = np.tile(np.arange(8), WINDOWS), np.repeat(np.arange(WINDOWS), 8)
    made["collectives"] = {
        "comm": [f"stage{each // peers}" for each in rank], "op": ["all_reduce"] * len(rank),
        "seq": step, "rank": rank, "host": [f"h{each}" for each in rank],
        "enqueue_ns": T0 + step * 100 * MS, "done_ns": T0 + step * 100 * MS + 10 * MS,
    }  # fmt: skip
    if consume is not None:
        slow = (rank == 3) & (step >= AFTER)
        made["collectives"]["consume_wait_ns"] = np.where(slow, consume, 1.0) * MS
    return made


@pytest.mark.parametrize(
    ("blocked", "held", "consume", "named"),
    [
        (0.04, 4, 8.0, True),  # little of a window, but of all flows and ten times as much
        (0.015, 4, 8.0, False),
        (0.04, 4, None, True),
        (0.04, 2, None, False),
        (0.04, 2, 8.0, True),  # of two flows in four, and its GPU does consume late
        (0.04, 1, 8.0, False),
        (0.04, 4, 1.0, False),
    ],
)
@pytest.mark.parametrize("peers", [2, 8])
def test_a_receiver_is_slow_where_its_senders_wait_and_its_gpu_is_late(
    blocked: float, held: int, consume: float | None, named: bool, peers: int
) -> None:
    found = slow_receiver.find(BundleFacts(bundle(receivers(blocked, held, consume, peers))))
    assert [each.subjects for each in found] == ([("rank 3",)] if named else [])


@pytest.mark.parametrize(("turns", "named"), [(1, True), (2, True), (3, True)])
def test_a_clock_is_judged_where_both_directions_send_in_turns(turns: int, named: bool) -> None:
    made = mesh()
    pairs = [*MESH, *((dst, src) for src, dst in MESH)]
    made = star(pairs)
    flows = made["flows"]
    rng = np.random.default_rng(5)
    delay = 4 * US * rng.normal(1, 0.02, WINDOWS * len(pairs))
    late = flows["at_ns"] >= T0 + AFTER * 100 * MS
    delay += np.where(late & (np.array(flows["dst"]) == "h5/n"), 200 * US, 0)
    delay -= np.where(late & (np.array(flows["src"]) == "h5/n"), 200 * US, 0)
    window = np.repeat(np.arange(WINDOWS), len(pairs))
    back = np.tile(np.arange(len(pairs)) >= len(MESH), WINDOWS)
    flows["owd_p50_ns"] = np.where((window + back) % turns == 0, delay, np.nan)
    found = clock_fault.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([("h5/n",)] if named else [])
    onsets = [(each.onset_ns - T0) / (100 * MS) for each in found]
    assert onsets == pytest.approx([AFTER], abs=turns)


@pytest.mark.parametrize(("steps", "named"), [(2, False), (3, True)])
def test_operations_of_one_step_are_one_time_that_a_rank_is_late(steps: int, named: bool) -> None:
    """Four operations a step; a rank late in all of those of so many steps."""
    made = ring((), ends=True, compute="")
    ops = made["collectives"]
    seq, rank = ops["seq"], ops["rank"]
    step, part = seq // 4, seq % 4
    begin = T0 + step * 800 * MS + part * 20 * MS
    rng = np.random.default_rng(9)
    behind = (rank == 5) & (step >= 4) & (step < 4 + steps)
    ops["enqueue_ns"] = begin + (5 * MS * rng.normal(1, 0.01, len(rank))).astype(int)
    ops["enqueue_ns"] = ops["enqueue_ns"] + np.where(behind, 100 * MS, 0)
    worst = np.maximum.reduceat(ops["enqueue_ns"], np.arange(0, len(rank), 12))
    ops["done_ns"] = np.repeat(worst, 12) + 2 * MS
    made["steps"] = {
        "step": step[part == 0], "rank": rank[part == 0],
        "begin_ns": T0 + step[part == 0] * 800 * MS,
        "end_ns": T0 + step[part == 0] * 800 * MS + 790 * MS,
    }  # fmt: skip
    found = straggler.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([("rank 5",)] if named else [])


@pytest.mark.parametrize(
    ("times", "rate", "sure"),
    [(4.0, 1.0, True), (2.5, 0.5, True), (2.5, 1.0, False), (2.5, None, None), (4.0, None, True)],
)
def test_a_link_that_makes_packets_wait_a_little_and_slows_nothing_is_not_to_blame(
    times: float, rate: float | None, sure: bool | None
) -> None:
    """Four flows cross a link inside the fabric."""
    made = mesh()
    flows = made["flows"]
    across = [flow for flow, (src, dst) in enumerate(MESH) if src in NICS[:2] and dst in NICS[2:5]]
    flows["hops"] = [
        (path[0], "up", path[1]) if place % len(MESH) in across else path
        for place, path in enumerate(flows["hops"])
    ]
    flows["rate_bps"] = np.full(WINDOWS * len(MESH), np.nan if rate is None else 1e10)
    for flow in across:
        of_flow(flows["owd_p50_ns"], flow)[:] *= times
        of_flow(flows["rate_bps"], flow)[:] *= rate or 1.0
    (found,) = contention.find(BundleFacts(bundle(made)))
    assert found.subjects == ("up",)
    assert found.confidence == pytest.approx(
        0.98 * 0.9 * {True: 1.0, None: 0.9, False: 0.5}[sure], abs=1e-3
    )


def test_a_link_crossed_by_many_slightly_late_flows_hides_none_crossed_by_few_very_late_ones() -> (
    None
):
    """Ten flows wait 10 µs on one link; of three that wait 200 µs on another, two cross both."""
    made = mesh()
    flows = made["flows"]
    slight = {*range(4, 14)}
    severe = {12, 13, 40}
    flows["hops"] = [
        (path[0], *["slight"] * (place % len(MESH) in slight),
         *["severe"] * (place % len(MESH) in severe), path[1])
        for place, path in enumerate(flows["hops"])
    ]  # fmt: skip
    for flow in slight | severe:
        of_flow(flows["owd_p50_ns"], flow)[:] += (200 if flow in severe else 10) * US
    found = {
        link: each.flows for each in BundleFacts(bundle(made)).late_hops for link in each.links
    }
    assert found["severe"] == severe
    assert found["slight"] >= slight - severe


@pytest.mark.parametrize(("times", "named"), [(40.0, True), (3.5, False)])
def test_three_long_delays_are_no_accident_among_many_short_ones(times: float, named: bool) -> None:
    """A twentieth of all windows of all flows is 3 to 8 times as long as usual, by chance."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw, made = np.random.default_rng(seed), mesh()
    delays = made["flows"]["owd_p50_ns"]
    usual = delays.copy()
    while True:  # where no flow has three of five of them
        delays[:] = usual * np.where(
            draw.random(len(delays)) < 0.05, draw.uniform(3, 8, len(delays)), 1.0)  # fmt: skip
        of_flow(delays, 7, WINDOWS - 8)[:] = of_flow(usual, 7, WINDOWS - 8)
        facts = BundleFacts(bundle(made))
        assert facts.flows is not None
        if not episodes(facts.flows.waiting, np.isfinite(facts.flows.delay)):
            break
    of_flow(delays, 7, WINDOWS - 3)[:] *= times
    flows = BundleFacts(bundle(made)).flows
    assert flows is not None
    assert list(episodes(flows.waiting, np.isfinite(flows.delay))) == [7]
    assert list(flows.late) == ([7] if named else [])


def test_the_largest_of_many_outliers_are_named_only_where_they_are_together() -> None:
    """Foreign: sizes are drawn with a heavy tail, all over; an episode of the same is chance."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = np.random.default_rng(seed)
    named = 0
    for _ in range(200):
        size = draw.pareto(1.5, (24, 60))
        bad, valid = size > np.quantile(size, 0.93), np.ones(size.shape, bool)
        named += len(significant_episodes(bad, valid, size))
    assert named <= 3

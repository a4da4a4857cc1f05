"""What chance, a job's start and its placement do names nothing (docs/decisions/0287)."""

from __future__ import annotations

import numpy as np
import pytest
from tests.workload.made import MS, T0, Columns, bundle
from tests.workload.test_exceptions import MESH, NICS, WINDOWS, star
from tests.workload.test_rules import AFTER, mesh, of_flow, receivers

from syntony.workload.classes import (
    bad_link,
    contention,
    incast,
    reduced_capacity,
    slow_flow,
    slow_receiver,
    straggler,
)
from syntony.workload.facts import BundleFacts

MOVED = 10
"""Window in which flows are moved."""


@pytest.mark.parametrize(
    ("scatter", "rate", "dead", "named"),
    [
        (0.12, 0.88, False, False),  # as much as medians of so few windows differ by
        (0.01, 0.88, False, True),
        (0.12, 0.5, False, True),
        (0.12, 0.88, True, True),  # the part that they left has no carrier
        (0.01, 0.95, False, False),
    ],
)
def test_less_capacity_is_less_by_more_than_rates_scatter(
    scatter: float, rate: float, dead: bool, named: bool
) -> None:
    made = mesh()
    flows = made["flows"]
    # Three values in turns: their median and their median deviation are known.
    around = np.tile([1.0, 1 - scatter, 1 + scatter], WINDOWS)[:WINDOWS]
    flows["rate_bps"] = 1e10 * np.repeat(around, len(MESH))
    of_flow(flows["rate_bps"], 7, MOVED)[:] *= rate
    flows["hops"] = [
        (path[0], f"via{place // len(MESH) >= MOVED}", path[1])
        if place % len(MESH) == 7 else path for place, path in enumerate(flows["hops"])
    ]  # fmt: skip
    links = made["links"]
    links["link"] = [*links["link"], "viaFalse"]
    links["at_ns"] = np.append(links["at_ns"], T0 + (WINDOWS - 1) * 100 * MS)
    links["window_ns"] = np.append(links["window_ns"], 100 * MS)
    links["up"] = np.append(np.ones(len(links["at_ns"]) - 1), not dead)
    found = reduced_capacity.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([("viaFalse",)] if named else [])


@pytest.mark.parametrize(
    ("times", "begin", "use", "sure"),
    [
        (6.0, AFTER, None, True),
        (6.0, 0, None, False),
        (6.0, 0, 0.97, True),  # the link is full
        (6.0, 0, 0.5, False),
        (30.0, 0, None, True),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_flows_that_have_always_waited_a_little_share_a_link_by_placement(
    times: float, begin: int, use: float | None, sure: bool, inside: bool
) -> None:
    made = mesh()
    flows = made["flows"]
    if inside:
        link = "up"
        across = [flow for flow, (src, dst) in enumerate(MESH)
                  if src in NICS[:2] and dst in NICS[2:5]]  # fmt: skip
        flows["hops"] = [
            (path[0], link if place % len(MESH) in across else f"up{place % len(MESH)}", path[1])
            for place, path in enumerate(flows["hops"])
        ]
    else:
        link = f"sw->{NICS[5]}"
        across = [flow for flow, (_, dst) in enumerate(MESH) if dst == NICS[5]]
    for flow in across:
        of_flow(flows["owd_p50_ns"], flow, begin)[:] *= times
    if use is not None:
        rows = WINDOWS * ["up"] if inside else []
        links = made["links"]
        links["link"] = [*links["link"], *rows]
        links["at_ns"] = np.append(links["at_ns"], T0 + np.arange(len(rows)) * 100 * MS)
        links["window_ns"] = np.full(len(links["at_ns"]), 100 * MS)
        links["utilisation"] = np.array([use if each == link else 0.1 for each in links["link"]])
    rule = contention if inside else incast
    (found,) = rule.find(BundleFacts(bundle(made)))
    assert found.subjects == ((link,) if inside else (NICS[5],))
    assert (found.confidence >= 0.5) == sure


@pytest.mark.parametrize(("first", "lossy"), [(0, False), (2, False), (3, True), (20, True)])
def test_packets_lost_in_the_first_five_windows_are_the_jobs_start(first: int, lossy: bool) -> None:
    made = mesh()
    made["flows"]["retransmits"] = np.zeros(WINDOWS * len(MESH))
    of_flow(made["flows"]["retransmits"], 7, first)[:3] = 40
    flows = BundleFacts(bundle(made)).flows
    assert flows is not None
    assert (7 in flows.lossy) == lossy


@pytest.mark.parametrize(("others", "named"), [(2, True), (3, False)])
def test_a_slow_flow_is_none_among_others_that_wait_as_long(others: int, named: bool) -> None:
    """These drain now and then, and are no slow flows by themselves."""
    made = mesh()
    delays = made["flows"]["owd_p50_ns"]
    made["flows"]["rate_bps"] = np.full(WINDOWS * len(MESH), 1e10)
    of_flow(delays, 7)[:] *= 20
    of_flow(made["flows"]["rate_bps"], 7)[:] *= 0.3
    apart = [flow for flow, (src, dst) in enumerate(MESH)
             if src != MESH[7][0] and dst != MESH[7][1]]  # fmt: skip
    taken: list[int] = []
    for flow in apart:  # no link is common to two of them
        ends = {end for each in taken for end in MESH[each]}
        if len(taken) < others and not ends & set(MESH[flow]):
            taken.append(flow)
            of_flow(delays, flow)[np.arange(WINDOWS - AFTER) % 5 < 4] *= 19
    assert len(taken) == others
    found = slow_flow.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([("qp7",)] if named else [])


@pytest.mark.parametrize(
    ("others", "begin", "speed", "named"),
    [
        (2, 0, 1.0, True), (3, 0, 1.0, False), (3, AFTER, 1.0, True),
        (2, 0, 0.5, False), (2, 0, np.nan, False), (2, AFTER, np.nan, True),
    ],
)  # fmt: skip
def test_a_flow_with_a_low_rate_is_none_among_others_as_slow(
    others: int, begin: int, speed: float, named: bool
) -> None:
    """Flow 7 has channels beside it that are faster; others, as slow as it, have always been so. If
    it has as well, its port may be slower, as far as is known."""
    pairs = [("h0/n", f"h1/n{each}") for each in range(8)]
    pairs += [(f"h{each}/n", f"h{each + 1}/n") for each in range(10, 22)]
    made = star(pairs)
    rates = np.full((WINDOWS, len(pairs)), 1e10)
    rates[begin:, 7] *= 0.5
    rates[:, 8 : 8 + others] *= 0.5
    made["flows"]["rate_bps"] = rates.reshape(-1)
    with_ports(made, speed)
    found = slow_flow.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([("qp7",)] if named else [])


def with_ports(made: Columns, slower: float = 1.0) -> None:
    """Speeds of ports; that of flow 7 has so much of the others'."""
    links = made["links"]["link"]
    made["links"]["speed_bps"] = np.array(
        [4e10 * (slower if str(each).endswith("h1/n7") else 1.0) for each in links]
    )


@pytest.mark.parametrize(
    ("before", "named"),
    [
        (0.65, False),  # the scatter of a channel that is always a little slower
        (0.9, True),
        (None, True),  # its rate before is not known
    ],
)
def test_windows_in_which_a_channel_lags_as_before_are_no_slow_flow(
    before: float | None, named: bool
) -> None:
    """Flow 7 has 0.55 of its siblings' rate in windows 20 to 25, after that 0.65."""
    pairs = [("h0/n", f"h1/n{each}") for each in range(8)]
    pairs += [(f"h{each}/n", f"h{each + 1}/n") for each in range(10, 22)]
    made = star(pairs)
    rates = np.full((WINDOWS, len(pairs)), 1e10)
    rates[:20, 7] *= np.nan if before is None else before
    rates[20:26, 7] *= 0.55
    rates[26:, 7] *= 0.65
    made["flows"]["rate_bps"] = rates.reshape(-1)
    with_ports(made)
    found = slow_flow.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([("qp7",)] if named else [])


@pytest.mark.parametrize(
    ("late", "level", "named"),
    [(1, 0.04, True), (3, 0.04, True), (4, 0.04, False), (1, 0.025, False)],
)
def test_receivers_that_are_waited_for_as_others_are_not_slow(
    late: int, level: float, named: bool
) -> None:
    """Senders wait for the credit of all ranks now and then, 2 % of the time in all."""
    made = receivers(0.003, 4, None, peers=2)
    flows = made["flows"]
    since = flows["at_ns"] >= T0 + AFTER * 100 * MS
    window = (flows["at_ns"] - T0) // (100 * MS)
    now_and_then = np.where(window % 5 == 0, 0.085, 0.003)
    hit = (flows["peer_rank"] < late) & since
    flows["credit_blocked_ns"] = np.where(hit, level, now_and_then) * 100 * MS
    found = slow_receiver.find(BundleFacts(bundle(made)))
    wanted = [(f"rank {each}",) for each in range(late)] if named else []
    assert [each.subjects for each in found] == wanted


def groups(narrow: int, late_ns: int, *, work: float = 0.0) -> Columns:
    """Eight communicators of four ranks each; in `narrow` of them all ranks take 50 ms, in others
    40 to 60 ms. The last rank of the first one comes late, with so much more work than its peers,
    while ranks of the others have half as much more than these."""
    steps, ranks = np.repeat(np.arange(WINDOWS), 32), np.tile(np.arange(32), WINDOWS)
    group, place = ranks // 4, ranks % 4
    own = np.where(group < narrow, 50, 40 + 20 / 3 * place) * MS
    own = own + np.where(ranks == 3, late_ns, 0)
    enqueue = T0 + steps * 200 * MS + own.astype(np.int64)
    made: Columns = {"collectives": {
        "comm": [f"c{each}" for each in group], "op": ["all_reduce"] * len(steps), "seq": steps,
        "rank": ranks, "host": [f"h{each}" for each in group], "enqueue_ns": enqueue,
        "done_ns": T0 + (steps + 1) * 200 * MS,
    }}  # fmt: skip
    if work:
        made["steps"] = {
            "step": steps, "rank": ranks, "begin_ns": T0 + steps * 200 * MS,
            "end_ns": T0 + steps * 200 * MS + 199 * MS,
            "work": np.where(ranks == 3, 1 + work, np.where(group == 0, 1.0, 1 + work)),
        }  # fmt: skip
    return made


@pytest.mark.parametrize(("narrow", "named"), [(8, True), (1, False)])
def test_few_ranks_that_are_alike_by_chance_make_no_straggler_of_one(
    narrow: int, named: bool
) -> None:
    found = straggler.find(BundleFacts(bundle(groups(narrow, 18 * MS))))
    assert [each.subjects for each in found] == ([("rank 3",)] if named else [])


def test_work_is_compared_with_that_of_a_ranks_peers() -> None:
    """Half as much more than its peers, and as much as all others have."""
    late = groups(8, 25 * MS)
    assert [each.subjects for each in straggler.find(BundleFacts(bundle(late)))] == [("rank 3",)]
    assert straggler.find(BundleFacts(bundle(groups(8, 25 * MS, work=0.5)))) == []


def test_half_an_episode_of_a_flow_is_its_worst_part_and_less_is_not() -> None:
    """It waits all the time, and far longer in so many windows at the end."""
    for windows, begin in ((21, 19), (20, 0)):
        made = mesh()
        delays = of_flow(made["flows"]["owd_p50_ns"], 7, 0)
        delays[:] *= 3
        delays[WINDOWS - windows :] *= 100
        flows = BundleFacts(bundle(made)).flows
        assert flows is not None
        assert (flows.late[7].first, flows.late[7].last) == (0, WINDOWS - 1)
        worst = slow_flow._worst_part(flows, 7)
        assert (worst.first, worst.last) == (begin, WINDOWS - 1)


def test_a_receivers_window_that_a_slow_flow_waits_for_is_an_alternative() -> None:
    """One flow to a receiver does not prove that the receiver is slow."""
    for blocked, others, excluded in ((0.6, 0.0, False), (0.6, 0.5, True), (0.0, 0.0, True)):
        made = mesh()
        of_flow(made["flows"]["owd_p50_ns"], 7)[:] *= 23
        made["flows"]["credit_blocked_ns"] = np.full(WINDOWS * len(MESH), others * 100 * MS)
        of_flow(made["flows"]["credit_blocked_ns"], 7)[:] = blocked * 100 * MS
        (found,) = slow_flow.find(BundleFacts(bundle(made)))
        (rival,) = (each for each in found.alternatives if each.fault == "slow-receiver")
        assert rival.excluded == excluded, rival
    (found,) = slow_flow.find(BundleFacts(bundle(_without(made, "credit_blocked_ns"))))
    (rival,) = (each for each in found.alternatives if each.fault == "slow-receiver")
    assert (rival.excluded, rival.reason) == (False, "not checked: credit_blocked_ns not recorded")


def _without(made: Columns, column: str) -> Columns:
    return made | {"flows": {name: each for name, each in made["flows"].items() if name != column}}


@pytest.mark.parametrize(("between", "named"), [(1.0, True), (3.0, False)])
def test_a_flow_that_is_as_much_faster_between_is_not_slow(between: float, named: bool) -> None:
    """Its expert is asked for every second window only."""
    made = mesh()
    flows = made["flows"]
    flows["rate_bps"] = np.full(WINDOWS * len(MESH), 1e10)
    flows["bytes"] = np.full(WINDOWS * len(MESH), 1e8)
    slow = np.arange(WINDOWS - AFTER) % 5 < 3
    of_flow(flows["rate_bps"], 7)[:] *= np.where(slow, 0.4, 0.4 * between)
    if between > 1:
        of_flow(flows["rate_bps"], 7)[~slow] *= 3
    found = slow_flow.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([("qp7",)] if named else [])


@pytest.mark.parametrize(
    ("waits", "errors", "named"),
    [(3.0, 0.0, False), (3.0, 50.0, True), (1.0, 0.0, True)],
)
def test_a_link_without_errors_whose_flows_wait_has_a_queue_that_overflows(
    waits: float, errors: float, named: bool
) -> None:
    """Bursts fill it, which its mean use does not show."""
    made = mesh()
    flows = made["flows"]
    flows["retransmits"] = np.zeros(WINDOWS * len(MESH))
    for flow in [flow for flow, (src, _) in enumerate(MESH) if src == NICS[5]]:
        of_flow(flows["retransmits"], flow)[:] = 20
        of_flow(flows["owd_p50_ns"], flow)[:] *= waits
    windows = np.repeat(np.arange(WINDOWS), len(NICS))
    links = [f"{nic}->sw" for nic in NICS] * WINDOWS
    own = np.array([link == f"{NICS[5]}->sw" for link in links])
    made["links"] = {
        "link": links, "at_ns": T0 + windows * 100 * MS,
        "window_ns": np.full(len(links), 100 * MS),
        "symbol_errors": np.where(own & (windows >= AFTER), errors, 0.0),
        "utilisation": np.full(len(links), 0.2),
    }  # fmt: skip
    found = bad_link.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([(f"{NICS[5]}->sw",)] if named else [])


@pytest.mark.parametrize(
    ("every", "shift", "downs", "named"),
    [
        (7, 0, False, 0),
        (3, 0, False, 0),
        (7, 2, False, 2),  # not at the same times
        (1, 0, False, 2),  # all the time
        (7, 0, True, 2),  # its carrier is known not to be lost
    ],
)
def test_a_nic_that_loses_both_ways_at_the_same_few_times_may_have_lost_its_carrier(
    every: int, shift: int, downs: bool, named: int
) -> None:
    made = mesh()
    flows = made["flows"]
    flows["retransmits"] = np.zeros(WINDOWS * len(MESH))
    for flow, pair in enumerate(MESH):
        for end, begin in zip(pair, (0, shift), strict=True):
            if end == NICS[5]:
                of_flow(flows["retransmits"], flow, AFTER + begin)[::every] += 20
    made["links"] = {
        "link": [NICS[5]] * WINDOWS, "at_ns": np.arange(WINDOWS) * 100 * MS + T0,
        "window_ns": np.full(WINDOWS, 100 * MS), "downs": np.zeros(WINDOWS),
    }  # fmt: skip
    if not downs:
        del made["links"]
    facts = BundleFacts(bundle(made))
    assert len(bad_link.find(facts)) == named
    assert any("lost at the same times" in each.reason for each in facts.gaps) == (not named)

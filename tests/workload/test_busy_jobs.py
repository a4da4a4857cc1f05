"""Faults in jobs whose own flows always wait for each other, or that are short or small
(docs/decisions/0439 to 0442): each with a neighbour in which nothing is to be named."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.workload.made import MS, T0, Columns, bundle
from tests.workload.test_exceptions import MESH, NICS, WINDOWS, finding, star
from tests.workload.test_left_behind import steps
from tests.workload.test_rules import AFTER, US, mesh, of_flow

from syntony.model import S
from syntony.workload import FaultClass, diagnose
from syntony.workload.changed_links import ChangedLink, changed_link
from syntony.workload.classes import (
    bad_link,
    class_mismatch,
    clock_fault,
    contention,
    data_stall,
    gpu_throttle,
    incast,
    pcie,
    pfc_storm,
    slow_flow,
    slow_receiver,
    straggler,
)
from syntony.workload.diagnose import _causes
from syntony.workload.facts import BundleFacts
from syntony.workload.verdict import Alternative

F = FaultClass
SEED = random.randrange(1 << 32)
LATE = np.repeat(np.arange(WINDOWS) >= AFTER, len(MESH))
UP = [flow for flow, (src, dst) in enumerate(MESH) if src in NICS[:3] and dst in NICS[3:6]]


@pytest.fixture(autouse=True)
def _seed() -> None:
    print(f"seed {SEED}")


def busy(**columns: Any) -> Columns:
    """As `mesh`, of flows that wait for each other for 1 to 60 µs in each window; some cross a
    link inside the fabric."""
    made = mesh()
    flows = made["flows"]
    rng = np.random.default_rng(SEED)
    flows["owd_p50_ns"] = flows["owd_p50_ns"] + rng.uniform(1, 60, WINDOWS * len(MESH)) * US
    flows["hops"] = [(path[0], "up", path[1]) if place % len(MESH) in UP else path
                     for place, path in enumerate(flows["hops"])]  # fmt: skip
    flows |= columns
    return made


def adds(made: Columns, flows: list[int], delay_ns: float) -> None:
    for flow in flows:
        of_flow(made["flows"]["owd_p50_ns"], flow)[:] += delay_ns


@pytest.mark.parametrize(("more", "named"), [(300 * US, True), (30 * US, False)])
def test_a_flow_whose_shortest_delays_exceed_the_longest_of_others_is_slow(
    more: float, named: bool
) -> None:
    made = busy()
    (flow,) = [each for each, pair in enumerate(MESH) if pair == (NICS[8], NICS[9])]
    adds(made, [flow], more)
    found = slow_flow.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([(f"qp{flow}",)] if named else [])


@pytest.mark.parametrize(("more", "named"), [(400 * US, True), (140 * US, False)])
def test_a_flow_is_slow_beside_late_siblings_if_it_waits_far_longer_than_all(
    more: float, named: bool
) -> None:
    """Four of eight siblings, of two pairs of NICs, wait for 50 µs since a window; their links are
    their own."""
    pairs = [(f"a/n{each}", f"b/n{each}") for each in range(9)]
    made = star(pairs)
    delay = made["flows"]["owd_p50_ns"] = np.full(WINDOWS * len(pairs), 4.0 * US)
    late = np.arange(WINDOWS) >= AFTER
    for flow in (1, 2, 3, 4):
        delay[flow :: len(pairs)] += 50 * US * late
    delay[:: len(pairs)] += more * late
    found = [each.subjects for each in slow_flow.find(BundleFacts(bundle(made)))]
    assert ((made["flows"]["flow"][0],) in found) is named


@pytest.mark.parametrize(
    ("other", "flows", "kept"),
    [(True, (1, 2, 3), True), (False, (1, 2, 3), False), (True, (1, 2), True), (True, (1,), False)],
)
def test_a_host_short_of_cpu_explains_no_flow_that_alone_of_its_flows_waits(
    other: bool, flows: tuple[int, ...], kept: bool
) -> None:
    """`other`: whether other flows of its hosts are known not to wait."""
    host = finding(F.HOST_JITTER, "a", flows=flows)
    slow = finding(F.SLOW_FLOW, "qp1", delay=9e4, rate=0.2, flows=(1,))
    why = Alternative(F.HOST_JITTER, excluded=other, reason="")
    slow = msgspec.structs.replace(slow, alternatives=(why,))
    assert (slow in _causes([host, slow])[0]) is kept


@pytest.mark.parametrize(("others", "alone"), [(20.0, True), (150.0, False)])
def test_a_flow_that_waits_far_longer_than_all_on_its_links_waits_in_no_queue(
    others: float, alone: bool
) -> None:
    """The other flows of its sender wait as well."""
    made = mesh()
    adds(made, [4], 300 * US)
    adds(made, [5, 6, 7], others * US)
    facts = BundleFacts(bundle(made))
    assert ({4} <= {flow for each in facts.late_hops for flow in each.flows}) is not alone
    found = [each.subjects for each in slow_flow.find(facts)]
    assert (("qp4",) in found) is alone


@pytest.mark.parametrize(("confidence", "kept"), [(0.4, True), (0.6, False)])
def test_a_doubtful_cause_does_not_explain_a_flow_that_sends_slower(
    confidence: float, kept: bool
) -> None:
    queue = finding(F.CONTENTION, "up", delay=9e4, flows=(5,))
    queue = msgspec.structs.replace(queue, confidence=confidence)
    slow = finding(F.SLOW_FLOW, "qp1", flows=(1,))
    assert (slow in _causes([queue, slow])[0]) is kept


def utilised(made: Columns, link: str, full: float, *, own: float = 0.0) -> None:
    """All links are used to 40 %, this one to `full` from window 15 on, by `own` of it of the
    job."""
    links, flows = made["links"], made["flows"]
    names = sorted({each for path in flows["hops"] for each in path})
    at = np.repeat(np.arange(WINDOWS), len(names))
    links["link"], links["at_ns"] = names * WINDOWS, T0 + at * 100 * MS
    links["window_ns"] = np.full(len(at), 100 * MS)
    links["speed_bps"] = np.full(len(at), 1e11)
    here = np.array([each == link for each in links["link"]])
    links["utilisation"] = np.where(here & (at >= AFTER), full, 0.4)
    across = [flow for flow in range(len(MESH)) if link in flows["hops"][flow]]
    share = 0.4 / len(across)
    flows["bytes"] = np.full(WINDOWS * len(MESH), share * 1e11 / 80)
    for flow in across:
        of_flow(flows["bytes"], flow)[:] *= 1 + own * (full - 0.4) / 0.4


@pytest.mark.parametrize(
    ("full", "more", "own", "everywhere", "named"),
    [
        (0.95, 60 * US, 0.0, False, True),
        (0.95, 40 * US, 0.0, False, True),  # by less than the longest of them waited before
        (0.7, 60 * US, 0.0, False, False),  # not full
        (0.95, 2 * US, 0.0, False, False),  # its packets wait as before
        (0.95, 60 * US, 1.0, False, False),  # the job sends more
        (0.95, 60 * US, 0.0, True, False),  # all flows wait longer
    ],
)
def test_flows_of_a_link_that_others_fill_are_compared_with_the_time_before(
    full: float, more: float, own: float, everywhere: bool, named: bool
) -> None:
    made = busy()
    utilised(made, "up", full, own=own)
    adds(made, [*range(len(MESH))] if everywhere else UP, more)
    facts = BundleFacts(bundle(made))
    assert [each.links for each in facts.full_links] == ([("up",)] if named else [])
    if named:
        (found,) = [each for each in contention.find(facts) if each.subjects == ("up",)]
        assert found.confidence >= 0.9
        assert found.onset_ns == T0 + AFTER * 100 * MS
        assert F.CONTENTION in {each.fault for each in diagnose(bundle(made)).verdicts}


def test_a_link_to_a_nic_that_others_fill_is_an_incast() -> None:
    made = busy()
    into = [flow for flow, (_, dst) in enumerate(MESH) if dst == NICS[7]]
    utilised(made, f"sw->{NICS[7]}", 0.95)
    adds(made, into, 60 * US)
    facts = BundleFacts(bundle(made))
    assert (NICS[7],) in [each.subjects for each in incast.find(facts) if each.confidence > 0.9]
    assert all(each.subjects != (f"sw->{NICS[7]}",) for each in contention.find(facts))


def bursts(more: float, flows: list[int], share: float = 0.4, draw: int = 0) -> Columns:
    """Delays of all flows have a heavy tail; those of these flows are longer in so many windows
    from window 15 on."""
    made = busy()
    rng = np.random.default_rng(SEED + draw)
    delays = 4 * US * rng.lognormal(0.0, 0.8, WINDOWS * len(MESH))
    made["flows"]["owd_p50_ns"] = delays
    for flow in flows:
        of_flow(delays, flow)[:] *= np.where(rng.random(WINDOWS - AFTER) < share, more, more / 3)
    return made


def changed_links(flows: list[int]) -> list[ChangedLink | None]:
    """What is found in three draws, of which one in 50 to 100 has a link by chance."""
    found = []
    for draw in range(3):
        facts = BundleFacts(bundle(bursts(8.0, flows, draw=draw)))
        assert facts.flows is not None
        found.append(changed_link(facts.flows, facts.crossings))
    return found


def test_a_link_stands_out_over_all_its_flows_where_no_flow_is_late() -> None:
    made = bursts(8.0, UP)
    facts = BundleFacts(bundle(made))
    assert facts.flows is not None
    found = changed_link(facts.flows, facts.crossings)
    assert found is not None
    assert found.links == ("up",)
    assert abs((found.begin_ns - T0) // (100 * MS) - AFTER) <= 2
    (verdict,) = diagnose(bundle(made)).verdicts
    assert (verdict.fault, verdict.subjects) == (F.CONTENTION, ("up",))


def test_of_links_in_series_that_changed_the_full_one_is_named() -> None:
    made = bursts(8.0, UP)
    flows = made["flows"]
    flows["hops"] = [tuple(each for link in path for each in (("up", "down") if link == "up"
                                                              else (link,)))
                     for path in flows["hops"]]  # fmt: skip
    (both,) = diagnose(bundle(made)).verdicts
    assert both.subjects == ("down", "up")
    utilised(made, "up", 0.95)
    made["links"].pop("speed_bps")
    always = np.array([each == "up" for each in made["links"]["link"]])
    made["links"]["utilisation"][always] = 0.95  # a link that did not fill up, but is full
    (verdict,) = diagnose(bundle(made)).verdicts
    assert (verdict.fault, verdict.subjects) == (F.CONTENTION, ("up",))


@pytest.mark.parametrize("flows", [[], [*range(len(MESH))], UP[:2]])
def test_no_link_stands_out_where_its_flows_wait_no_longer_than_others(flows: list[int]) -> None:
    """Without a change, with one everywhere, and with one of few of its flows."""
    named = [each is not None and each.links == ("up",) for each in changed_links(flows)]
    assert sum(named) <= 1, named


def test_a_nic_whose_packets_wait_both_ways_does_not_stand_out() -> None:
    """Halves of round trips say nothing of the direction."""
    both = [flow for flow, pair in enumerate(MESH) if NICS[4] in pair]
    named = [each is not None for each in changed_links(both)]
    assert sum(named) <= 1, named


def two_hosts(slower: float, ways: int = 2) -> Columns:
    """A job of two NICs; the slot of one loses lanes, and its flows send slower in so many
    directions."""
    made = star([("a/n", "b/n"), ("b/n", "a/n")] * 2)
    late = T0 + AFTER * 100 * MS
    flows, at = made["flows"], T0 + np.repeat(np.arange(WINDOWS), 2) * 100 * MS
    out = np.array([src == "a/n" for src in flows["src"]])
    hit = (flows["at_ns"] >= late) & (out | (ways == 2))
    flows["rate_bps"] = np.where(hit, slower, 1.0) * 1e11
    made["links"] = {
        "link": ["a/n", "b/n"] * WINDOWS, "at_ns": at, "window_ns": np.full(len(at), 100 * MS),
        "pcie_width": np.where((at >= late) & (np.arange(len(at)) % 2 == 0), 4.0, 16.0),
        "pcie_max_width": np.full(len(at), 16.0), "pcie_gts": np.full(len(at), 32.0),
        "pcie_max_gts": np.full(len(at), 32.0),
    }  # fmt: skip
    return made


@pytest.mark.parametrize(("slower", "ways", "named"), [(0.3, 2, True), (0.9, 2, False),
                                                       (0.3, 1, False)])  # fmt: skip
def test_a_slot_of_a_job_of_two_nics_is_compared_with_the_time_before(
    slower: float, ways: int, named: bool
) -> None:
    found = pcie.find(BundleFacts(bundle(two_hosts(slower, ways))))
    assert [each.subjects for each in found] == ([("a/n",)] if named else [])


@pytest.mark.parametrize("first", [0, 25])
@pytest.mark.parametrize(("own", "other", "named"), [(40.0, 0.0, True), (0.0, 0.0, False),
                                                     (40.0, 40.0, False)])  # fmt: skip
def test_a_class_waits_if_even_its_fastest_probes_do_and_those_of_others_do_not(
    own: float, other: float, named: bool, first: int
) -> None:
    """Probes of both classes wait for the job's bursts now and then; the class, or both, wait since
    a window."""
    pairs = [(f"{one}/{nic}", f"{other}/{nic}")
             for one, other in (("a", "b"), ("b", "a")) for nic in "mno"]  # fmt: skip
    made = star(pairs)
    rng = np.random.default_rng(SEED)
    flows = made["flows"]
    flows["tc"] = np.full(len(flows["at_ns"]), 104.0)
    since = flows["at_ns"] >= T0 + first * 100 * MS
    flows["owd_p50_ns"] = (2 + own * since + rng.uniform(0, 60, len(since))) * US
    keys = [(pair, kind, window) for window in range(WINDOWS) for pair in pairs for kind in (0, 1)]
    waits = np.array([(other, own)[kind] * (window >= first) for _, kind, window in keys])
    burst = rng.uniform(1, 60, len(keys)) * (rng.random(len(keys)) < 0.5)
    made["probes"] = {
        "at_ns": T0 + np.array([window for *_, window in keys]) * 100 * MS,
        "src": [pair[0] for pair, *_ in keys], "dst": [pair[1] for pair, *_ in keys],
        "tc": np.array([104.0 * kind for _, kind, _ in keys]),
        "owd_p50_ns": 2 * US + (burst + waits) * US, "owd_p99_ns": 70 * US + waits * US,
    }  # fmt: skip
    assert bool(class_mismatch.find(BundleFacts(bundle(made)))) is named


@pytest.mark.parametrize(("switches", "count"), [(3, 3), (4, 0)])
def test_pauses_at_more_than_three_ports_are_no_storm(switches: int, count: int) -> None:
    """Each switch has a port that is paused, and pauses into it."""
    kinds = "abcd"[:switches]
    made = star([(f"{kind}{one}/n", f"{kind}{other}/n") for kind in kinds
                 for one in range(4) for other in range(4) if one != other])  # fmt: skip
    rows, links = made["flows"], made["links"]
    rows["hops"] = [tuple(link.replace("sw", "sw" + src[0]) for link in path)
                    for path, src in zip(rows["hops"], rows["src"], strict=True)]  # fmt: skip
    links["link"] = [each.replace("sw", "sw" + each.replace("sw->", "")[0])
                     for each in links["link"]]  # fmt: skip
    pauses = {f"sw{kind}->{kind}0/n": 0.9 for kind in kinds} | {
        f"{kind}{each}/n->sw{kind}": 0.5 for kind in kinds for each in (1, 2)}  # fmt: skip
    links["pause_ns"] = np.array([pauses.get(each, 0.0) * 100 * MS for each in links["link"]])
    assert len(pfc_storm.find(BundleFacts(bundle(made)))) == count


@pytest.mark.parametrize(("queues", "named"), [(1, True), (3, False)])
def test_a_queue_on_one_of_many_pairs_does_not_hide_a_wrong_clock(queues: int, named: bool) -> None:
    """In a third of the windows, on so many of eight pairs."""
    made = star(MESH + [(dst, src) for src, dst in MESH])
    flows = made["flows"]
    delay = np.full(len(flows["at_ns"]), 50 * US)
    late = flows["at_ns"] >= T0 + AFTER * 100 * MS
    src, dst = np.array(flows["src"]), np.array(flows["dst"])
    delay += late * ((dst == NICS[5]) * 40.0 - (src == NICS[5]) * 40.0) * US
    peers = [one for one, other in MESH if other == NICS[5]][:queues]
    third = (flows["at_ns"] - T0) // (100 * MS) % 3 == 0
    delay += late * third * np.isin(src, peers) * (dst == NICS[5]) * 90 * US
    flows["owd_p50_ns"] = delay
    found = clock_fault.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([(NICS[5],)] if named else [])


@pytest.mark.parametrize(
    ("off", "to", "named"),
    [
        (-40.0, [NICS[5]], [(NICS[5],)]),
        (-3.0, [NICS[5]], []),  # possible
        (40.0, [NICS[5]], []),  # a queue
        (-40.0, NICS[3:7], []),  # most NICs: nobody knows whose clock it is
    ],
)
def test_delays_from_before_they_were_sent_name_a_clock_without_the_way_back(
    off: float, to: list[str], named: list[tuple[str, ...]]
) -> None:
    """Flows go one way only: no pair has both directions."""
    made = star([(one, other) for one in NICS[:3] for other in NICS[3:7]])
    flows = made["flows"]
    late = flows["at_ns"] >= T0 + AFTER * 100 * MS
    hit = np.array([each in to for each in flows["dst"]])
    flows["owd_p50_ns"] = 4 * US + late * hit * off * US
    flows["clk_err_ns"] = np.full(len(late), 60.0)
    found = clock_fault.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == named


def short(step_ms: int, gpu_wait: float | None, throttle: str = "") -> Columns:
    """Forty steps of so many ms; rank 5 is late in each since the tenth, by a fifth of a step."""
    rank, step = np.tile(np.arange(8), 40), np.repeat(np.arange(40), 8)
    behind = (rank == 5) & (step >= 10)
    rng = np.random.default_rng(SEED)
    begin = T0 + step * step_ms * MS
    enqueue = begin + (step_ms * MS * (0.5 + rng.normal(0, 0.002, len(rank)) + 0.2 * behind))
    made: Columns = {"collectives": {
        "comm": ["world"] * len(rank), "op": ["all_reduce"] * len(rank), "seq": step,
        "rank": rank, "host": [f"h{each}" for each in rank], "gpu": [f"G{each}" for each in rank],
        "enqueue_ns": enqueue.astype(np.int64),
        "done_ns": (begin + 0.8 * step_ms * MS).astype(np.int64),
    }}  # fmt: skip
    if gpu_wait is not None:
        made["collectives"]["gpu_wait_ns"] = np.where(behind, gpu_wait, 1.0) * MS
    if throttle:
        made["hosts"] = {
            "at_ns": begin, "window_ns": np.full(len(rank), step_ms * MS),
            "host": made["collectives"]["host"], "gpu": made["collectives"]["gpu"],
            "throttle": [throttle if each else "" for each in behind],
        }  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("step_ms", "gpu_wait", "named"),
    [(15, None, False), (15, 1.0, False), (15, 3.0, True), (200, None, True)],
)
def test_a_rank_that_is_late_for_less_than_a_second_is_named_if_its_gpu_is_late(
    step_ms: int, gpu_wait: float | None, named: bool
) -> None:
    made = short(step_ms, gpu_wait)
    assert (made["collectives"]["enqueue_ns"].max() - T0 < S) == (step_ms == 15)
    found = straggler.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([("rank 5",)] if named else [])


@pytest.mark.parametrize(
    ("throttle", "named"), [("hw_thermal_slowdown", True), ("gpu_idle", False)]
)
def test_a_gpu_that_is_throttled_is_named_though_its_rank_is_late_briefly(
    throttle: str, named: bool
) -> None:
    found = gpu_throttle.find(BundleFacts(bundle(short(15, None, throttle))))
    assert [each.subjects for each in found] == ([("G5",)] if named else [])


def consumed(times: float, longer: float, *, behind: bool = False) -> Columns:
    """Forty steps of 200 ms; what rank 3 receives waits for its GPU so many times as long since
    step 15, and operations take so many times as long. No flow waits for credit."""
    made = short(200, None)
    ops = made["collectives"]
    late = ops["seq"] >= AFTER
    usual = T0 + ops["seq"] * 200 * MS + 100 * MS
    ops["enqueue_ns"] = usual + (behind & late & (ops["rank"] == 3)) * 40 * MS
    ops["done_ns"] = usual + 50 * MS * (1 + late * (longer - 1))
    ops["consume_wait_ns"] = np.where(late & (ops["rank"] == 3), times, 1.0) * 2 * MS
    return made


@pytest.mark.parametrize(
    ("times", "longer", "behind", "named"),
    [
        (8.0, 1.8, False, True),
        (1.5, 1.8, False, False),
        (8.0, 1.1, False, False),  # nothing takes longer
        (8.0, 1.8, True, False),  # a straggler
    ],
)
def test_a_receiver_is_slow_if_operations_wait_for_its_gpu_and_no_sender_for_credit(
    times: float, longer: float, behind: bool, named: bool
) -> None:
    made = consumed(times, longer, behind=behind)
    found = slow_receiver.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([("rank 3",)] if named else [])
    verdicts = {each.fault for each in diagnose(bundle(made)).verdicts}
    assert verdicts == ({F.SLOW_RECEIVER} if named else {F.STRAGGLER} if behind else set())


@pytest.mark.parametrize(("elsewhere", "sure"), [(1.0, True), (0.1, False)])
@pytest.mark.parametrize("recorded", ["utilisation", "probes"])
def test_a_queue_explains_losses_only_where_others_that_wait_as_long_lose_as_well(
    recorded: str, elsewhere: float, sure: bool
) -> None:
    """The link to a NIC loses packets and counts errors; all of a job's flows wait for each
    other, or those to that NIC longer than others."""
    made = mesh()
    flows, links = made["flows"], made["links"]
    bad = f"sw->{NICS[7]}"
    into = np.array([each == NICS[7] for each in flows["dst"]])
    flows["retransmits"] = np.where(into & LATE, 9.0, 0.0)
    late = links["at_ns"] >= T0 + AFTER * 100 * MS
    here = np.array([each == bad for each in links["link"]])
    links["symbol_errors"] = np.where(here & late, 400.0, 0.0)
    if recorded == "utilisation":
        del flows["owd_p50_ns"]
        links["utilisation"] = np.where(here, 0.95, 0.95 * elsewhere)
    else:
        waits = np.where(into, 60.0, 60.0 * elsewhere) * US
        flows["owd_p50_ns"] = flows["owd_p50_ns"] + LATE * waits
        made["probes"] = {
            "at_ns": flows["at_ns"], "src": flows["src"], "dst": flows["dst"],
            "owd_p50_ns": flows["owd_p50_ns"], "owd_p99_ns": flows["owd_p50_ns"],
        }  # fmt: skip
    (found,) = bad_link.find(BundleFacts(bundle(made)))
    assert found.subjects == (bad,)
    assert (found.confidence >= 0.8) is sure


@pytest.mark.parametrize("ended", [1, 2, 4])
def test_a_checkpoint_that_some_ranks_have_not_ended_counts(ended: int) -> None:
    """Every fourth step writes a long checkpoint, three in all; so many of four ranks have ended
    the last of them."""
    waits = np.zeros(17, dtype=np.int64)
    waits[[8, 12, 16]] = 300 * MS
    made = steps(waits)["steps"]
    kept = (made["step"] < 16) | (made["rank"] < ended)
    columns = {name: values[kept] for name, values in made.items()}
    columns["checkpoint_ns"] = columns.pop("data_ns")
    (found,) = data_stall.find(BundleFacts(bundle({"steps": columns})))
    assert found.onset_ns == columns["begin_ns"][8]


def test_a_nominal_speed_of_zero_is_not_recorded() -> None:
    made = two_hosts(0.3)
    count = len(made["links"]["link"])
    made["links"] |= {"speed_bps": np.full(count, 1e11), "nominal_bps": np.zeros(count)}
    (found,) = pcie.find(BundleFacts(bundle(made)))
    (flapping,) = [each for each in found.alternatives if each.fault == F.FLAPPING]
    assert "not recorded" in flapping.reason

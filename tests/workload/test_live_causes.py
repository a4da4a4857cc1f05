"""Causes that were named wrongly beside live jobs: links that lose packets of TCP, ranks that leave
an operation out, ranks that are late only at the end of a recording."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.workload.made import MS, T0, bundle

from syntony.workload import FaultClass, diagnose
from syntony.workload.flows import Flows
from syntony.workload.grid import significant_episodes
from syntony.workload.verdict import Verdict

S = 1000 * MS
SEED = random.randrange(1 << 32)
SECONDS, BEGIN = 50, 20
HOSTS = 3
WAY = {(0, 1): 1, (0, 2): 2, (1, 0): 1, (1, 2): 2, (2, 0): 1, (2, 1): 2}
"""Spine of each pair's connection, from host to host."""
Pair = tuple[int, int]


def nic(host: int) -> str:
    return f"h{host}/n"


def hops(pair: Pair) -> tuple[str, ...]:
    src, dst = pair
    spine = f"spine{WAY[pair]}"
    return (
        f"{nic(src)}->leaf{src}", f"leaf{src}->{spine}", f"{spine}->leaf{dst}",
        f"leaf{dst}->{nic(dst)}",
    )  # fmt: skip


def ends(pair: Pair) -> tuple[str, ...]:
    return hops(pair)[::3]


def verdicts(
    lost: dict[Pair, float],
    *,
    probed: set[Pair],
    detours: set[Pair] = frozenset(),  # type: ignore[assignment]
    slowest_ns: float = 9_000.0,
    down: int | None = None,
    seconds: int = SECONDS,
    probed_seconds: int = SECONDS,
) -> tuple[Verdict, ...]:
    """Of three hosts that send to each other.

    Args:
        lost: packets that a pair's connection sends again in each second since `BEGIN`.
        probed: pairs whose probes are lost then.
        detours: pairs whose connection takes another way since then.
        slowest_ns: delay of the slowest probes since then.
        down: the second in which the NIC of the first host loses its carrier.
        seconds: length of the recording.
        probed_seconds: … of probes.
    """
    draw = np.random.default_rng(SEED)
    flows: dict[str, list[Any]] = {
        name: [] for name in ("flow", "at_ns", "window_ns", "src", "dst", "proto", "rate_bps",
                              "retransmits", "owd_p50_ns", "hops")}  # fmt: skip
    probes: dict[str, list[Any]] = {
        name: [] for name in ("at_ns", "src", "dst", "sent", "lost", "owd_p50_ns", "owd_p99_ns")
    }
    for pair in WAY:
        src, dst = map(nic, pair)
        for second in range(seconds):
            bad = second >= BEGIN
            away = bad and pair in detours
            again = draw.poisson(lost.get(pair, 0.0)) if bad else 0
            flows["flow"].append(f"{src}:1>{dst}:2{' (detour)' * away}")
            flows["at_ns"].append(T0 + second * S)
            flows["window_ns"].append(S)
            flows["src"].append(src)
            flows["dst"].append(dst)
            flows["proto"].append("tcp")
            flows["rate_bps"].append(2e6 * draw.normal(1, 0.1))
            flows["retransmits"].append(float(again))
            # The kernel's round trip grows where segments are sent again.
            flows["owd_p50_ns"].append(15_000 * draw.lognormal(0, 0.1) * (1 + 3 * again))
            flows["hops"].append(ends(pair) if away else hops(pair))
            if second >= probed_seconds:
                continue
            probes["at_ns"].append(T0 + second * S)
            probes["src"].append(src)
            probes["dst"].append(dst)
            probes["sent"].append(100.0)
            probes["lost"].append(float(draw.poisson(4)) if bad and pair in probed else 0.0)
            probes["owd_p50_ns"].append(5_000.0)
            probes["owd_p99_ns"].append(slowest_ns if bad else 9_000.0)
    links = {
        "link": [nic(host) for host in range(HOSTS) for _ in range(seconds)],
        "at_ns": [T0 + second * S for _ in range(HOSTS) for second in range(seconds)],
        "window_ns": [S] * (HOSTS * seconds),
        "downs": [float(host == 0 and second == down) for host in range(HOSTS)
                  for second in range(seconds)],
    }  # fmt: skip
    tables = {"flows": flows, "probes": probes} | ({} if down is None else {"links": links})
    return diagnose(bundle(tables)).verdicts


def links(*lost: Any, **given: Any) -> list[tuple[str, ...]]:
    """Subjects of the bad links, and nothing else is named."""
    found = verdicts(*lost, **given)
    assert {each.fault for each in found} == {FaultClass.BAD_LINK}, found
    return sorted(each.subjects for each in found)


AT_H0 = {pair for pair in WAY if 0 in pair}


def test_a_nic_whose_packets_are_lost_is_named_though_some_connections_took_a_detour() -> None:
    print(f"seed {SEED}")
    lost = dict.fromkeys(AT_H0, 15.0)
    assert links(lost, probed=AT_H0, detours={(0, 1), (1, 0)}) == [
        ("h0/n->leaf0",), ("leaf0->h0/n",)
    ]  # fmt: skip


def test_a_cable_of_one_connection_is_the_one_that_no_other_crosses() -> None:
    print(f"seed {SEED}")
    # Its acknowledgements are not lost, the few packets sent again the other way are no losses.
    assert links({(0, 2): 12.0, (2, 0): 1.0}, probed=AT_H0) == [("leaf0->spine2",)]


def test_a_connection_that_took_a_detour_does_not_speak_for_the_links_that_it_left() -> None:
    print(f"seed {SEED}")
    # Of (1, 2), the other connection over that link, only the ends are known to be well.
    assert links({(0, 2): 12.0}, probed={(0, 2), (1, 2)}, detours={(1, 2)}) == [
        ("leaf0->spine2", "spine2->leaf2")
    ]


@pytest.mark.parametrize(("down", "seconds", "named"), [
    (None, 25, True), (BEGIN, 24, False), (BEGIN + 1, 25, False),  # sent again once it is back
    (BEGIN, 40, True), (BEGIN - 10, 25, True),  # it loses packets at other times as well
])  # fmt: skip
def test_what_is_lost_while_a_port_has_no_carrier_is_no_bad_link(
    down: int | None, seconds: int, named: bool
) -> None:
    print(f"seed {SEED}")
    found = verdicts(dict.fromkeys(AT_H0, 15.0), probed=AT_H0, down=down, seconds=seconds)
    assert (FaultClass.BAD_LINK in {each.fault for each in found}) is named, found


@pytest.mark.parametrize(("probed_seconds", "named"), [(1, False), (2, True)])
def test_losses_are_no_bad_link_until_probes_tell_whether_there_is_a_queue(
    probed_seconds: int, named: bool
) -> None:
    """Probes are stored later than what flows report."""
    print(f"seed {SEED}")
    found = verdicts(dict.fromkeys(AT_H0, 15.0), probed=AT_H0, seconds=BEGIN + 5,
                     probed_seconds=BEGIN + probed_seconds)  # fmt: skip
    assert (FaultClass.BAD_LINK in {each.fault for each in found}) is named, found


@pytest.mark.parametrize("lost", [{(0, 2): 12.0}, dict.fromkeys(AT_H0, 12.0)])
@pytest.mark.parametrize(
    ("probed", "slowest_ns"),
    [
        (set(), 9_000.0),  # TCP alone loses packets in any queue
        (AT_H0, 900_000.0),  # packets wait before they are lost
    ],
)
def test_what_a_full_queue_drops_is_no_bad_link(
    lost: dict[Pair, float], probed: set[Pair], slowest_ns: float
) -> None:
    print(f"seed {SEED}")
    found = {each.fault for each in verdicts(lost, probed=probed, slowest_ns=slowest_ns)}
    assert found or len(lost) > 1, "one flow waits, as it would without losses"
    assert FaultClass.BAD_LINK not in found


@pytest.mark.parametrize(
    ("counts", "last"),
    [
        ([*[4] * 3, *[15] * 27], 49),  # a fall, seen from the end
        ([*[12] * 25, *[8] * 5], 49),  # as much as rates differ by chance
        ([*[12] * 25, *[0] * 5], 44),
    ],
)
def test_losses_end_where_they_fall_by_more_than_chance(counts: list[int], last: int) -> None:
    flows = range(5)
    columns: dict[str, Any] = {
        "flow": [f"f{flow}" for flow in flows for _ in range(SECONDS)],
        "at_ns": [T0 + second * S for _ in flows for second in range(SECONDS)],
        "window_ns": [S] * (5 * SECONDS),
        "src": [nic(flow) for flow in flows for _ in range(SECONDS)],
        "dst": [nic(9)] * (5 * SECONDS),
        "retransmits": [*[0.0] * BEGIN, *map(float, counts), *[0.0] * (4 * SECONDS)],
    }
    stretch = Flows(bundle({"flows": columns}).tables["flows"]).lossy[0]
    assert (stretch.first in range(BEGIN, BEGIN + 4), stretch.last) == (True, last)


def operations(
    skips: int | None, *, comes: int = 4, odd_before: bool = False, last_ns: int = 3 * S
) -> list[tuple[tuple[str, ...], float]]:
    """Hangs of four ranks that reduce much, then little, in each step; in the last one a rank
    leaves out the little one, and so many of them have begun any."""
    rows: dict[str, list[Any]] = {
        name: [] for name in ("comm", "seq", "op", "rank", "host", "enqueue_ns", "done_ns", "bytes")
    }
    count = 60
    for seq in range(2 * count):
        for rank in range(4):
            final = seq == 2 * count - 1
            size = 4.0 if seq % 2 else 80_000.0
            if final and rank == skips:
                size = 80_000.0
            if odd_before and seq == 41 and rank == 1:
                size = 8.0
            if final and rank not in {
                skips,
                *[each for each in range(4) if each != skips][: comes - 1],
            }:
                continue
            at_ns = T0 + seq * 50 * MS + rank * MS
            rows["comm"].append("c")
            rows["seq"].append(seq)
            rows["op"].append("all_reduce")
            rows["rank"].append(rank)
            rows["host"].append(f"h{rank}")
            rows["enqueue_ns"].append(at_ns)
            rows["done_ns"].append(np.iinfo(np.int64).min if final else at_ns + 5 * MS)
            rows["bytes"].append(size)
    end_ns = T0 + 2 * count * 50 * MS + last_ns
    made = bundle({"collectives": rows, "hosts": {
        "at_ns": [T0, end_ns], "window_ns": [S, S], "host": ["h0", "h0"]}})  # fmt: skip
    return [(each.subjects, each.confidence) for each in diagnose(made).verdicts
            if each.fault is FaultClass.HANG]  # fmt: skip


@pytest.mark.parametrize("comes", [2, 3, 4])
@pytest.mark.parametrize("skips", [0, 2])
def test_the_rank_that_left_an_operation_out_is_the_one_whose_next_one_was_not_due(
    skips: int, comes: int
) -> None:
    ((subjects, _),) = operations(skips, comes=comes)
    assert subjects == (f"rank {skips}",)


@pytest.mark.parametrize(
    ("skips", "odd_before", "last_ns", "named"),
    [
        (2, False, 3 * S, True),
        (2, False, S // 4, False),  # the next operation may be about to come
        (2, True, 3 * S, False),  # sizes have differed before: that is how this job is
        (None, False, 3 * S, False),
        (None, False, 9 * S, True),
    ],
)
def test_ranks_that_differ_for_the_first_time_stand_still_sooner(
    skips: int | None, odd_before: bool, last_ns: int, named: bool
) -> None:
    assert bool(operations(skips, odd_before=odd_before, last_ns=last_ns)) == named


@pytest.mark.parametrize("accident", [range(0), range(30, 33), range(180, 183)])
def test_an_accident_does_not_hide_a_fault_that_lasts_until_the_end(accident: range) -> None:
    bad = np.zeros((3, 400), dtype=bool)
    bad[1, accident] = True
    bad[1, 300:] = True
    stretch = significant_episodes(bad, np.ones_like(bad), lasting=True)[1]
    assert (stretch.first, stretch.last) == (300, 399)


@pytest.mark.parametrize(("first", "second"), [((40, 80), (300, 330)), ((40, 60), (200, 260))])
def test_of_two_times_that_a_rank_is_late_the_longer_is_named(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    bad = np.zeros((3, 400), dtype=bool)
    for begin, end in (first, second):
        bad[1, begin:end] = True
    stretch = significant_episodes(bad, np.ones_like(bad), lasting=True)[1]
    longer = max(first, second, key=lambda each: each[1] - each[0])
    assert (stretch.first, stretch.last + 1) == longer


def test_chance_at_the_end_is_no_fault_that_lasts() -> None:
    bad = np.zeros((3, 400), dtype=bool)
    bad[1, [10, 11, 12, 397, 398, 399]] = True
    assert not significant_episodes(bad, np.ones_like(bad), lasting=True)

"""Jobs on hosts that are short of CPU: round trips that are averages, and threads' waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.workload.made import MS, T0, bundle

from syntony.workload.classes import host_jitter, straggler
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import Flows

S, US = 1000 * MS, 1_000
SECONDS, BEGIN = 30, 20
FLOWS, HOSTS = 6, 3


def averaged(waits_ns: dict[int, float], answers: int, *, rtt: bool = True) -> Flows:
    """Six flows whose round trips are the kernel's average, of so many answers a second; the first
    flow's first answer of each of these seconds waits."""
    draw = np.random.default_rng(3)
    rows: dict[str, list[Any]] = {
        name: [] for name in ("flow", "at_ns", "window_ns", "src", "dst", "proto", "owd_p50_ns")
    } | ({"rtt_p50_ns": []} if rtt else {})
    for flow in range(FLOWS):
        average = 20.0 * US
        for second in range(SECONDS):
            seen = []
            for answer in range(answers):
                sample = 20 * US * draw.lognormal(0, 0.1)
                if flow == 0 and answer == 0:
                    sample += waits_ns.get(second, 0.0)
                average += (sample - average) / 8
                seen.append(average)
            for name, value in (
                ("flow", f"h{flow}/n:1>x{flow}/n:2"), ("at_ns", T0 + second * S), ("window_ns", S),
                ("src", f"h{flow}/n"), ("dst", f"x{flow}/n"), ("proto", "tcp"),
                ("owd_p50_ns", float(np.median(seen)) / 2), ("rtt_p50_ns", float(np.median(seen))),
            ):  # fmt: skip
                if name in rows:
                    rows[name].append(value)
    return Flows(bundle({"flows": rows}).tables["flows"])


def test_one_slow_answer_is_no_wait_for_as_long_as_the_kernel_averages_over_it() -> None:
    once = averaged({BEGIN: 10.0 * MS}, answers=4)
    assert once.waiting[0, BEGIN : BEGIN + 3].all()
    assert not once.late
    assert 0 in averaged({BEGIN: 10.0 * MS}, answers=4, rtt=False).late  # no average: it waited


@pytest.mark.parametrize("answers", [1, 4, 40])
def test_answers_that_stay_slow_are_a_wait(answers: int) -> None:
    slow = dict.fromkeys(range(BEGIN, SECONDS), 10.0 * MS)
    assert averaged(slow, answers).late.keys() == {0}


def waiting(shares: dict[str, float], widths_s: tuple[int, ...] = (1,)) -> BundleFacts:
    return BundleFacts(bundle({"hosts": host_rows(shares, widths_s)}))


def host_rows(shares: dict[str, float], widths_s: tuple[int, ...] = (1,)) -> dict[str, list[Any]]:
    """Hosts whose threads wait for these shares of the time since `BEGIN`, in rows of these
    lengths."""
    hosts: dict[str, list[Any]] = {name: [] for name in ("at_ns", "window_ns", "host", "runq_ns")}
    for host, share in shares.items():
        second = turn = 0
        while second < SECONDS:
            width = widths_s[turn % len(widths_s)]
            hosts["at_ns"].append(T0 + second * S)
            hosts["window_ns"].append(width * S)
            hosts["host"].append(host)
            hosts["runq_ns"].append((share if second >= BEGIN else 0.02) * width * S)
            second, turn = second + width, turn + 1
    return hosts


@pytest.mark.parametrize("others", [1, 2, 5])
def test_a_host_is_compared_with_the_others_and_not_with_itself(others: int) -> None:
    shares = {f"h{each}": 0.1 for each in range(others)} | {"busy": 0.6}
    assert host_jitter._run_queues(waiting(shares)).keys() == {"busy"}


def test_waits_are_shares_of_the_time_that_each_row_covers() -> None:
    found = host_jitter._run_queues(waiting({"a": 0.1, "b": 0.1, "busy": 0.6}, (2, 3, 2, 2)))
    assert found["busy"][3] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("own", "elsewhere", "excluded"),
    [(0.7, 0.5, False), (0.55, 0.5, True), (0.04, 0.01, True), (0.9, 0.1, False)],
)
def test_a_host_is_ruled_out_only_where_its_threads_wait_as_others_do(
    own: float, elsewhere: float, excluded: bool
) -> None:
    facts = waiting({"a": elsewhere, "b": elsewhere, "own": own})
    why = host_jitter.weighed(facts, "own", T0 + BEGIN * S, T0 + SECONDS * S)
    assert why.excluded is excluded
    assert f"{own:.0%}" in why.reason


@pytest.mark.parametrize(
    ("own", "runs", "others", "run", "short"),
    [
        (0.92, 0.06, 0.43, 0.3, True),  # a ratio of shares of three is more than all of the time
        (0.60, 0.4, 0.40, 0.3, False),
        (0.60, 0.4, 0.20, 0.13, False),  # three times as long, as it runs three times as much
        (0.06, 0.02, 0.10, 0.9, False),  # it seldom runs; the others wait by turning
        (0.92, None, 0.43, None, False),
    ],
)
def test_threads_waits_are_compared_for_the_time_that_they_run(
    own: float, runs: float | None, others: float, run: float | None, short: bool
) -> None:
    rows = host_rows({"own": own, "a": others, "b": others})
    if runs is not None and run is not None:
        rows["cpu_ns"] = [(runs if host == "own" else run) * S for host in rows["host"]]
    facts = BundleFacts(bundle({"hosts": rows}))
    last_ns = T0 + (BEGIN + 8) * S
    assert host_jitter.is_short(facts, "own", T0 + BEGIN * S, last_ns) is short
    assert (host_jitter._run_queues(facts).keys() == {"own"}) is short
    sure = host_jitter.weighed(facts, "own", T0 + BEGIN * S, last_ns).excluded
    assert not (sure and short)


@pytest.mark.parametrize("shares", [{"own": 0.5}, {"a": 0.5}])
def test_a_host_without_another_to_compare_is_not_ruled_out(shares: dict[str, float]) -> None:
    why = host_jitter.weighed(waiting(shares), "own", T0 + BEGIN * S, T0 + SECONDS * S)
    assert not why.excluded
    assert "not recorded" in why.reason


@pytest.mark.parametrize(("own", "short"), [(0.4, True), (0.2, False), (0.04, False)])
def test_a_late_rank_is_no_straggler_while_its_host_is_short_of_cpu(
    own: float, short: bool
) -> None:
    """Two seconds are too few to name the host."""
    facts = waiting({"a": min(own, 0.1), "b": 0.01, "c": 0.1, "own": own})
    last_ns = T0 + (BEGIN + 2) * S
    assert host_jitter.is_short(facts, "own", T0 + BEGIN * S, last_ns) is short
    assert not host_jitter.is_short(facts, "unknown", T0 + BEGIN * S, last_ns)


@pytest.mark.parametrize("short", [False, True])
def test_the_late_rank_of_a_host_that_is_short_of_cpu_is_not_named(short: bool) -> None:
    ranks, per_second = 4, 5
    names = ("comm", "seq", "op", "rank", "host", "enqueue_ns", "done_ns", "bytes", "nranks")
    rows: dict[str, list[Any]] = {name: [] for name in names}
    for seq in range((BEGIN + 2) * per_second):
        at_ns = T0 + seq * S // per_second
        late = 60 * MS if seq >= BEGIN * per_second else 0
        for rank in range(ranks):
            came_ns = at_ns + rank * 20 * US + (late if rank == 3 else 0)
            for name, value in zip(rows, (
                "c", seq, "all_reduce", rank, f"h{rank}", came_ns, at_ns + late + MS, 8e4,
                float(ranks)), strict=True):  # fmt: skip
                rows[name].append(value)
    hosts = host_rows({"h0": 0.1, "h1": 0.1, "h2": 0.1, "h3": 0.6 if short else 0.1})
    found = straggler.find(BundleFacts(bundle({"collectives": rows, "hosts": hosts})))
    assert [each.subjects for each in found] == ([] if short else [("rank 3",)])

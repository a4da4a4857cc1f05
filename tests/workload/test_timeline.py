"""The trace of a bundle: what is in it lies where and when it was recorded, and can be opened."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from bench.diagnosis import drawn, foreign
from bench.diagnosis.case import Case, bundle_of
from bench.diagnosis.drawn_faults import FAULTS
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.workload import Bundle, diagnose
from syntony.workload.bundle import NULL, Codes, Manifest, make_bundle
from syntony.workload.schema import FORMAT, VERSION
from syntony.workload.timeline import FLOWS_PID, MAX_FLOWS, VERDICTS_PID, encoded, trace

T0 = 1_700_000_000_123_456_789
Event = dict[str, Any]


def opened(bundle: Bundle) -> tuple[dict[str, Any], list[Event]]:
    """What a reader of the file sees: `otherData` and events."""
    document = json.loads(b"".join(encoded(trace(bundle, diagnose(bundle).verdicts))))
    assert document.keys() == {"displayTimeUnit", "otherData", "traceEvents"}
    return document["otherData"], document["traceEvents"]


def operations(rows: list[tuple[int, int, int, int, int]], **more: Any) -> Bundle:
    """Rows of rank, number, begin, end (ns after T0; negative: never) and host."""
    rank, seq, begin, end, host = (
        np.array(each, dtype=np.int64) for each in zip(*rows, strict=True)
    )
    columns: dict[str, Any] = {
        "comm": Codes(np.zeros(len(rows), dtype=np.int64), ("world",)),
        "op": Codes(np.zeros(len(rows), dtype=np.int64), ("all_reduce",)),
        "host": Codes(host, tuple(f"h{each}" for each in range(int(host.max()) + 1))),
        "rank": rank, "seq": seq, "enqueue_ns": T0 + begin,
        "done_ns": np.where(end < 0, NULL, T0 + end),
    }  # fmt: skip
    return make_bundle(Manifest(format=FORMAT, version=VERSION, **more), {"collectives": columns})


def slices(events: list[Event], category: str) -> list[Event]:
    return [each for each in events if each["ph"] == "X" and each["cat"] == category]


def threads(events: list[Event]) -> dict[tuple[int, int], str]:
    return {(each["pid"], each["tid"]): each["args"]["name"]
            for each in events if each["name"] == "thread_name"}  # fmt: skip


def test_steps_of_a_rank_do_not_overlap() -> None:
    """Fleet time was read anew between the end of the first and the begin of the second."""
    begin, end = T0 + np.array([0, 0, 900, 1_000]), T0 + np.array([1_000, 1_000, 2_000, 2_000])
    columns = {
        "step": np.array([1, 1, 2, 2]), "rank": np.array([0, 1, 0, 1]), "begin_ns": begin,
        "end_ns": end, "host": Codes(np.zeros(4, dtype=np.int64), ("h0",)),
    }  # fmt: skip
    bundle = make_bundle(Manifest(format=FORMAT, version=VERSION, begin_ns=T0), {"steps": columns})
    found = [(each["tid"], each["ts"], each["dur"]) for each in slices(opened(bundle)[1], "step")]
    assert found == [(1, 0.0, 0.9), (1, 0.9, 1.1), (2, 0.0, 1.0), (2, 1.0, 1.0)]


def test_nanoseconds_are_kept() -> None:
    bundle = operations([(0, 1, 0, 1, 0), (0, 2, 999_999_999_999, 1_000_000_000_001, 0)])
    about, events = opened(bundle)
    got = [(round(each["ts"] * 1000), round(each["dur"] * 1000))
           for each in slices(events, "collective")]  # fmt: skip
    assert int(about["begin_ns"]) == T0
    assert got == [(0, 1), (999_999_999_999, 2)]


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        # one after the other: one thread
        ([(0, 1, 0, 10, 0), (0, 2, 10, 20, 0)], ["rank 0", "rank 0"]),
        # … in whatever order they were written
        ([(0, 2, 10, 20, 0), (0, 1, 0, 10, 0)], ["rank 0", "rank 0"]),
        # at the same time: a thread each, and the first is used again
        ([(0, 1, 0, 10, 0), (0, 2, 9, 30, 0), (0, 3, 10, 12, 0)],
         ["rank 0", "rank 0, 2", "rank 0"]),
        # ranks of two hosts
        ([(0, 1, 0, 10, 0), (5, 1, 0, 10, 1)], ["rank 0", "rank 5"]),
    ],
)  # fmt: skip
def test_threads_of_a_rank(rows: list[tuple[int, int, int, int, int]], names: list[str]) -> None:
    _, events = opened(operations(rows))
    known = threads(events)
    got = [known[each["pid"], each["tid"]] for each in slices(events, "collective")]
    assert got == names
    hosts = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    assert [hosts[each["pid"]] for each in slices(events, "collective")] == [
        f"host h{host}" for *_, host in rows
    ]


def test_an_operation_that_never_ended_lasts_as_long_as_the_recording() -> None:
    rows = [(0, 1, 0, 10, 0), (0, 2, 20, -1, 0), (1, 1, 0, 500, 0)]
    _, events = opened(operations(rows, end_ns=T0 + 9000))
    open_one = next(each for each in slices(events, "collective") if each["args"]["seq"] == 2)
    assert round((open_one["ts"] + open_one["dur"]) * 1000) == 9000
    assert open_one["args"]["ended"] == "not while it was recorded"
    assert "ended" not in slices(events, "collective")[0]["args"]


def test_without_ends_an_operation_is_a_point() -> None:
    bundle = operations([(0, 1, 0, 10, 0), (0, 2, 20, 30, 0)])
    columns = {name: each for name, each in bundle.table("collectives").columns.items()
               if name != "done_ns"}  # fmt: skip
    _, events = opened(make_bundle(bundle.manifest, {"collectives": columns}))
    assert [(each["dur"], each["args"]["ended"]) for each in slices(events, "collective")] == [
        (0, "unknown"), (0, "unknown")]  # fmt: skip


def test_only_the_worst_flows_have_counters() -> None:
    many = MAX_FLOWS + 7
    flow = np.repeat(np.arange(many), 3)
    names = tuple(f"qp{each}" for each in range(many))
    columns = {
        "flow": Codes(flow, names), "at_ns": T0 + np.tile(np.arange(3), many) * 10**8,
        "window_ns": np.full(3 * many, 10**8), "src": Codes(flow * 0, ("h0/n",)),
        "dst": Codes(flow * 0, ("h1/n",)), "owd_p50_ns": 5000.0 + flow,
    }  # fmt: skip
    bundle = make_bundle(Manifest(format=FORMAT, version=VERSION), {"flows": columns})
    about, events = opened(bundle)
    counted = {each["name"].split()[0] for each in events if each["ph"] == "C"}
    assert counted == set(names[7:])
    assert about["flows_left_out"] == 7
    (value,) = {each["args"]["delay_us"] for each in events
                if each["name"].startswith("qp200 ") and each["ph"] == "C"}  # fmt: skip
    assert value == 5.2


def check(case: Case, bundle: Bundle) -> None:
    """Everything recorded is there once, in its time; threads have no overlapping slices."""
    _, events = opened(bundle)
    verdicts = diagnose(bundle).verdicts
    assert len(slices(events, "collective")) == bundle.table("collectives").rows
    assert len(slices(events, "step")) == bundle.table("steps").rows
    known, by_thread = threads(events), defaultdict(list)
    for each in [*slices(events, "collective"), *slices(events, "step")]:
        assert each["dur"] >= 0
        assert (each["pid"], each["tid"]) in known
        by_thread[each["pid"], each["tid"]].append(
            (round(each["ts"] * 1000), round((each["ts"] + each["dur"]) * 1000))
        )
    collective = {(each["pid"], each["tid"]) for each in slices(events, "collective")}
    for thread in collective:
        spans = sorted(by_thread[thread])
        assert all(one[1] <= other[0] for one, other in pairwise(spans))
    instants = [each for each in events if each["ph"] == "i"]
    assert len(instants) == len(verdicts)
    assert {each["pid"] for each in instants} <= {VERDICTS_PID}
    assert {each["pid"] for each in events if each["ph"] == "C"} <= {FLOWS_PID}
    ranks = set(bundle.table("collectives").ints("rank").tolist())
    named = {name for name in known.values() if "," not in name and "steps" not in name}
    assert named == {f"rank {each}" for each in ranks}
    assert case.truth is not None


@pytest.mark.parametrize("generator", ["drawn", "foreign"])
def test_jobs_of_any_generator(generator: str) -> None:
    """The seed is printed."""
    make = {"drawn": drawn.make_case, "foreign": foreign.make_case}[generator]
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    for _ in range(3):
        fault = rng.choice(["", *FAULTS])
        case = make(fault, rng.randrange(10**6))
        print(f"seed {seed} {case.truth}")
        check(case, bundle_of(case))


ROWS = st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 60),
                 st.integers(-20, 90), st.integers(0, 2))  # fmt: skip


@given(st.lists(ROWS, min_size=1, max_size=40))
@settings(max_examples=150)
def test_threads_never_overlap(rows: list[tuple[int, int, int, int, int]]) -> None:
    """Also where ends lie before begins, and one rank is on several hosts."""
    _, events = opened(operations(rows))
    by_thread: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for each in slices(events, "collective"):
        begin, length = round(each["ts"] * 1000), round(each["dur"] * 1000)
        assert length >= 0
        by_thread[each["pid"], each["tid"]].append((begin, begin + length))
    assert sum(map(len, by_thread.values())) == len(rows)
    for spans in by_thread.values():
        spans.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(spans))

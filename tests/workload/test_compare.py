"""Two runs compared: like with like, what changed and what only scatters."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from bench.diagnosis import drawn, foreign
from bench.diagnosis.case import bundle_of
from bench.diagnosis.drawn_faults import FAULTS
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import mostly_slow
from tests.workload.made import MS, T0, Columns, bundle

from syntony.workload.bundle import NULL, OWN_CLOCKS
from syntony.workload.compare import MIN_VALUES, RunComparison, compare


def job(seed: int = 1, *, ranks: int = 4, steps: int = 40, noise: float = 0.03, size: float = 1e6
        ) -> Columns:  # fmt: skip
    """Ranks that compute 80 ms and reduce for 20, two flows, two NICs, one host for two ranks."""
    rng = np.random.default_rng(seed)
    rank, step = np.tile(np.arange(ranks), steps), np.repeat(np.arange(steps), ranks)
    begin = T0 + step * 100 * MS
    computed = 80 * MS * rng.normal(1, noise, len(rank))
    ready = begin + computed.astype(np.int64)
    last = np.repeat(ready.reshape(steps, ranks).max(axis=1), ranks)
    done = last + np.repeat(20 * MS * rng.normal(1, noise, steps), ranks).astype(np.int64)
    host = [f"h{each // 2}" for each in rank]
    windows = np.repeat(np.arange(steps), 2)
    both = len(windows)
    at = T0 + windows * 100 * MS
    return {
        "collectives": {
            "comm": ["world"] * len(rank), "op": ["all_reduce"] * len(rank), "seq": step,
            "rank": rank, "host": host, "enqueue_ns": ready, "done_ns": done,
            "bytes": np.full(len(rank), size), "nranks": np.full(len(rank), float(ranks)),
        },
        "steps": {
            "step": step, "rank": rank, "begin_ns": begin, "end_ns": done, "host": host,
            "compute_ns": computed, "comm_ns": (done - ready).astype(float),
        },
        "flows": {
            "flow": [f"qp{each}" for each in np.tile([0, 1], steps)], "at_ns": at,
            "window_ns": np.full(both, 100 * MS), "src": ["h0/n0", "h1/n0"] * steps,
            "dst": ["h1/n0", "h0/n0"] * steps, "tc": np.full(both, 106.0),
            "owd_p50_ns": 5000 * rng.normal(1, noise, both),
            "rate_bps": 9e10 * rng.normal(1, noise, both), "retransmits": np.zeros(both),
        },
        "links": {
            "at_ns": at, "window_ns": np.full(both, 100 * MS),
            "link": ["h0/n0", "h1/n0"] * steps, "pause_ns": np.zeros(both),
            "pcie_width": np.full(both, 16.0),
        },
    }  # fmt: skip


def compared(before: Columns, after: Columns) -> RunComparison:
    return compare(bundle(before), bundle(after))


def named(result: RunComparison) -> dict[tuple[str, str], float | None]:
    return {(each.measure, each.subject): each.ratio for each in result.changes}


def slower_steps(columns: Columns) -> None:
    steps = columns["steps"]
    steps["end_ns"] = steps["begin_ns"] + ((steps["end_ns"] - steps["begin_ns"]) * 1.5).astype(int)


def of(table: str, column: str, key: str, value: str, factor: float) -> Any:
    def change(columns: Columns) -> None:
        rows = columns[table]
        mine = np.array([each == value for each in rows[key]])
        rows[column] = np.where(mine, rows[column] * factor, rows[column])

    return change


def set_to(table: str, column: str, key: str, subject: str, value: float) -> Any:
    def change(columns: Columns) -> None:
        rows = columns[table]
        mine = np.array([each == subject for each in rows[key]])
        rows[column] = np.where(mine, value, rows[column])

    return change


@pytest.mark.parametrize(
    ("change", "measure", "subject", "ratio", "worse"),
    [
        (slower_steps, "step", "steps", 1.5, True),
        (of("flows", "owd_p50_ns", "src", "h0/n0", 20.0), "owd_p50_ns", "h0/n0 to h1/n0", 20, True),
        (of("flows", "owd_p50_ns", "src", "h1/n0", 0.5), "owd_p50_ns", "h1/n0 to h0/n0", 0.5,
         False),
        (of("flows", "rate_bps", "src", "h0/n0", 0.5), "rate_bps", "h0/n0 to h1/n0", 0.5, True),
        (of("links", "pcie_width", "link", "h1/n0", 0.5), "pcie_width", "h1/n0", 0.5, True),
        (set_to("links", "pause_ns", "link", "h0/n0", 5e6), "pause_ns", "h0/n0", None, True),
        (set_to("flows", "retransmits", "src", "h0/n0", 7), "retransmits", "h0/n0 to h1/n0", None,
         True),
    ],
)  # fmt: skip
def test_what_changed_is_named_alone(
    change: Any, measure: str, subject: str, ratio: float | None, worse: bool
) -> None:
    after = job(2)
    change(after)
    result = compared(job(1), after)
    assert result.comparable
    assert [(each.measure, each.subject, each.worse) for each in result.changes] == [
        (measure, subject, worse)
    ]
    found = result.changes[0].ratio
    assert found == (None if ratio is None else pytest.approx(ratio, rel=0.03))


def test_an_operation_that_takes_longer_and_ranks_that_come_late() -> None:
    after = job(2)
    rows = after["collectives"]
    late = rows["rank"] == 3
    rows["enqueue_ns"] = rows["enqueue_ns"] + np.where(late, 30 * MS, 0)
    rows["done_ns"] = rows["done_ns"] + 60 * MS
    found = named(compared(job(1), after))
    name = "all_reduce of 1 MB over 4 ranks"
    assert found["operation", name] == pytest.approx(50 / 20, rel=0.15)
    lateness = found["lateness", name]
    assert lateness is not None
    assert lateness > 3


def test_a_tenth_is_the_least_that_counts() -> None:
    for factor, count in ((1.09, 0), (1.11, 1), (1 / 1.09, 0), (1 / 1.11, 1)):
        after = job(1, noise=1e-6)
        of("flows", "rate_bps", "src", "h0/n0", factor)(after)
        assert len(compared(job(1, noise=1e-6), after).changes) == count, factor


def test_scatter_explains_what_it_can() -> None:
    """The same change, of values that scatter little and much."""
    for noise, count in ((0.02, 1), (0.9, 0)):
        before, after = job(1, steps=12), job(1, steps=12)
        rng = np.random.default_rng(5)
        for columns, factor in ((before, 1.0), (after, 1.3)):
            rows = columns["flows"]
            scatter = np.exp(rng.normal(0, noise, len(rows["owd_p50_ns"])))
            rows["owd_p50_ns"] = 5000 * factor * scatter
        found = [each for each in compared(before, after).changes if each.measure == "owd_p50_ns"]
        assert (len(found) > 0) == (count > 0), noise


@pytest.mark.parametrize("count", [MIN_VALUES - 1, MIN_VALUES])
def test_few_values_say_nothing(count: int) -> None:
    before, after = job(1, noise=1e-6), job(1, noise=1e-6)
    of("flows", "rate_bps", "src", "h0/n0", 0.5)(after)
    for name, values in after["flows"].items():
        after["flows"][name] = values[: 2 * count]
    assert bool(compared(before, after).changes) == (count >= MIN_VALUES)


def test_a_wrong_clock_is_no_change() -> None:
    after = job(2)
    after["flows"]["owd_p50_ns"] = -after["flows"]["owd_p50_ns"]
    assert not compared(job(1), after).changes


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (job(ranks=8), "8 ranks"),
        (job(size=4e6), "no operation of the same kind, size and ranks"),
        ({"flows": job()["flows"]}, ""),
    ],
)
def test_unlike_runs(after: Columns, why: str) -> None:
    before = job() if why else {"steps": job()["steps"]}
    result = compared(before, after)
    assert not result.comparable
    assert not result.changes
    assert (why or "no table is in both") in result.sentences[0]


@pytest.mark.parametrize(
    ("alter", "text"),
    [
        (lambda c: c["flows"].update(tc=np.full(len(c["flows"]["tc"]), 96.0)), "tc 106 against 96"),
        (lambda c: c.pop("links"), "links: in one run only"),
        (lambda c: c["collectives"].update(op=["all_gather", *c["collectives"]["op"][1:]]),
         "1 kinds of operations are in one run only"),
    ],
)  # fmt: skip
def test_what_was_set_up_differently_is_said(alter: Any, text: str) -> None:
    after = job(2)
    alter(after)
    result = compared(job(1), after)
    assert result.comparable
    assert any(text in each for each in result.differs)
    assert text in result.sentences[-1]


def test_on_other_hosts_the_fabric_is_compared_as_a_whole() -> None:
    after = job(2)
    for table in after.values():
        for name in ("host", "src", "dst", "link"):
            if name in table:
                table[name] = [each.replace("h1", "h7") for each in table[name]]
    after["flows"]["owd_p50_ns"] = after["flows"]["owd_p50_ns"] * 3
    after["links"]["pcie_width"] = after["links"]["pcie_width"] / 2
    result = compared(job(1), after)
    assert named(result) == {("owd_p50_ns", "flows"): pytest.approx(3, rel=0.03)}
    assert "1 of 2 hosts are others" in result.sentences[-1]


def test_without_one_clock_ranks_are_not_compared() -> None:
    after = job(2)
    after["collectives"]["done_ns"] = after["collectives"]["done_ns"] + 60 * MS
    result = compare(bundle(job(1), OWN_CLOCKS), bundle(after, OWN_CLOCKS))
    assert not result.changes
    assert "not on one clock" in result.sentences[-1]


def test_operations_that_a_rank_never_finished_are_left_out() -> None:
    """The others gave up early: such operations are not shorter, they are not done."""
    after = job(2)
    rows = after["collectives"]
    early = rows["done_ns"] - 15 * MS
    done = np.where(rows["rank"] == 3, NULL, early)
    rows["done_ns"] = np.where(rows["seq"] < 10, rows["done_ns"], done)
    assert ("operation", "all_reduce of 1 MB over 4 ranks") not in named(compared(job(1), after))


GENERATORS = {"drawn": drawn.make_case, "foreign": foreign.make_case}


@pytest.mark.parametrize("runs", mostly_slow((1, 3), {1}))
@pytest.mark.parametrize("generator", GENERATORS)
def test_runs_of_any_generator_forwards_and_backwards(generator: str, runs: int) -> None:
    """A run does not differ from itself; what is worse one way is better the other; the order of
    rows does not matter. The seed is printed."""
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    for _ in range(runs):
        fault = rng.choice([*FAULTS])
        case = GENERATORS[generator](fault, rng.randrange(10**6))
        print(f"seed {seed} {fault} {case.truth}")
        one = bundle_of(case)
        own = compare(one, one)
        assert own.comparable
        assert not any((own.changes, own.appeared, own.gone, own.differs))
        other = case.tables
        for table, columns in other.items():
            for name in ("owd_p50_ns", "rate_bps", "runq_ns", "compute_ns"):
                if name in columns:
                    factor = rng.choice((0.4, 1.0, 2.5))
                    columns[name] = [each and each * factor for each in columns[name]]
            order = rng.sample(range(len(next(iter(columns.values())))),
                               len(next(iter(columns.values()))))  # fmt: skip
            other[table] = {name: [values[row] for row in order]
                            for name, values in columns.items()}  # fmt: skip
        two = bundle_of(case)
        there, back = compare(one, two), compare(two, one)
        assert {(each.measure, each.subject, each.worse) for each in there.changes} == {
            (each.measure, each.subject, not each.worse) for each in back.changes}  # fmt: skip
        mirrored = {(each.measure, each.subject): each.ratio for each in back.changes}
        for each in there.changes:
            inverse = mirrored[each.measure, each.subject]
            if each.ratio and inverse:
                assert math.isclose(each.ratio * inverse, 1, rel_tol=2e-3)
        assert there.appeared == back.gone


NUMBERS = st.sampled_from([0.0, -1.0, 1e-300, 1.0, 3e5, 1e18, 2.0**62, math.nan, math.inf])


@given(st.data())
@settings(max_examples=60)
def test_any_values(data: st.DataObject) -> None:
    both = []
    for seed in (1, 2):
        columns = job(seed, steps=6)
        for table in data.draw(st.lists(st.sampled_from(sorted(columns)), unique=True, max_size=3)):
            rows = columns[table]
            name = data.draw(st.sampled_from(sorted(rows)))
            count = len(rows[name])
            if isinstance(rows[name], list):
                rows[name] = data.draw(st.lists(st.sampled_from(["", "a", "h0/n0", "\x1b[3"]),
                                                min_size=count, max_size=count))  # fmt: skip
            elif rows[name].dtype == np.float64:
                rows[name] = np.array(data.draw(st.lists(NUMBERS, min_size=count, max_size=count)))
            else:
                rows[name] = rows[name] + data.draw(st.sampled_from([0, 1, 10**12, -(10**17)]))
        both.append(columns)
    result = compared(*both)
    for each in result.changes:
        assert each.ratio is None or (math.isfinite(each.ratio) and each.ratio >= 0)
        assert each.before >= 0
        assert each.after >= 0
        assert (each.after > each.before) != (each.after < each.before)

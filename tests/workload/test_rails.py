"""Which of two rails is to blame: a generator of its own, of steps whose bytes go at a line's rate.

Drawn: hosts, flows, windows, steps, what each rail carries in a step before and since. A step takes
as long as its fullest rail, so that a rail that is full slows the others down.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

import numpy as np
import pytest
from tests.workload.made import MS, T0, Columns, bundle

from syntony.workload.classes import rail_imbalance
from syntony.workload.facts import BundleFacts
from syntony.workload.grid import N

SEED = random.randrange(1 << 32)
CASES = 25
WINDOWS = 60
LINE = 1e9
"""Bytes a window and flow."""


class Job(NamedTuple):
    """Two rails of a job."""

    before: tuple[float, float]
    """What a flow of each rail carries in a step, in windows at the line's rate."""
    since: tuple[float, float]
    begin: int
    compute: float
    """Of each step, in windows."""
    events: str
    """The table that says how fast the job goes."""


def draw_job(draw: random.Random, since: tuple[float, float], **given: object) -> Job:
    part = draw.uniform(0.3, 0.8)
    return Job(
        before=(part, part), since=(part * since[0], part * since[1]),
        begin=draw.randrange(20, 40), compute=draw.choice((0.1, draw.uniform(0.1, 2.0))),
        events=draw.choice(("collectives", "steps")),
    )._replace(**given)  # type: ignore[arg-type] # fmt: skip


def tables(job: Job, draw: random.Random) -> Columns:
    hosts = draw.randrange(3, 8)
    sent = np.zeros((2, WINDOWS))
    at, begun = 0.0, []
    while at < WINDOWS:
        begun.append(at)
        carry = job.since if at >= job.begin else job.before
        at += job.compute
        for rail in range(2):
            _fill(sent[rail], at, at + carry[rail])
        at += max(carry)
    flows = [(f"h{host}/e{rail}", f"h{(host + 1) % hosts}/e{rail}", f"e{rail}")
             for host in range(hosts) for rail in range(2)]  # fmt: skip
    window = np.repeat(np.arange(WINDOWS), len(flows))
    bytes_ = np.array([sent[int(rail[1]), at] * LINE * draw.uniform(0.97, 1.03)
                       for at in range(WINDOWS) for _, _, rail in flows])  # fmt: skip
    made: Columns = {"flows": {
        "flow": [f"{src}>{dst}" for src, dst, _ in flows] * WINDOWS,
        "src": [src for src, _, _ in flows] * WINDOWS,
        "dst": [dst for _, dst, _ in flows] * WINDOWS,
        "rail": [rail for _, _, rail in flows] * WINDOWS, "at_ns": T0 + window * 100 * MS,
        "window_ns": np.full(len(window), 100 * MS), "bytes": bytes_,
    }}  # fmt: skip
    when = np.array([T0 + round(each * 100 * MS) for each in begun for _ in range(hosts)])
    rank, seq = np.tile(np.arange(hosts), len(begun)), np.repeat(np.arange(len(begun)), hosts)
    if job.events == "collectives":
        made["collectives"] = {
            "comm": ["world"] * len(when), "op": ["all_reduce"] * len(when), "seq": seq,
            "rank": rank, "host": [f"h{each}" for each in rank], "enqueue_ns": when,
        }  # fmt: skip
    elif job.events == "steps":
        made["steps"] = {"step": seq, "rank": rank, "begin_ns": when, "end_ns": when + MS}
    return made


def _fill(windows: np.ndarray, begin: float, end: float) -> None:
    for place in range(int(begin), min(int(end) + 1, WINDOWS)):
        windows[place] += max(0.0, min(end, place + 1) - max(begin, place))


def named(job: Job, draw: random.Random) -> list[set[str]]:
    return [
        set(each.subjects) for each in rail_imbalance.find(BundleFacts(bundle(tables(job, draw))))
    ]


def test_the_rail_that_carries_something_else_for_a_step_is_named() -> None:
    """Also where it is full, so that in a second it carries what it did and the other carries
    less. Steps that begin and end within a window blur some cases: then both are named."""
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    alone = 0
    for _ in range(CASES):
        rail, factor = draw.randrange(2), draw.choice((0.2, 0.4, 2.2, 3.0))
        since = (factor, 1.0) if rail == 0 else (1.0, factor)
        job = draw_job(draw, since)
        found = named(job, draw)
        assert found in ([{f"e{rail}"}], [{"e0", "e1"}]), job
        alone += found == [{f"e{rail}"}]
    assert alone >= 0.8 * CASES


@pytest.mark.parametrize(
    ("since", "given"),
    [
        ((0.4, 1.6), {}),  # what one lost the other has
        ((1.3, 3.5), {}),  # larger steps, of which one rail has more
        ((0.3, 1.0), {"begin": 0}),  # it was always so
        ((0.3, 1.0), {"events": ""}),  # nobody knows how fast the job goes
        ((2.5, 1.0), {"events": ""}),
    ],
)
def test_two_rails_are_named_where_it_may_be_either(
    since: tuple[float, float], given: dict[str, object]
) -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    for _ in range(CASES):
        job = draw_job(draw, since, **given)
        assert named(job, draw) == [{"e0", "e1"}], job


@pytest.mark.parametrize(("windows", "enough"), [(3, False), (9, False), (10, True), (20, True)])
def test_a_rail_is_named_where_two_sums_show_it(windows: int, enough: bool) -> None:
    """A sum is of five windows: what the first seconds of a job carry names nothing yet."""
    draw = random.Random(SEED)
    job = draw_job(draw, (0.3, 1.0), begin=0, events="", compute=0.1)
    flows = tables(job, draw)["flows"]
    kept = np.flatnonzero(np.asarray(flows["at_ns"]) < T0 + windows * 100 * MS)
    cut = {name: [values[row] for row in kept] for name, values in flows.items()}
    facts = BundleFacts(bundle({"flows": cut}))
    assert len(rail_imbalance.find(facts)) == enough
    notes = [gap.reason for gap in facts.gaps if "rail-imbalance" in gap.reason]
    assert len(notes) == (not enough)
    assert all(f"bytes of {windows} windows, 10 are needed" in each for each in notes)


@pytest.mark.parametrize(
    ("proto", "begin", "named"), [("rc", 0, True), ("tcp", 0, False), ("tcp", 30, True)]
)
def test_tcp_is_to_use_rails_alike_only_if_it_did(proto: str, begin: int, named: bool) -> None:
    """One connection uses one rail, and another one after a failover."""
    draw = random.Random(SEED)
    flows = tables(draw_job(draw, (0.3, 1.0), begin=begin, events="", compute=0.1), draw)["flows"]
    flows["proto"] = [proto] * len(flows["flow"])
    assert bool(rail_imbalance.find(BundleFacts(bundle({"flows": flows})))) is named


def test_tcp_beside_rdma_does_not_hide_a_rail() -> None:
    """As of a checkpoint, or of data that are loaded."""
    draw = random.Random(SEED)
    flows = tables(draw_job(draw, (0.3, 1.0), begin=0, events="", compute=0.1), draw)["flows"]
    own = np.array([each == flows["flow"][0] for each in flows["flow"]])
    flows = {name: [*values, *(value for value, mine in zip(values, own, strict=True) if mine)]
             for name, values in flows.items()}  # fmt: skip
    rows, more = len(own), int(own.sum())
    flows["flow"] = [*flows["flow"][:rows], *["a checkpoint"] * more]
    flows["bytes"] = [*flows["bytes"][:rows], *(0.05 * each for each in flows["bytes"][rows:])]
    flows["proto"] = ["rc"] * rows + ["tcp"] * more
    assert rail_imbalance.find(BundleFacts(bundle({"flows": flows})))


@pytest.mark.parametrize("factor", [1.0, 0.4, 3.0])
def test_larger_or_smaller_steps_are_no_imbalance(factor: float) -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    for _ in range(CASES):
        assert named(draw_job(draw, (factor, factor)), draw) == []


def test_a_step_longer_than_five_windows_is_seen_as_a_whole() -> None:
    """Both rails send at the line's rate, one for half as long; then both wait for longer."""
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    for _ in range(CASES):
        part = draw.uniform(2.5, 3.5)
        job = draw_job(draw, (1.0, 1.0))._replace(
            before=(part, part), since=(part, part / 2), begin=28, compute=draw.uniform(4, 5),
            events="steps",
        )  # fmt: skip
        made = tables(job, draw)
        made["steps"]["end_ns"] = made["steps"]["begin_ns"] + 800 * MS
        found = rail_imbalance.find(BundleFacts(bundle(made)))
        assert [set(each.subjects) for each in found] in ([{"e1"}], [{"e0", "e1"}]), job


@pytest.mark.parametrize(("operations", "known"), [(N - 1, False), (N, True)])
@pytest.mark.parametrize("table", ["collectives", "steps"])
def test_a_pace_is_that_of_five_operations_at_least(
    operations: int, known: bool, table: str
) -> None:
    """Of one rank, within the time that is asked for: others and earlier ones do not count."""
    draw = random.Random(SEED)
    made = tables(draw_job(draw, (1.0, 1.0), events=table), draw)
    begin_ns, apart_ns = T0 + 1000 * MS, 7 * MS
    at_ns = begin_ns + np.arange(-3, operations) * apart_ns
    when, rank = np.repeat(at_ns, 2), np.tile([0, 1], len(at_ns))
    rows = {"rank": rank, "seq": np.arange(len(rank)) // 2, "enqueue_ns": when,
            "comm": ["world"] * len(rank), "op": ["all_reduce"] * len(rank),
            "host": [f"h{each}" for each in rank]}  # fmt: skip
    if table == "steps":
        rows = {"rank": rank, "step": rows["seq"], "begin_ns": when, "end_ns": when + MS}
    facts = BundleFacts(bundle({"flows": made["flows"], table: rows}))
    pace = rail_imbalance._pace(facts, begin_ns, int(at_ns[-1]) + 1)
    if known:
        assert pace == pytest.approx(1 / apart_ns)
    else:
        assert math.isnan(pace)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ([0.4, 1.0, 1.0], [0]),
        ([0.4, 1.09, 0.92], [0]),
        ([0.4, 1.15, 1.0], [0, 1, 2]),  # whether the second one has changed is not clear
        ([1.0, 1.0, 1.0], [0, 1, 2]),
        ([math.nan, 1.0, 1.0], [0, 1, 2]),
        ([0.4, 1.0, 3.0], [0, 2]),
    ],
)
def test_rails_that_changed_are_named_where_all_others_did_not(
    change: list[float], named: list[int]
) -> None:
    assert rail_imbalance._changed([0, 1, 2], np.array(change)) == named

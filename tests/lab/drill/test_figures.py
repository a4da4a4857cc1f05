"""From records to figures: tables of made-up runs whose figures are known."""

from __future__ import annotations

import itertools
import re
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.errors import UsageError
from syntony.lab.drill import chart, scenarios
from syntony.lab.drill.figures import completions_ns, figures, throughput
from syntony.lab.drill.fleet import PathEvent, first_verdict_ns
from syntony.lab.drill.trial import NicFlapTrial, Outage
from syntony.lab.jobs.records import RankDone, RankFailed, Record, StepRecord, parse_line, to_line
from syntony.model import MS, S

FAULT_NS, HEALED_NS, WISHED_NS = 4 * S, 9 * S, 15 * S
RANKS = 2


def trial(durations_ms: list[int], *, end: str = "finished", **more: Any) -> NicFlapTrial:
    """Two ranks in step, the second 1 ms later; measuring starts when the first step is done."""
    records: list[Record] = []
    at_ns = 0
    for number, ms in enumerate([50, *durations_ms]):
        start_ns, at_ns = at_ns, at_ns + ms * MS
        if number == 0:
            at_ns = 0
        records += [
            StepRecord(rank=r, step=number, start_ns=start_ns, end_ns=at_ns + (r - 1) * MS, wrong=0)
            for r in range(RANKS)
        ]
    if end == "finished":
        records += [RankDone(rank=r, at_ns=at_ns, steps=1) for r in range(RANKS)]
    if end == "died":
        records.append(
            RankFailed(rank=0, at_ns=12 * S, step=1, error="reset", connection_lost=True)
        )
    base = NicFlapTrial(
        name="x",
        mode="plain-tcp",
        job="all-reduce (built-in)",
        ranks=RANKS,
        elements=1024,
        scenario="link-down",
        began_ns=0,
        fault_ns=(FAULT_NS, HEALED_NS),
        outages=(
            Outage(
                kind="link-down",
                target="h1/rail0",
                requested_ns=FAULT_NS,
                began_ns=FAULT_NS,
                ended_ns=HEALED_NS,
            ),
        ),
        wished_end_ns=WISHED_NS,
        ended_ns=WISHED_NS if end == "finished" else 75 * S,
        hung=(0, 1) if end == "hung" else (),
        finished=end == "finished",
        records=tuple(records),
    )
    return msgspec.structs.replace(base, **more)


STEADY = [100] * 150
STALLED = [100] * 40 + [8000] + [100] * 30
TABLE: dict[str, tuple[NicFlapTrial, dict[str, Any]]] = {
    "nothing happens": (
        trial(STEADY),
        {"outcome": "finished", "steps": 150, "step_p50_s": 0.1, "longest_step_s": 0.1,
         "stalled_s": 0, "throughput_before": 10, "throughput_during": 10, "throughput_after": 10,
         "resumed_after_s": 0.1, "return_gap_s": 0, "resets": 0, "wrong": 0, "detect_ms": None},
    ),
    "a stall beyond the end of the fault": (
        trial(STALLED),
        {"outcome": "finished", "steps": 71, "longest_step_s": 8, "stalled_s": 7.9,
         "throughput_before": 10, "throughput_during": 0.125, "resumed_after_s": 3,
         "return_gap_s": 0, "throughput_after": (30 + 3 / 8) / 6},
    ),
    "half of it while the fault lasts, a gap on return": (
        trial([100] * 40 + [200] * 25 + [400] + [100] * 56),
        {"longest_step_s": 0.4, "stalled_s": 0.3, "throughput_during": 5, "return_gap_s": 0.2,
         "throughput_after": 57 / 6},
    ),
    "stands while it lasts: two steps do not say what is usual, and that one is long is no gap": (
        trial([100] * 40 + [2500, 2500] + [400] + [100] * 56), {"return_gap_s": 0.3}
    ),
    "hangs for ever: the open step is as long as it was watched, and no throughput": (
        trial([100] * 40, end="hung"),
        {"outcome": "hung", "steps": 40, "longest_step_s": 71, "stalled_s": 70.9,
         "throughput_before": 10, "throughput_during": 0, "throughput_after": 0,
         "resumed_after_s": None, "return_gap_s": None},
    ),
    "dies: the open step ends when the last rank gives up": (
        trial([100] * 40, end="died"),
        {"outcome": "died", "steps": 40, "longest_step_s": 8, "resets": 1, "throughput_after": 0},
    ),
    "dies in the first step": (
        trial([], end="died"),
        {"outcome": "died", "steps": 0, "step_p50_s": None, "longest_step_s": 12},
    ),
    "Syntony's verdict is passed on": (
        trial(STEADY, detect_ns=12 * MS), {"detect_ms": 12}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_figures(name: str) -> None:
    made, wanted = TABLE[name]
    found = msgspec.structs.asdict(figures(made))
    assert {key: found[key] for key in wanted} == {
        key: value if value is None or isinstance(value, str) else pytest.approx(value)
        for key, value in wanted.items()
    }


def test_wrong_results_are_counted_once_per_rank_and_step() -> None:
    made = trial(STEADY)
    bad = StepRecord(rank=0, step=3, start_ns=0, end_ns=300 * MS, wrong=7)
    records = tuple(bad if (r.rank, getattr(r, "step", -1)) == (0, 3) else r for r in made.records)
    assert figures(msgspec.structs.replace(made, records=records)).wrong == 1


def test_a_step_counts_when_its_last_rank_has_it() -> None:
    made = trial([100] * 3)
    alone = StepRecord(rank=0, step=4, start_ns=0, end_ns=S, wrong=0)
    assert list(completions_ns([*made.records, alone], RANKS)) == [
        i * 100 * MS for i in range(4)
    ]  # fmt: skip


@given(
    durations=st.lists(st.integers(1, 10**9), min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 10**10), max_size=6),
)
def test_throughput_of_the_parts_adds_up_to_all_steps(
    durations: list[int], cuts: list[int]
) -> None:
    edges = np.concatenate([[0], np.cumsum(np.array(durations, dtype=np.int64))])
    borders = sorted({0, int(edges[-1]), *(cut for cut in cuts if cut < edges[-1])})
    parts = [throughput(edges, a, b) * (b - a) / S for a, b in itertools.pairwise(borders)]
    assert sum(parts) == pytest.approx(len(durations))


def test_records_survive_their_line_and_nothing_else_is_a_record() -> None:
    for record in trial([100], end="died").records:
        assert parse_line(to_line(record).encode()) == record
    for line in (b"", b"{}", b"[W1121] warning: x", b'{"event": "step"}', b"\xff\xfe", b"1"):
        assert parse_line(line) is None


def test_the_chart_says_what_was_found() -> None:
    trials = [trial(STEADY, name="no failure", outages=()), trial(STALLED, name="today"),
              trial([100] * 40, end="hung", name="hangs")]  # fmt: skip
    drawn = chart.make_chart(trials, [figures(t) for t in trials], "the NIC goes down")
    calm, today, hangs = drawn.lines
    assert drawn.faults_s == ((0.0, 5.0),)
    assert min(calm.rate) == pytest.approx(10)
    assert {round(r, 3) for a, r in zip(today.at_s, today.rate, strict=True) if 1 < a < 7} == {
        0.125
    }
    assert max(r for a, r in zip(hangs.at_s, hangs.rate, strict=True) if a > 0.5) == 0
    assert calm.ends_s is None
    assert hangs.ends_s == pytest.approx(11, abs=0.25)
    svg = drawn.render("svg").decode()
    for text in ("no failure", "today", "hung after 71.0 s", "longest step 8.0 s", "healed",
                 "link-down h1/rail0", "the NIC goes down"):  # fmt: skip
        assert text in svg
    assert re.search(r"#8d99ae.*#d1495b.*#00798c", svg, re.DOTALL)
    assert drawn.render("png").startswith(b"\x89PNG")
    assert svg == drawn.render("svg").decode()


@given(line=st.binary(max_size=200))
def test_whatever_a_job_prints_is_a_record_or_nothing(line: bytes) -> None:
    record = parse_line(line)
    assert record is None or parse_line(to_line(record).encode()) == record


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        ([], None),
        ([("local-carrier", 130, 10)], 120),
        ([("peer", 190, 5), ("remote-nic", 170, 20), ("fabric", 160, 1)], 150),
        ([("join", 110, 0), ("return", 120, 0), ("stop", 130, 0)], None),
        ([("local-nic", 105, 10)], None),  # known before the fault: of something else
        ([("local-nic", 320, 10)], None),  # after it
    ],
)
def test_the_first_verdict_on_a_fault(
    events: list[tuple[str, int, int]], wanted: int | None
) -> None:
    rows = [PathEvent(cause=cause, ts_ns=ts, act_ns=act) for cause, ts, act in events]
    assert first_verdict_ns(rows, 100, 300) == wanted


@pytest.mark.parametrize("name", scenarios.NAMES)
def test_scenarios_are_faults_of_the_lab_in_order(name: str) -> None:
    from syntony.lab.faults import parse_order
    from syntony.lab.plan import FabricSpec, make_plan

    made = scenarios.make(name, outage_ns=3 * S, spine_link="leaf0-0/spine1")
    plan = make_plan(FabricSpec(hosts=4))
    over_ns = 0
    for fault in made.faults:
        parse_order(plan, fault.kind, fault.target, fault.options)
        assert fault.after_ns >= over_ns
        over_ns = fault.after_ns + fault.for_ns
    assert made.span_ns == over_ns >= 3 * S


def test_a_scenario_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match=r"no fault 'earthquake'; .* link-down"):
        scenarios.make("earthquake")

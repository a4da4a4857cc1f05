"""From rows of the store to bundles: flows of a job, their rates, delays and paths."""

from __future__ import annotations

import random

import pytest
from tests.workload.stored_rows import (
    T0,
    Rows,
    bundle,
    columns,
    delay,
    flow,
    process,
    record,
    steps_of,
)

from syntony.model import S
from syntony.wire.tables import COLLECTIVE, JOB_DELAY, JOB_FLOW, JOB_PROCESS, PROBE
from syntony.workload.flow_lines import NOT_SAMPLED, flow_lines
from syntony.workload.recorded import IDLE_SHARE, SETTLE_NS, recorded


def test_seconds_of_flows_are_whole_when_they_are_stored() -> None:
    rows: Rows = {
        COLLECTIVE.name: steps_of(2, 100, {}, random.Random(1)),
        JOB_FLOW.name: [flow("h0/rail0", "h1/rail0", second) for second in range(60)],
    }
    now_ns = T0 + 8 * S
    found = recorded("night", columns(rows), T0, now_ns, now_ns)
    assert max(found.tables["flows"]["at_ns"]) == now_ns - S
    assert max(found.tables["collectives"]["enqueue_ns"]) < now_ns - SETTLE_NS
    rows[JOB_PROCESS.name] = [process(f"h{rank}", rank, 6, ended=1) for rank in range(2)]
    found = recorded("night", columns(rows), T0, now_ns, now_ns)
    assert max(found.tables["flows"]["at_ns"]) == T0 + 5 * S


def test_flows_have_half_their_round_trip_their_ranks_and_their_path() -> None:
    rows: Rows = {
        JOB_FLOW.name: [
            flow("h0/rail0", "h1/rail0", 1),
            flow("h0/rail0", "h1/rail0", 2, hops="a->b b->c", retransmits=3),
            flow("h1/rail0", "h0/rail0", 1, tx_bps=IDLE_SHARE * 1e8),
            flow("h0/rail0", "10.9.9.9", 1),
        ],
        JOB_PROCESS.name: [process("h0", 4), process("h1", 5)],
    }
    found = record(rows)
    flows = found.tables["flows"]
    assert flows["flow"] == ["h0/rail0:40000>h1/rail0:5000"] * 2
    assert (flows["owd_p50_ns"], flows["rate_bps"]) == ([100_000] * 2, [1e8] * 2)
    assert (flows["rank"], flows["peer_rank"]) == ([4, 4], [5, 5])
    assert flows["hops"] == [["a->b", "b->c"]] * 2
    assert flows["retransmits"] == [0, 3]
    assert found.notes == ("1 flows go to addresses of no NIC of the fleet: left out",)
    two = [*rows[JOB_PROCESS.name], process("h0", 6)]
    flows = record({**rows, JOB_PROCESS.name: two}).tables["flows"]
    assert "rank" not in flows  # two ranks there: nobody says whose the flow is


def test_seconds_in_which_no_flow_was_recorded_are_counted() -> None:
    for seconds, notes in (((3, 4, 5), 0), ((3, 5, 9), 1), ((), 0)):
        rows = [flow(*ends, second) for second in seconds
                for ends in (("h0/rail0", "h1/rail0"), ("h1/rail0", "h0/rail0"))]  # fmt: skip
        found = record({JOB_FLOW.name: rows, JOB_PROCESS.name: [process("h0", 0)]})
        assert len(found.notes) == notes
        assert all("no TCP flow was recorded in 4 of 7 s" in each for each in found.notes)


@pytest.mark.parametrize(("seconds", "noted"), [(3, True), (19, True), (20, False)])
def test_flows_of_a_small_part_of_a_jobs_time_are_said_to_be(seconds: int, noted: bool) -> None:
    """Of 40 s: their first rows are missing, or their newest."""
    processes = [process("h0", 0, second) for second in range(40)]
    for first in (0, 40 - seconds):
        rows = [flow(*ends, first + second) for second in range(seconds)
                for ends in (("h0/rail0", "h1/rail0"), ("h1/rail0", "h0/rail0"))]  # fmt: skip
        found = record({JOB_FLOW.name: rows, JOB_PROCESS.name: processes})
        assert found.manifest["end_ns"] - found.manifest["begin_ns"] == 40 * S
        text = f"no TCP flow was recorded in {40 - seconds} of 40 s"
        assert [text in each for each in found.notes] == [True] * noted


def test_a_connection_on_a_detour_is_another_flow_of_which_the_ends_are_known() -> None:
    ways = ["a->b b->c c->d", "a->b c->d"]
    rows = [
        flow("h0/rail0", "h1/rail0", second, hops=ways[detour], connection=name)
        for second, (detour, name) in enumerate([(0, "tcp"), (1, "redrawn-1-2"), (0, "tcp")])
    ]  # fmt: skip
    flows = record({JOB_FLOW.name: rows}).tables["flows"]
    own = "h0/rail0:40000>h1/rail0:5000"
    assert dict(zip(flows["flow"], flows["hops"], strict=True)) == {
        own: ["a->b", "b->c", "c->d"], f"{own} (detour)": ["a->b", "c->d"],
    }  # fmt: skip
    assert len(flows["flow"]) == 3


def test_flows_are_told_worst_first_beside_probes() -> None:
    ways = [("h0/rail0", "h1/rail0", 3), ("h1/rail0", "h2/rail0", 1), ("h2/rail0", "h0/rail0", 2)]
    rows: Rows = {
        JOB_FLOW.name: [
            flow(src, dst, second, rtt_ns=200_000 * times)
            for src, dst, times in ways
            for second in range(5)
        ],
        PROBE.name: [
            {"ts_ns": T0 + second * S, "src": src, "dst": dst, "sent": 40, "count": 40,
             "owd_p50_ns": owd_ns}
            for second in range(5)
            for src, dst, owd_ns in (
                ("h0/rail0", "h1/rail0", 1_000), ("h1/rail0", "h0/rail0", 3_000),
                ("h1/rail0", "h2/rail0", 9_000),
            )
        ],
    }  # fmt: skip
    lines = flow_lines(bundle(record(rows)))
    assert [each.src for each in lines] == ["h0/rail0", "h2/rail0", "h1/rail0"]
    assert [each.in_band_ns for each in lines] == [300_000, 200_000, 100_000]
    assert [each.out_of_band_ns for each in lines] == [2_000, None, None]  # both ways, or not
    assert flow_lines(bundle(record({COLLECTIVE.name: steps_of(2, 9, {}, random.Random(1))}))) == ()


def test_one_way_delays_stand_beside_probes_of_their_direction_worst_first() -> None:
    there, back = ("h0/rail0", "h1/rail0"), ("h1/rail0", "h0/rail0")
    far = ("h2/rail0", "h1/rail0")
    rows: Rows = {
        JOB_FLOW.name: [
            flow(*way, second, rtt_ns=5_200_000)
            for way in (there, back, far)
            for second in range(5)
        ],
        JOB_DELAY.name: [
            *(delay(*there, second, owd_p50_ns=100_000 + second) for second in range(4)),
            *(delay(*back, second, owd_p50_ns=5_100_000, bound_ns=900) for second in range(4)),
            *(delay(*far, second, count=0, why="no peer") for second in range(4)),
            delay(*there, 4, count=0, owd_p50_ns=77, why="what was sampled"),
            delay(*there, 2, sport=40_001, owd_p50_ns=1),
        ],
        PROBE.name: [
            {"ts_ns": T0 + second * S, "src": src, "dst": dst, "sent": 40, "count": 40,
             "owd_p50_ns": owd_ns}
            for second in range(5)
            for (src, dst), owd_ns in ((there, 9_000), (back, 5_009_000))
        ],
    }  # fmt: skip
    worst, other, least = flow_lines(bundle(record(rows)))
    assert (worst.src, worst.one_way_ns, worst.worst_one_way_ns) == (
        "h1/rail0", 5_100_000, 5_100_000)  # fmt: skip
    assert (worst.probed_one_way_ns, worst.one_way_bound_ns) == (5_009_000, 900)
    unmeasured, measured = sorted((other, least), key=lambda each: each.one_way_ns or 0)
    assert (measured.one_way_ns, measured.worst_one_way_ns) == (100_001.5, 100_003)
    assert (measured.probed_one_way_ns, measured.one_way_bound_ns) == (9_000, 400)
    assert (measured.one_way_why, unmeasured.one_way_why) == ("", "no peer")
    assert unmeasured.one_way_ns is unmeasured.one_way_bound_ns is None
    rows.pop(JOB_DELAY.name)
    assert {each.one_way_why for each in flow_lines(bundle(record(rows)))} == {NOT_SAMPLED}

"""From rows of the store to bundles: what was drawn comes out, and is judged as it was drawn."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from bench.diagnosis import drawn
from bench.diagnosis.case import Case, bundle_of
from tests.cases import mostly_slow

from syntony.io.bundle_files import arrow_type, bundle_from_tables, read_bundle, write_bundle
from syntony.model import MS, S
from syntony.wire.tables import (
    CLOCK,
    COLLECTIVE,
    JOB_DELAY,
    JOB_FLOW,
    JOB_PROCESS,
    LINK_EVENT,
    LINK_PORT,
    PROBE,
    STEP,
    TABLES,
)
from syntony.workload import Bundle, FaultClass, diagnose
from syntony.workload.flow_lines import NOT_SAMPLED, flow_lines
from syntony.workload.gpu_rows import SLOT
from syntony.workload.recorded import (
    IDLE_SHARE,
    SETTLE_NS,
    RecordedBundle,
    recorded,
)
from syntony.workload.schema import TABLES as BUNDLE_TABLES

T0 = 1_700_000_000 * S
SEED = random.randrange(1 << 32)
Rows = dict[str, list[dict[str, Any]]]


def columns(rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, dict[str, list[Any]]]:
    """As the store gives them: what a row does not say is 0 or empty."""
    found = {}
    for name, some in rows.items():
        table, listed = TABLES[name], list(some)
        found[name] = {
            column.name: [
                row.get(column.name, "" if column.type == "string" else 0) for row in listed
            ]
            for column in table.columns
        }
    return found


def record(rows: Rows, *, seconds: int = 60, now_ns: int | None = None) -> RecordedBundle:
    last_ns = T0 + seconds * S
    now = last_ns + 2 * SETTLE_NS if now_ns is None else now_ns
    return recorded("night", columns(rows), T0, last_ns, now)


def arrow(found: RecordedBundle) -> dict[str, pa.Table]:
    tables = {}
    for name, some in found.tables.items():
        kinds = {column.name: arrow_type(column.kind) for column in BUNDLE_TABLES[name]}
        tables[name] = pa.table({key: pa.array(values, kinds[key]) for key, values in some.items()})
    return tables


def bundle(found: RecordedBundle) -> Bundle:
    return bundle_from_tables(arrow(found), found.manifest)


def process(host: str, rank: int, second: int = 0, **fields: Any) -> dict[str, Any]:
    at_ns = T0 + second * S
    return {
        "ts_ns": at_ns, "window_ns": 2 * S, "host": host, "job": "night", "pid": 7, "rank": rank,
        "ranks": 4, "began_ns": T0, **fields,
    }  # fmt: skip


def flow(src: str, dst: str, second: int, **fields: Any) -> dict[str, Any]:
    return {
        "ts_ns": T0 + second * S, "job": "night", "src": src, "dst": dst, "sport": 40_000,
        "dport": 5_000, "tx_bps": 1e8, "rtt_ns": 200_000, "connection": "tcp-40000-5000", **fields,
    }  # fmt: skip


def steps_of(
    ranks: int, count: int, late: Mapping[int, int], draw: random.Random
) -> list[dict[str, Any]]:
    """All-reduces of 5 ms every 50 ms; a rank in `late` comes so many ns later."""
    found, at_ns = [], T0 + S
    for seq in range(count):
        begun = [
            at_ns + int(draw.gauss(0, 50_000)) + 100_000 + late.get(rank, 0)
            for rank in range(ranks)
        ]
        done_ns = max(begun) + 5 * MS
        found += [
            {
                "ts_ns": begun[rank], "host": f"h{rank}", "job": "night", "pid": 7, "rank": rank,
                "comm": "0.abc", "ranks": ranks, "seq": seq, "op": "all_reduce", "bytes": 4096,
                "done_ns": done_ns,
            }
            for rank in range(ranks)
        ]  # fmt: skip
        at_ns = done_ns + 45 * MS
    return found


def test_a_straggler_is_named_and_a_quiet_job_is_not() -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    slow, late_ns = draw.randrange(8), draw.randrange(10, 60) * MS
    for late, wanted in (({slow: late_ns}, [(FaultClass.STRAGGLER, (f"rank {slow}",))]), ({}, [])):
        rows = {COLLECTIVE.name: steps_of(8, 400, late, draw)}
        found = diagnose(bundle(record(rows)))
        assert [(each.fault, each.subjects) for each in found.verdicts] == wanted


def test_a_bundle_that_was_written_gives_the_same_verdicts(tmp_path: Any) -> None:
    draw = random.Random(SEED)
    rows = {COLLECTIVE.name: steps_of(4, 200, {1: 30 * MS}, draw)}
    found = record(rows)
    write_bundle(tmp_path / "b", arrow(found), found.manifest)
    assert diagnose(read_bundle(tmp_path / "b")).verdicts == diagnose(bundle(found)).verdicts != ()


def test_a_row_that_knows_the_end_outweighs_one_that_does_not() -> None:
    rows = steps_of(2, 3, {}, random.Random(1))
    before = [row | {"done_ns": 0, "dropped": 2} for row in rows[:2]]
    for some in (before + rows, rows + before):
        found = record({COLLECTIVE.name: some}).tables["collectives"]
        assert len(found["seq"]) == len(rows)
        assert None not in found["done_ns"]
        assert sum(found["dropped"]) == 4


def test_what_may_not_have_arrived_yet_is_left_out() -> None:
    rows = {COLLECTIVE.name: steps_of(2, 100, {}, random.Random(1))}
    now_ns = T0 + 8 * S
    found = record(rows, now_ns=now_ns)
    assert found.manifest["end_ns"] == now_ns - SETTLE_NS
    assert max(found.tables["collectives"]["enqueue_ns"]) < now_ns - SETTLE_NS


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


def test_a_job_that_has_ended_does_not_hang() -> None:
    """Its last operation never ended: it was killed."""
    rows: Rows = {COLLECTIVE.name: steps_of(4, 100, {}, random.Random(1))}
    for row in rows[COLLECTIVE.name][-3:]:
        row["done_ns"] = 0
    del rows[COLLECTIVE.name][-4]
    rows[JOB_PROCESS.name] = [process(f"h{rank}", rank, 6, ended=1) for rank in range(4)]
    assert diagnose(bundle(record(rows))).verdicts == ()
    rows[JOB_PROCESS.name][0] = process("h0", 0, 50)
    (verdict,) = diagnose(bundle(record(rows))).verdicts
    assert (verdict.fault, verdict.subjects) == (FaultClass.HANG, ("rank 0",))


@pytest.mark.parametrize(("silent_s", "hangs"), [(2, False), (12, False), (30, True)])
def test_a_host_that_reports_late_does_not_hang(silent_s: int, hangs: bool) -> None:
    """All that the other hosts tell of the seconds since is left out, unless it stays silent."""
    print(f"seed {SEED}")
    late, last_s = random.Random(SEED).randrange(4), 60 - silent_s
    host = f"h{late}"
    rows: Rows = {
        COLLECTIVE.name: [
            row if row["done_ns"] < T0 + last_s * S else row | {"done_ns": 0}
            for row in steps_of(4, 1150, {}, random.Random(SEED))
            if row["ts_ns"] < T0 + (last_s * S if row["host"] == host else last_s * S + 50 * MS)
        ],
        JOB_PROCESS.name: [
            process(f"h{rank}", rank, second)
            for rank in range(4)
            for second in range(0, last_s if rank == late else 60, 2)
        ],
    }
    found = record(rows, now_ns=T0 + 60 * S)
    assert found.manifest["end_ns"] == T0 + (40 if hangs else min(last_s - 1, 56)) * S
    named = {each.fault for each in diagnose(bundle(found)).verdicts}
    assert named == ({FaultClass.HANG} if hangs else set())


@pytest.mark.parametrize(("length_ns", "named"), [(S // 2, False), (5 * S, True)])
def test_a_rank_that_is_kept_off_its_cores_for_a_moment_is_no_straggler(
    length_ns: int, named: bool
) -> None:
    """Half a second is many operations of a job with short steps, and nothing to be paged for."""
    rows = steps_of(4, 1200, {}, random.Random(SEED))
    first_ns = rows[2400]["ts_ns"]
    for row in rows:
        if first_ns <= row["ts_ns"] < first_ns + length_ns:
            row["ts_ns"] += 30 * MS * (row["rank"] == 2)
            row["done_ns"] += 30 * MS
    found = diagnose(bundle(record({COLLECTIVE.name: rows}))).verdicts
    wanted = [(FaultClass.STRAGGLER, ("rank 2",))] if named else []
    assert [(each.fault, each.subjects) for each in found] == wanted


def test_ranks_without_a_number_are_left_out_and_told() -> None:
    rows = steps_of(2, 3, {}, random.Random(1))
    rows[0]["rank"] = -1
    found = record({COLLECTIVE.name: rows})
    assert len(found.tables["collectives"]["seq"]) == len(rows) - 1
    assert "1 collectives" in found.notes[0]


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


def test_hosts_wait_for_all_their_processes_and_know_their_clock() -> None:
    rows = {
        JOB_PROCESS.name: [
            process("h0", 0, 10, runq_ns=5 * MS),
            process("h0", 1, 10, runq_ns=7 * MS),
            process("h1", 2, 11, runq_ns=1 * MS),
        ],
        CLOCK.name: [
            {"ts_ns": T0 + 5 * S, "node": "h0", "state": "SYNCHRONIZED", "sigma_ns": 40.0},
            {"ts_ns": T0 + 20 * S, "node": "h0", "state": "UNKNOWN", "sigma_ns": 9.0},
        ],
    }
    # It was in doubt for a moment, and what the solution before the window said is over.
    for second, state in ((9, "UNKNOWN"), (11, "SYNCHRONIZED"), (12, "HOLDOVER")):
        moment = {"ts_ns": T0 + second * S, "node": "h0", "state": state, "sigma_ns": 1.0}
        during = rows | {CLOCK.name: [*rows[CLOCK.name], moment]}
        during[JOB_PROCESS.name] = [process("h0", 0, each) for each in (8, 10, 12)]
        states = record(during).tables["hosts"]["clk_state"]
        assert (states[0] == "UNKNOWN") == (second == 9)
        assert states[2] == {9: "UNKNOWN"}.get(second, state)
    hosts = record(rows).tables["hosts"]
    assert hosts["runq_ns"] == [12 * MS, 1 * MS]
    assert hosts["clk_state"] == ["SYNCHRONIZED", None]
    assert hosts["clk_err_ns"] == [40.0, None]


def test_ports_steps_and_probes() -> None:
    rows: Rows = {
        LINK_PORT.name: [{"ts_ns": T0, "nic": "h0/rail0", "state": "active", "gbps": 100.0,
                          **dict.fromkeys(SLOT, math.nan)}],
        LINK_EVENT.name: [
            {"ts_ns": T0 + S, "nic": "h0/rail0", "kind": "carrier", "losses": 2},
            {"ts_ns": T0 + S, "nic": "h0/rail0", "kind": "module"},
        ],
        STEP.name: [{"ts_ns": T0, "rank": 1, "step": 3, "end_ns": T0 + 5, "data_ns": 2}],
        PROBE.name: [
            {"ts_ns": T0, "src": "h0/rail0", "dst": "h1/rail0", "sent": 40, "count": 40,
             "owd_p50_ns": 900, "owd_p99_ns": 1900},
            {"ts_ns": T0, "src": "h1/rail0", "dst": "h0/rail0", "sent": 40, "owd_p50_ns": 7},
        ],
    }  # fmt: skip
    tables = record(rows).tables
    assert tables["links"]["downs"] == [0, 2]
    assert (tables["links"]["up"], tables["links"]["speed_bps"]) == ([True, None], [1e11, None])
    assert (tables["steps"]["step"], tables["steps"]["data_ns"]) == ([3], [2])
    assert tables["probes"]["owd_p50_ns"] == [900, None]  # nothing was measured


def test_a_slot_is_as_it_was_at_the_last_look() -> None:
    slow = {"pcie_gts": 16.0, "pcie_max_gts": 32.0, "pcie_width": 16.0, "pcie_max_width": math.nan}
    looks = [
        (0, "h0/rail0", {}),
        (25, "h0/rail0", slow),
        (0, "h0/lo", dict.fromkeys(SLOT, math.nan)),
    ]
    usual = dict.fromkeys(SLOT, 8.0)
    rows = [{"ts_ns": T0 + at * S, "nic": nic, "state": "active", **(fields or usual)}
            for at, nic, fields in looks]  # fmt: skip
    links = record({LINK_PORT.name: rows}, seconds=60).tables["links"]
    found = [(link, (at_ns - T0) // S, gts, width) for link, at_ns, gts, width in zip(
        links["link"], links["at_ns"], links["pcie_gts"], links["pcie_width"], strict=True)
        if gts is not None]  # fmt: skip
    assert found == [
        *(("h0/rail0", at, 8.0, 8.0) for at in (0, 10, 20)),
        *(("h0/rail0", at, 16.0, 16.0) for at in (25, 35, 45, 55)),
    ]
    assert links["pcie_max_width"].count(None) == len(looks) + 4


def test_a_narrow_slot_of_a_running_job_is_named() -> None:
    """Both ways slow, a slot at half of what it could."""
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    nics = [f"h{each}/rail0" for each in range(6)]
    full = {"pcie_gts": 32.0, "pcie_max_gts": 32.0, "pcie_width": 16.0, "pcie_max_width": 16.0}
    ports = [{"ts_ns": T0 + at * S, "nic": nic, "state": "active", "gbps": 400.0, **full,
              "pcie_width": 8.0 if nic == nics[2] else 16.0}
             for at in (0, 60) for nic in nics]  # fmt: skip

    def rate_bps(*ends: str) -> float:
        return (1e8 if nics[2] in ends else 2e8) * draw.uniform(0.98, 1.02)

    flows = [flow(src, dst, at, tx_bps=rate_bps(src, dst))
             for at in range(100) for src in nics for dst in nics if src != dst]  # fmt: skip
    found = record({LINK_PORT.name: ports, JOB_FLOW.name: flows}, seconds=100)
    verdicts = diagnose(bundle(found)).verdicts
    assert [(each.fault, each.subjects) for each in verdicts] == [(FaultClass.PCIE, (nics[2],))]


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


def delay(src: str, dst: str, second: int, **fields: Any) -> dict[str, Any]:
    return {
        "ts_ns": T0 + second * S, "job": "night", "src": src, "dst": dst, "sport": 40_000,
        "dport": 5_000, "count": 12, "bound_ns": 400, **fields,
    }  # fmt: skip


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


KEPT = {
    "collectives": (
        "comm", "seq", "op", "rank", "host", "enqueue_ns", "done_ns", "bytes", "nranks",
    ),
    "hosts": ("at_ns", "window_ns", "host", "runq_ns"),
}  # fmt: skip
"""What agents tell of these tables."""


def _kept(case: Case, table: str) -> dict[str, list[Any]]:
    """… within the recording."""
    end_ns = case.manifest["end_ns"]
    rows = [
        row
        for row in _each(case, table)
        if (row["enqueue_ns"] if table == "collectives" else row["at_ns"]) < end_ns
        and (row.get("gpu") is None or table == "collectives")
    ]
    return {name: [row.get(name) for row in rows] for name in KEPT[table]} if rows else {}


def _stored(case: Case) -> Rows:
    """A drawn bundle's collectives and hosts as an agent would store them."""
    rows: Rows = {COLLECTIVE.name: [], JOB_PROCESS.name: []}
    for row in _each(case, "collectives"):
        row |= {"ts_ns": row["enqueue_ns"], "done_ns": row["done_ns"] or 0, "ranks": row["nranks"]}
        rows[COLLECTIVE.name].append(row | {"pid": 1, "dropped": 0})
    for row in _each(case, "hosts"):
        if row.get("gpu") is None:
            begun = {"began_ns": case.manifest["begin_ns"]}
            rows[JOB_PROCESS.name].append(row | begun | {"ts_ns": row["at_ns"], "rank": -1})
    return rows


def _until(case: Case, end_ns: int) -> Case:
    """What began before."""
    kept = {}
    for name, table in case.tables.items():
        begun = [at_ns < end_ns for at_ns in table["at_ns" if "at_ns" in table else "enqueue_ns"]]
        kept[name] = {key: list(itertools.compress(values, begun)) for key, values in table.items()}
    return case._replace(tables=kept, manifest=case.manifest | {"end_ns": end_ns})


def _each(case: Case, table: str) -> list[dict[str, Any]]:
    found = case.tables.get(table, {})
    return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]


@pytest.mark.parametrize("seeds", mostly_slow((8, 25), {8}))
@pytest.mark.parametrize("fault", ["straggler", "hang", "host-jitter", ""])
def test_what_another_generator_drew_is_judged_alike_from_the_store(fault: str, seeds: int) -> None:
    """Stored in another form and read back, collectives and hosts say what the bundle said."""
    named = 0
    for case in (drawn.make_case(fault, seed) for seed in range(seeds)):
        some = {name: known for name in KEPT if (known := _kept(case, name))}
        if "collectives" not in some:
            continue
        begin_ns, end_ns = case.manifest["begin_ns"], case.manifest["end_ns"]
        found = recorded("j", columns(_stored(case)), begin_ns, end_ns, end_ns + SETTLE_NS)
        own = bundle_of(_until(case._replace(tables=some), found.manifest["end_ns"]))
        wanted = {(each.fault, each.subjects) for each in diagnose(own).verdicts}
        reported = {(each.fault, each.subjects) for each in diagnose(bundle(found)).verdicts}
        kinds = {FaultClass.STRAGGLER, FaultClass.HANG, FaultClass.HOST_JITTER}
        assert {each for each in reported if each[0] in kinds} == {
            each for each in wanted if each[0] in kinds
        }
        named += bool(reported)
    assert named or not fault

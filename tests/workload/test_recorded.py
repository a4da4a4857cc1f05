"""From rows of the store to bundles: ranks, steps and ends of jobs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.workload.stored_rows import SEED, T0, Rows, arrow, bundle, process, record, steps_of

from syntony.io.bundle_files import arrow_tables, read_bundle, write_bundle
from syntony.model import MS, S
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS
from syntony.workload import FaultClass, diagnose
from syntony.workload.recorded import SETTLE_NS


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


def test_a_job_that_has_ended_does_not_hang() -> None:
    """Its last operation never ended: it was killed."""
    rows: Rows = {COLLECTIVE.name: steps_of(4, 100, {}, random.Random(1))}
    for row in rows[COLLECTIVE.name][-3:]:
        row["done_ns"] = 0
    del rows[COLLECTIVE.name][-4]
    rows[JOB_PROCESS.name] = [process(f"h{rank}", rank, 6, ended=1) for rank in range(4)]
    assert diagnose(bundle(record(rows))).verdicts == ()
    rows[JOB_PROCESS.name][:1] = [process("h0", 0, second) for second in (48, 50)]
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


def test_a_process_that_tells_of_any_number_of_bytes_is_judged_all_the_same() -> None:
    told = [{
        "ts_ns": T0 + rank, "host": f"h{rank}", "job": "night", "pid": 7, "rank": rank,
        "comm": "0", "ranks": 4, "op": "all_reduce", "bytes": (1 << 62) - 1, "done_ns": 0,
    } for rank in range(4)]  # fmt: skip
    tables = arrow_tables(record({COLLECTIVE.name: told}).tables)
    assert tables["collectives"]["bytes"].to_pylist() == [2.0**62] * 4

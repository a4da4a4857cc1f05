"""Rows of some ranks that have not arrived yet: what others ended, these did not fail to begin."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.workload import stored_rows as store
from tests.workload.made import MS, T0, Columns, bundle
from tests.workload.stored_rows import SEED, Rows, process, record, steps_of

from syntony.model import S
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS
from syntony.workload import FaultClass, diagnose
from syntony.workload.facts import BundleFacts

RANKS, LAST, OPEN = 4, 60, 61
"""The last operation that all ended, and the one that follows."""


def recording(newest: dict[int, int], ended: int = LAST) -> Columns:
    """Of four ranks with an operation every 100 ms, a minute after the last one.

    Args:
        newest: the last operation of a rank that is recorded, if it is not the open one.
        ended: last operation that ended; a later one did not end.
    """
    rows = [(rank, seq) for seq in range(OPEN + 1) for rank in range(RANKS)
            if seq <= newest.get(rank, OPEN)]  # fmt: skip
    rank, seq = np.array(rows).T
    enqueue = T0 + seq * 100 * MS + rank * MS
    done = np.where(seq <= ended, enqueue + 20 * MS, np.iinfo(np.int64).min)
    return {
        "collectives": {
            "comm": ["c"] * len(rank), "seq": seq, "op": ["all_reduce"] * len(rank), "rank": rank,
            "host": [f"h{each}" for each in rank], "enqueue_ns": enqueue, "done_ns": done,
        },
        "hosts": {"at_ns": [T0 + 60_000 * MS], "window_ns": [1000 * MS], "host": ["h0"],
                  "runq_ns": [0.0]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("newest", "ended", "hangs"),
    [
        ({1: LAST}, LAST, ["rank 1"]),
        ({1: LAST, 2: LAST - 9}, LAST, ["rank 1"]),  # of rank 2 it is not known
        ({1: LAST - 9}, LAST, []),
        ({1: LAST - 9, 2: LAST - 5, 3: 20}, LAST, []),
        ({1: LAST - 9}, OPEN, []),
        ({1: LAST}, OPEN, ["rank 1"]),  # the others ended it by an error
        ({}, OPEN, []),
    ],
)
def test_a_rank_whose_rows_are_late_does_not_hang(
    newest: dict[int, int], ended: int, hangs: list[str]
) -> None:
    found = diagnose(bundle(recording(newest, ended)))
    assert [each.subjects for each in found.verdicts if each.fault == FaultClass.HANG] == [
        (each,) for each in hangs
    ]
    late = [str(rank) for rank, seq in sorted(newest.items()) if seq < LAST]
    said = [each.reason for each in found.gaps if each.limits == "hang"]
    assert said == ([] if hangs or not late else [
        f"the newest operations of ranks {', '.join(late)} of c are missing: others ended them"
    ])  # fmt: skip


def test_a_job_of_whose_hosts_none_reports_does_not_hang() -> None:
    """Its agents, or the way from them, are starved: nobody knows what it does."""
    rows: Rows = {COLLECTIVE.name: steps_of(4, 100, {}, random.Random(1))}
    del rows[COLLECTIVE.name][-3:]
    rows[JOB_PROCESS.name] = [process(f"h{rank}", rank, 4) for rank in range(4)]
    found = record(rows)
    assert found.manifest["end_ns"] == store.T0 + 5 * S
    assert diagnose(store.bundle(found)).verdicts == ()
    rows[JOB_PROCESS.name] += [process("h2", 2, 58)]
    (verdict,) = diagnose(store.bundle(record(rows))).verdicts
    assert verdict.fault == FaultClass.HANG


@pytest.mark.parametrize("new", ["0.abc", "", "0.def"])
def test_an_earlier_run_of_a_job_does_not_hang(new: str) -> None:
    """It was killed within an operation, and began anew, perhaps without operations at first."""
    print(f"seed {SEED}")
    rows: Rows = {COLLECTIVE.name: steps_of(4, 100, {}, random.Random(SEED))}
    del rows[COLLECTIVE.name][-3:]
    began_ns = max(row["ts_ns"] for row in rows[COLLECTIVE.name]) + S
    if new:
        later = steps_of(4, 500, {}, random.Random(SEED))
        rows[COLLECTIVE.name] += [
            row | {"ts_ns": row["ts_ns"] + 8 * S, "done_ns": row["done_ns"] + 8 * S, "pid": 8,
                   "comm": new} for row in later
        ]  # fmt: skip
    rows[JOB_PROCESS.name] = [process(f"h{rank}", rank, 4, ended=1) for rank in range(4)]
    alone = [process(f"h{rank}", rank, second, pid=8, began_ns=began_ns)
             for rank in range(4) for second in range(8, 34, 2)]  # fmt: skip
    rows[JOB_PROCESS.name] += alone
    found = record(rows, seconds=36)
    assert (
        diagnose(store.bundle(found)).verdicts == () if new else "collectives" not in found.tables
    )
    assert "397 collectives of earlier processes" in found.notes[0]
    # A window that begins so late that nothing says of these processes that they have ended.
    rows[JOB_PROCESS.name] = alone
    assert record(rows, seconds=36).tables == found.tables | of_processes(rows)
    # While an earlier process runs, its operations count.
    rows[JOB_PROCESS.name] += [process(f"h{rank}", rank, 33) for rank in range(4)]
    assert not record(rows, seconds=36).notes


def test_an_earlier_run_of_a_job_that_hung_and_was_killed_does_not_hide_that() -> None:
    """Both runs have ended, and numbered the operations of one communicator."""
    print(f"seed {SEED}")
    first = steps_of(4, 500, {}, random.Random(SEED))
    last_ns = max(row["done_ns"] for row in first)
    second = [row | {"ts_ns": row["ts_ns"] + last_ns - T0 + S, "pid": 8,
                     "done_ns": row["done_ns"] + last_ns - T0 + S}
              for row in steps_of(4, 100, {}, random.Random(SEED))]  # fmt: skip
    newest = max(row["seq"] for row in second)
    hung = [row | {"done_ns": 0} if row["seq"] == newest else row for row in second
            if (row["seq"], row["rank"]) != (newest, 2)]  # fmt: skip
    began_s = (last_ns - T0) // S + 1
    ends = [process(f"h{rank}", rank, began_s, ended=1) for rank in range(4)]
    ends += [process(f"h{rank}", rank, began_s + 20, pid=8, began_ns=T0 + began_s * S, ended=1)
             for rank in range(4)]  # fmt: skip
    found = record({COLLECTIVE.name: first + hung, JOB_PROCESS.name: ends}, seconds=began_s + 30)
    assert "of earlier processes" in found.notes[0]
    (verdict,) = diagnose(store.bundle(found)).verdicts
    assert (verdict.fault, verdict.subjects) == (FaultClass.HANG, ("rank 2",))


def test_a_job_that_was_started_again_and_failed_at_once_does_not_hang() -> None:
    """An operation of the first run never ended; the second run had none."""
    print(f"seed {SEED}")
    first = steps_of(4, 100, {}, random.Random(SEED))
    newest = max(row["seq"] for row in first)
    first = [row | {"done_ns": 0} if row["seq"] == newest else row for row in first
             if (row["seq"], row["rank"]) != (newest, 2)]  # fmt: skip
    ends = [process(f"h{rank}", rank, 6, ended=1, exit_status=1 if rank == 2 else -15)
            for rank in range(4)]  # fmt: skip
    assert diagnose(store.bundle(record({COLLECTIVE.name: first, JOB_PROCESS.name: ends}))).verdicts
    ends += [process(f"h{rank}", rank, 20, pid=8, began_ns=T0 + 9 * S, ended=1,
                     exit_status=-15 if rank else 1) for rank in range(4)]  # fmt: skip
    found = record({COLLECTIVE.name: first, JOB_PROCESS.name: ends})
    assert "399 collectives of earlier processes" in found.notes[0]
    bundle = store.bundle(found)
    assert diagnose(bundle).verdicts == ()
    assert [(each.rank, each.exit_status) for each in BundleFacts(bundle).rank_ends()] == [
        (rank, -15 if rank else 1) for rank in range(4)
    ]


def test_a_job_whose_ranks_all_wait_in_one_operation_hangs_without_a_rank_to_name() -> None:
    """A process that is stopped within an operation has begun it, as the others have."""
    print(f"seed {SEED}")
    rows: Rows = {COLLECTIVE.name: steps_of(4, 100, {}, random.Random(SEED))}
    newest = max(row["seq"] for row in rows[COLLECTIVE.name])
    rows[COLLECTIVE.name] = [row | {"done_ns": 0} if row["seq"] == newest else row
                             for row in rows[COLLECTIVE.name]]  # fmt: skip
    rows[JOB_PROCESS.name] = [process(f"h{rank}", rank, second)
                              for rank in range(4) for second in range(0, 40, 2)]  # fmt: skip
    (verdict,) = diagnose(store.bundle(record(rows))).verdicts
    assert (verdict.fault, verdict.subjects) == (FaultClass.HANG, ("communicator 0.abc",))
    assert (verdict.blast_radius.ranks, verdict.blast_radius.hosts[3]) == (4, "h3")
    assert "state T" in verdict.action


def of_processes(rows: Rows) -> dict[str, Any]:
    return record({JOB_PROCESS.name: rows[JOB_PROCESS.name]}, seconds=36).tables

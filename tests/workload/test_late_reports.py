"""Rows of some ranks that have not arrived yet: what others ended, these did not fail to begin."""

from __future__ import annotations

import numpy as np
import pytest
from tests.workload.made import MS, T0, Columns, bundle

from syntony.workload import FaultClass, diagnose

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

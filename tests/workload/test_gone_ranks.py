"""Ranks that cannot go on: their process has ended or is stopped, or their host is gone; each with
a neighbour in which they are not to be named (docs/decisions/0551, 0552 and 0567)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.workload.dying_ranks import ALL, LAST, RANKS, operations, processes, stuck_ns
from tests.workload.stored_rows import SEED, T0, Rows, bundle, columns, record, steps_of

from syntony.model import MS, S
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS, STEP
from syntony.workload import Diagnosis, FaultClass, diagnose
from syntony.workload.recorded import recorded
from syntony.workload.sentences import sentences

NOW_S = 60


@pytest.fixture(autouse=True)
def _seed() -> None:
    print(f"seed {SEED}")


def judged(rows: Rows, now_s: int = NOW_S) -> Diagnosis:
    return diagnose(bundle(record(rows, seconds=now_s, now_ns=T0 + now_s * S)))


def hangs(rows: Rows, now_s: int = NOW_S) -> list[tuple[str, ...]]:
    found = judged(rows, now_s).verdicts
    return [each.subjects for each in found if each.fault is FaultClass.HANG]


@pytest.mark.parametrize("begun", [(0, 1, 2), ALL])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("waits_s", [8, 50])
def test_a_rank_that_ended_while_others_wait_is_named_at_once(
    begun: Any, exact: bool, waits_s: int
) -> None:
    """Killed before an operation, or within it. Up to a launcher's grace time it is open whether
    somebody ends the job."""
    done = operations(begun=begun)
    dies_ns = stuck_ns(done) + 10 * MS
    readings = processes(dies_ns + (waits_s - 1) * S, {3: dies_ns}, exact=exact)
    rows = {COLLECTIVE.name: done, JOB_PROCESS.name: readings}
    result = diagnose(bundle(record(rows, seconds=100, now_ns=dies_ns + waits_s * S)))
    (verdict,) = result.verdicts
    doubts = [each.fault for each in verdict.alternatives if not each.excluded]
    assert doubts == ([FaultClass.UNDETERMINED] if waits_s < 35 else [])
    assert (verdict.confidence > 0.9) is (waits_s > 35)
    assert (verdict.fault, verdict.subjects) == (FaultClass.HANG, ("rank 3",))
    first, second, third = sentences("night", result, 60 * S)
    assert first == "night cannot go on because of hang: rank 3."
    assert "Its process ended" in second
    assert "kernel log" in third


def test_without_readings_of_processes_a_rank_that_ended_within_an_operation_is_not_known() -> None:
    assert hangs({COLLECTIVE.name: operations()}) == [("communicator 0.abc",)]


def test_of_ranks_that_ended_after_one_called_another_operation_that_one_is_named() -> None:
    """Whichever of them ended first: the mismatch ends them all."""
    rows = operations()
    for row in rows:
        if row["seq"] == LAST and row["rank"] == 0:
            row["bytes"] += 4
    ends = {rank: stuck_ns(rows) + (900, 800, 1000, 10)[rank] * MS for rank in ALL}
    found = hangs({COLLECTIVE.name: rows, JOB_PROCESS.name: processes(T0 + NOW_S * S, ends)})
    assert found == [("rank 0",)]


@pytest.mark.parametrize(
    ("ends_s", "exact", "begun", "named"),
    [
        ((40, 38, 41, 0.01), True, ALL, ["rank 3"]),  # no launcher waits for so long
        ((40, 38, 41, 0.01), False, ALL, ["rank 3"]),
        ((40, 38, 41, 0.01), True, (0, 1, 3), ["rank 2"]),  # it had left one out
        ((40, 0.03, 41, 0.01), True, ALL, ["rank 1", "rank 3"]),
        ((7, 7.2, 7.3, 7.1), True, (0, 1, 3), ["rank 2"]),  # all had waited for it for 7 s
        ((7.9, 7.8, 8, 7), True, (0, 1, 3), ["rank 2"]),
        ((7.9, 7.8, 8, 7), True, ALL, ["communicator 0.abc"]),  # it hung before
        ((0.015, 0.03, 0.02, 0.01), True, ALL, []),  # all were killed
        ((0.015, 0.03, 0.02, 0.01), True, (0, 1, 3), []),
        ((1.5, 1.2, 1.7, 1.4), False, ALL, []),
    ],
)
def test_of_ranks_that_have_all_ended_that_is_named_which_ended_first(
    ends_s: tuple[float, ...], exact: bool, begun: Any, named: list[str]
) -> None:
    found = all_ended(ends_s, exact, begun)
    assert [each.subjects for each in found.verdicts] == ([tuple(named)] if named else [])


def all_ended(ends_s: tuple[float, ...], exact: bool = True, begun: Any = ALL) -> Diagnosis:
    """Ranks ended so many seconds after the last operation began, which `begun` had begun."""
    rows = operations(begun=begun)
    ends = {rank: stuck_ns(rows) + round(ends_s[rank] * S) for rank in ALL}
    readings = processes(T0 + 100 * S, ends, exact=exact)
    return judged({COLLECTIVE.name: rows, JOB_PROCESS.name: readings}, now_s=100)


@pytest.mark.parametrize("begun", [(0, 1, 3), (0, 1, 2), ALL])
@pytest.mark.parametrize(
    ("ends_s", "exact"),
    [
        ((0.9, 0.8, 1.0, 0.01), True),  # Ctrl-C, or a rank that failed: the others got errors
        ((30.01, 30.02, 30.03, 0.01), True),  # SIGTERM, which three handled too slowly; killed
        ((30.01, 30.02, 30.03, 0.01), False),
        ((9.0, 8.0, 10.0, 0.01), False),  # three wrote a checkpoint first
        ((0.02, 0.01, 2.4, 2.3), True),  # the launcher of two was ended
    ],
)
def test_who_ended_first_is_not_at_fault_if_somebody_may_have_ended_the_job(
    ends_s: tuple[float, ...], exact: bool, begun: Any
) -> None:
    result = all_ended(ends_s, exact, begun)
    (verdict,) = result.verdicts
    assert (verdict.fault, verdict.subjects) == (FaultClass.UNDETERMINED, ("job night",))
    assert verdict.confidence < 0.5
    assert [each.excluded for each in verdict.alternatives] == [False, False]
    first, second, third = sentences("night", result, 60 * S)
    assert first == "night has ended, and it is undetermined why."
    assert second.startswith("All 4 ranks ended within ")
    assert "rank" in second.partition(", ")[2]
    assert "sacct" in third


@pytest.mark.parametrize("done", [ALL, (0, 1, 2)])
def test_a_job_that_ended_after_its_last_operation_has_no_name(done: Any) -> None:
    """One rank's end of it may not have been recorded."""
    rows = operations(done=done)
    ends = {rank: stuck_ns(rows) + (3 - rank) * S for rank in ALL}
    assert hangs({COLLECTIVE.name: rows,
                  JOB_PROCESS.name: processes(T0 + NOW_S * S, ends)}) == []  # fmt: skip


@pytest.mark.parametrize("others_end", [False, True])
@pytest.mark.parametrize("lost_s", [0.0, 1.5])
def test_a_host_that_is_gone_is_named_by_its_rank(others_end: bool, lost_s: float) -> None:
    """Its last rows are lost with it."""
    rows = operations()
    dies_ns = stuck_ns(rows) + 10 * MS
    kept = [row for row in rows if row["rank"] != 3 or row["ts_ns"] < dies_ns - lost_s * S]
    ends = dict.fromkeys((0, 1, 2), dies_ns + 2 * S) if others_end else {}
    last_ns = dies_ns + 100 * S
    found = diagnose(bundle(record(
        {COLLECTIVE.name: kept, JOB_PROCESS.name: processes(last_ns, ends, {3: dies_ns - S})},
        seconds=(last_ns - T0) // S, now_ns=last_ns,
    )))  # fmt: skip
    (verdict,) = found.verdicts
    assert (verdict.fault, verdict.subjects) == (FaultClass.HANG, ("rank 3",))
    assert "no report of h3" in verdict.evidence[0].text


@pytest.mark.parametrize("goes_on_s", [10, 30])
def test_an_agent_that_is_away_is_no_rank_that_is_gone(goes_on_s: int) -> None:
    """The job goes on, and some rows of its host are lost."""
    rows = operations(done=ALL)
    away_ns = stuck_ns(rows) - goes_on_s * S
    kept = [row for row in rows if row["rank"] != 3 or row["ts_ns"] < away_ns]
    readings = processes(T0 + 100 * S, silent={3: away_ns})
    found = judged({COLLECTIVE.name: kept, JOB_PROCESS.name: readings}, now_s=100)
    assert found.verdicts == ()


def test_a_rank_that_went_on_after_its_host_was_silent_is_not_gone() -> None:
    """All hang for another reason, half a minute later."""
    rows = operations()
    away_ns = stuck_ns(rows) - 30 * S
    readings = processes(T0 + 100 * S, silent={3: away_ns})
    found = hangs({COLLECTIVE.name: rows, JOB_PROCESS.name: readings}, now_s=100)
    assert found == [("communicator 0.abc",)]


def test_that_no_host_reports_is_said() -> None:
    rows = operations()
    found = record({COLLECTIVE.name: rows, JOB_PROCESS.name: processes(stuck_ns(rows))},
                   seconds=90)  # fmt: skip
    assert "no host has reported its processes for" in found.notes[0]


@pytest.mark.parametrize("begun", [(0, 1, 2), ALL])
@pytest.mark.parametrize(
    ("state", "after_s", "words", "action"),
    [
        ("T", 0, "is stopped", "kill -CONT"),
        ("t", 0, "held by a debugger", "detach"),
        ("D", 0, "waiting for a disk", "/proc/PID/stack"),
        ("t", 9, "", "py-spy"),  # somebody looks at a job that hangs
        ("S", 0, "", "py-spy"),
    ],
)
def test_a_rank_that_is_stopped_is_named(
    state: str, after_s: int, words: str, action: str, begun: Any
) -> None:
    rows = operations(begun=begun)
    since_ns = stuck_ns(rows) + after_s * S
    found = judged({
        COLLECTIVE.name: rows,
        JOB_PROCESS.name: processes(T0 + NOW_S * S, states={3: (state, since_ns)}),
    })  # fmt: skip
    (verdict,) = found.verdicts
    named = "rank 3" if words or len(begun) < RANKS else "communicator 0.abc"
    assert verdict.subjects == (named,)
    assert (words or "operation") in verdict.evidence[0].text
    assert action in verdict.action


def test_a_rank_that_never_came_is_named_and_not_one_that_waits_for_a_disk() -> None:
    """The first waits for nobody that is known; the other writes a file meanwhile."""
    rows = operations(begun=(0, 1, 3))
    states = {3: ("D", stuck_ns(rows))}
    found = judged({COLLECTIVE.name: rows,
                    JOB_PROCESS.name: processes(T0 + NOW_S * S, states=states)})  # fmt: skip
    assert [each.subjects for each in found.verdicts] == [("rank 2",)]


@pytest.mark.parametrize(("state", "others", "said"), [("D", "S", True), ("D", "D", False),
                                                       ("S", "S", False)])  # fmt: skip
def test_a_straggler_that_waits_for_a_disk_says_so(state: str, others: str, said: bool) -> None:
    late = steps_of(RANKS, 400, {3: 40 * MS}, random.Random(SEED))
    states = {rank: (state if rank == 3 else others, 0) for rank in ALL}
    (verdict,) = judged({COLLECTIVE.name: late, JOB_PROCESS.name: processes(
        T0 + NOW_S * S, states=states)}).verdicts  # fmt: skip
    assert (verdict.fault, verdict.subjects) == (FaultClass.STRAGGLER, ("rank 3",))
    assert any("waiting for a disk" in each.text for each in verdict.evidence) is said


def test_workers_of_a_rank_neither_keep_it_alive_nor_end_it() -> None:
    """A rank's data loaders have its environment; only one process calls operations."""
    rows = operations()
    ends = {3: stuck_ns(rows) + 10 * MS}
    mine = processes(T0 + NOW_S * S, ends)
    loader = [row | {"pid": 8, "ended": 0} for row in processes(T0 + NOW_S * S) if row["rank"] == 3]
    gone = [row | {"pid": 9, "ended": 1} for row in mine if row["rank"] == 2][:3]
    found = hangs({COLLECTIVE.name: rows, JOB_PROCESS.name: mine + loader + gone})
    assert found == [("rank 3",)]


@pytest.mark.parametrize("dies", [True, False])
def test_those_that_wait_for_a_rank_elsewhere_are_not_named(dies: bool) -> None:
    """Ranks 2 and 3 have a communicator of their own. Rank 3 dies, or never comes; rank 2 waits
    there for it, so that neither comes to the operation of all."""
    rows = operations(begun=(0, 1))
    begun_ns = stuck_ns(rows)
    own = [row | {"comm": "1.def", "seq": seq, "ts_ns": row["ts_ns"] + 20 * MS, "ranks": 2,
                  "done_ns": row["done_ns"] + 20 * MS}
           for seq in range(LAST) for row in rows[RANKS * seq : RANKS * (seq + 1)]
           if row["rank"] in {2, 3}]  # fmt: skip
    own += [own[-2] | {"seq": LAST, "ts_ns": begun_ns, "done_ns": 0}]
    ends = {3: begun_ns + 5 * MS} if dies else {}
    found = hangs({COLLECTIVE.name: rows + own,
                   JOB_PROCESS.name: processes(T0 + NOW_S * S, ends)})  # fmt: skip
    assert found == [("rank 3",)]


@pytest.mark.parametrize("done", [(), ALL])
def test_what_a_job_did_before_the_window_counts_if_it_stands_still(done: Any) -> None:
    """The store adds the last operations before a window in which none began."""
    rows = operations(done=done)
    dies_ns, now_ns = stuck_ns(rows) + 10 * MS, T0 + 1_000 * S
    readings = processes(now_ns, {3: dies_ns} if not done else {})
    stored = columns({COLLECTIVE.name: rows, JOB_PROCESS.name: readings})
    found = recorded("night", stored, now_ns - 120 * S, now_ns, now_ns)
    assert ("collectives" in found.tables) is not bool(done)
    verdicts = diagnose(bundle(found)).verdicts
    assert [each.subjects for each in verdicts] == ([] if done else [("rank 3",)])


@pytest.mark.parametrize(("silent_s", "calls", "noted"), [(20, False, True), (4, False, False),
                                                          (20, True, False)])  # fmt: skip
def test_a_job_whose_steps_stop_in_an_unknown_operation_is_noted(
    silent_s: int, calls: bool, noted: bool
) -> None:
    """It may hang in a backward pass, or evaluate: nobody is named."""
    steps = [
        {"ts_ns": T0 + number * S, "end_ns": T0 + (number + 1) * S,
         "host": f"h{rank}", "job": "night", "rank": rank, "step": number, "data_ns": 0}
        for number in range(20) for rank in ALL
    ]  # fmt: skip
    last_ns = T0 + 20 * S
    now_ns = last_ns + silent_s * S
    rows: Rows = {STEP.name: steps, JOB_PROCESS.name: processes(now_ns)}
    if calls:
        operation = {"host": "h0", "job": "night", "pid": 7, "comm": "0.abc", "ranks": RANKS,
                     "op": "all_reduce", "bytes": 1}  # fmt: skip
        rows[COLLECTIVE.name] = [
            operation | {"rank": rank, "seq": seq, "ts_ns": at_ns, "done_ns": at_ns + MS}
            for seq, at_ns in enumerate(range(T0, now_ns, S)) for rank in ALL
        ]  # fmt: skip
    found = diagnose(bundle(record(rows, seconds=(now_ns - T0) // S, now_ns=now_ns + 30 * S)))
    assert found.verdicts == ()
    assert len(found.waits) == noted

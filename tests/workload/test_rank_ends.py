"""How ranks ended says whether one of them failed or somebody ended the job; what may be both has
no name (docs/decisions/0586)."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

import pytest
from tests.workload.dying_ranks import ALL, LAST, operations, processes, stuck_ns
from tests.workload.stored_rows import SEED, T0, bundle, process, record

from syntony.model import MS, S
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS
from syntony.workload import Diagnosis, FaultClass, diagnose, timeline
from syntony.workload.exits import Ended, story, words
from syntony.workload.processes import Processes
from syntony.workload.sentences import sentences

TERM, KILL, SEGV, ABRT, INT = -15, -9, -11, -6, -2
OOM = None
SOON = (0.9, 0.8, 1.0, 0.01)
"""Seconds after the last operation began at which ranks ended: rank 3 first."""


@pytest.fixture(autouse=True)
def _seed() -> None:
    print(f"seed {SEED}")


def ended(
    how: Mapping[int, int | None],
    ends_s: Mapping[int, float] | tuple[float, ...] = SOON,
    *,
    begun: Any = ALL,
    done: Any = (),
    exact: bool = True,
    now_s: float = 40,
    handles: Any = (),
) -> Diagnosis:
    """What is said so long after the last operation began."""
    rows = operations(begun=begun, done=done)
    stuck = stuck_ns(rows)
    at_s = dict(ends_s if isinstance(ends_s, Mapping) else enumerate(ends_s))
    ends = {rank: stuck + round(at * S) for rank, at in at_s.items()}
    now_ns = stuck + round(now_s * S)
    readings = processes(now_ns, ends, exact=exact, how=how, handles=handles)
    seconds = (now_ns - T0) // S
    return diagnose(bundle(record({COLLECTIVE.name: rows, JOB_PROCESS.name: readings},
                                  seconds=seconds, now_ns=now_ns + 30 * S)))  # fmt: skip


def of_all(first: int | None, others: int | None) -> dict[int, int | None]:
    return {rank: first if rank == 3 else others for rank in ALL}


@pytest.mark.parametrize("begun", [(0, 1, 2), (0, 1, 3), ALL])
@pytest.mark.parametrize(
    ("first", "others", "said"),
    [
        (OOM, TERM, "was killed by the kernel for lack of memory"),
        (OOM, 1, "was killed by the kernel for lack of memory"),
        (OOM, KILL, "was killed by the kernel for lack of memory"),
        (OOM, 0, "was killed by the kernel for lack of memory"),
        (SEGV, TERM, "was ended by SIGSEGV"),
        (128 + 11, 1, "was ended by SIGSEGV"),
        (SEGV, ABRT, "was ended by SIGSEGV"),
        (KILL, TERM, "was killed by SIGKILL"),
        (KILL, 1, "was killed by SIGKILL"),
        (KILL, ABRT, "was killed by SIGKILL"),
    ],
)
def test_a_rank_that_failed_by_itself_is_named_though_all_ended_soon(
    first: int | None, others: int | None, said: str, begun: Any
) -> None:
    result = ended(of_all(first, others), begun=begun)
    (verdict,) = result.verdicts
    assert (verdict.fault, verdict.subjects) == (FaultClass.HANG, ("rank 3",))
    assert verdict.confidence > 0.9
    assert all(each.excluded for each in verdict.alternatives)
    text, second, _ = sentences("night", result, 60 * S)
    assert text.startswith(f"night stopped because rank 3 on h3 {said} at 22:14:"), text
    assert second.startswith(f"Operation {LAST} of 0.abc: ")
    assert "wait" not in second
    assert "; the other 3 ended 990 ms later, waiting for it (" in text
    assert ("memory.peak" in verdict.action) is (first is OOM)


@pytest.mark.parametrize("others", [TERM, KILL, 1, ABRT])
def test_an_error_outside_of_operations_is_the_ranks_own(others: int) -> None:
    """Within one it may be the first to notice that a connection failed."""
    (verdict,) = ended(of_all(1, others), begun=(0, 1, 2)).verdicts
    assert verdict.subjects == ("rank 3",)
    (verdict,) = ended(of_all(1, others)).verdicts
    assert verdict.fault is FaultClass.UNDETERMINED
    assert "noticed first" in verdict.alternatives[1].reason


@pytest.mark.parametrize("others", [TERM, KILL, 1, ABRT])
def test_an_error_may_be_the_answer_of_a_rank_to_sigterm(others: int) -> None:
    """It computed while the others waited, and handles SIGTERM: somebody may have ended the job."""
    (verdict,) = ended(of_all(1, others), begun=(0, 1, 2), handles=ALL).verdicts
    assert (verdict.fault, verdict.subjects) == (FaultClass.UNDETERMINED, ("job night",))
    assert "it handles SIGTERM" in verdict.alternatives[1].reason
    (verdict,) = ended(of_all(SEGV, others), begun=(0, 1, 2), handles=ALL).verdicts
    assert verdict.subjects == ("rank 3",)


@pytest.mark.parametrize("others", [TERM, 1])
def test_of_several_first_errors_one_may_follow_from_the_other(others: int) -> None:
    """Unless it is a launcher that ended the others."""
    how = {0: others, 1: others, 2: 1, 3: 1}
    (verdict,) = ended(how, (0.9, 0.8, 0.02, 0.01), begun=(0, 1)).verdicts
    named = others == TERM
    assert verdict.fault is (FaultClass.HANG if named else FaultClass.UNDETERMINED)
    assert verdict.subjects == (("rank 2", "rank 3") if named else ("job night",))


@pytest.mark.parametrize(
    ("first", "others"),
    [
        (1, 1),  # a failed connection, or one rank
        (ABRT, ABRT),  # watchdogs
        (SEGV, SEGV),  # what all do
        (KILL, KILL),  # nobody handled SIGTERM in time, or one was killed
        (KILL, 0),
        (TERM, 1),  # some noticed that others were gone before they were asked themselves
        (0, TERM),  # it left the others alone, and somebody ended these
    ],
)
def test_what_may_be_a_rank_or_somebody_stays_two(first: int, others: int) -> None:
    (verdict,) = ended(of_all(first, others)).verdicts
    assert (verdict.fault, verdict.subjects) == (FaultClass.UNDETERMINED, ("job night",))
    assert verdict.confidence < 0.5
    assert words(Ended(0, 0, first)) in verdict.evidence[0].text


@pytest.mark.parametrize("begun", [(0, 1, 2), ALL])
@pytest.mark.parametrize(
    ("how", "ends_s"),
    [
        (of_all(TERM, TERM), SOON),
        (of_all(TERM, TERM), (0.01, 0.02, 0.01, 0.02)),
        (of_all(INT, INT), SOON),
        (of_all(TERM, 0), (9.0, 8.0, 10.0, 0.01)),  # three wrote a checkpoint first
        (of_all(TERM, KILL), (30.01, 30.02, 30.03, 0.01)),  # three handled it too slowly
        (of_all(128 + 15, 128 + 15), SOON),
    ],
)
def test_a_job_that_somebody_ended_has_no_fault(
    how: dict[int, int | None], ends_s: tuple[float, ...], begun: Any
) -> None:
    result = ended(how, ends_s, begun=begun)
    assert result.verdicts == ()
    first, second, _ = sentences("night", result, 60 * S)
    assert first == "night was ended by somebody: no fault."
    assert second.startswith("All 4 ranks ended within ")
    assert "SIG" in second


def test_that_somebody_ended_a_job_that_hung_does_not_hide_why() -> None:
    result = ended(of_all(TERM, TERM), (9.1, 9.2, 9.3, 9.0), begun=(0, 1, 3))
    assert [each.subjects for each in result.verdicts] == [("rank 2",)]


def test_a_rank_that_ran_out_of_memory_while_others_waited_long_for_it_is_named() -> None:
    result = ended(of_all(OOM, TERM), (9.9, 9.8, 10.0, 9.0), begun=(0, 1, 2))
    (verdict,) = result.verdicts
    assert (verdict.subjects, verdict.evidence[0].signal) == (("rank 3",), "exit_status")


@pytest.mark.parametrize("status", [1, ABRT, KILL])
def test_a_rank_that_fails_after_others_waited_long_for_it_stopped_the_job(status: int) -> None:
    """It took seconds to end, or a timeout ended it. What hangs may also be killed."""
    result = ended(of_all(status, TERM), (9.9, 9.8, 10.0, 9.0), begun=(0, 1, 2))
    (verdict,) = result.verdicts
    assert verdict.subjects == ("rank 3",)
    signals = [each.signal for each in verdict.evidence]
    assert signals == (["seq", "enqueue_ns"] if status == KILL else
                       ["exit_status", "seq", "enqueue_ns"])  # fmt: skip
    if status != KILL:
        assert sentences("night", result, 60 * S)[0].startswith("night stopped because rank 3 on ")
        assert verdict.evidence[2].text.startswith("the others had waited 9")


@pytest.mark.parametrize("begun", [ALL, (1, 2, 3)])
def test_others_do_not_wait_for_a_rank_that_crashes_while_it_waits_itself(begun: Any) -> None:
    result = ended(of_all(SEGV, TERM), (9.9, 9.8, 10.0, 9.0), begun=begun)
    (verdict,) = result.verdicts
    assert verdict.subjects == ("rank 3",)
    assert [each.signal for each in verdict.evidence] == ["exit_status", "seq"]


@pytest.mark.parametrize(("first", "named"), [(OOM, True), (SEGV, True), (KILL, True), (1, False)])
def test_without_an_open_operation_only_what_others_cannot_cause_has_a_name(
    first: int | None, named: bool
) -> None:
    result = ended(of_all(first, TERM), done=ALL)
    assert [each.subjects for each in result.verdicts] == [("rank 3",)] * named
    if named:
        _, second, _ = sentences("night", result, 60 * S)
        assert second == "No operation of all ranks was open then."


def test_a_job_that_ends_by_itself_has_ended_without_a_fault() -> None:
    result = ended(of_all(0, 0), done=ALL)
    assert sentences("night", result, 60 * S) == (
        "night has ended: no fault.",
        "All 4 ranks ended within 990 ms, orderly.",
        "There is nothing to do.",
    )


@pytest.mark.parametrize("first", [SEGV, ABRT, KILL, 1, 0])
def test_a_rank_that_crashes_after_a_job_is_done_is_no_fault(first: int) -> None:
    """Libraries that are unloaded in the wrong order do so."""
    assert ended(of_all(first, 0), done=ALL).verdicts == ()


@pytest.mark.parametrize(
    ("first", "sure"), [(OOM, True), (SEGV, True), (KILL, False), (1, False), (128, False)]
)
def test_while_others_run_a_crash_leaves_no_doubt(first: int | None, sure: bool) -> None:
    (verdict,) = ended({3: first}, {3: 0.01}, now_s=8).verdicts
    assert verdict.subjects == ("rank 3",)
    assert (verdict.confidence > 0.9) is sure
    assert all(each.excluded for each in verdict.alternatives) is sure


def test_a_crash_is_the_cause_although_another_rank_did_not_come() -> None:
    """The launcher ended that one because of it."""
    how, ends_s = {3: SEGV, 2: TERM}, {3: 0.01, 2: 0.5}
    (verdict,) = ended(how, ends_s, begun=(0, 1, 3), now_s=8).verdicts
    assert verdict.subjects == ("rank 3",)


@pytest.mark.parametrize(("now_s", "named"), [(8, False), (60, True)])
def test_while_others_run_a_rank_that_was_asked_to_end_is_not_named_at_once(
    now_s: int, named: bool
) -> None:
    """The others may be writing a checkpoint; if nobody ends them, they wait for it."""
    result = ended({3: TERM}, {3: 0.01}, now_s=now_s)
    (verdict,) = result.verdicts
    assert (verdict.subjects == ("rank 3",)) is named
    said = "cannot go on because of" if named else "is ending, and it is undetermined why."
    assert sentences("night", result, 60 * S)[0].startswith(f"night {said}")
    assert "SIGTERM" in verdict.evidence[0].text


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("first", "others", "named"), [
    (OOM, 1, True), (SEGV, TERM, True), (KILL, 1, True), (KILL, ABRT, True), (KILL, TERM, False),
    (1, TERM, False), (TERM, 1, False), (1, 1, False), (KILL, KILL, False),
])  # fmt: skip
def test_of_ends_at_the_same_time_that_is_the_first_which_others_cannot_cause(
    first: int | None, others: int, named: bool, exact: bool
) -> None:
    result = ended(of_all(first, others), (0.03, 0.02, 0.04, 0.01), exact=exact)
    (verdict,) = result.verdicts
    assert verdict.subjects == (("rank 3",) if named else ("job night",))


def test_that_the_exit_status_is_not_visible_is_said() -> None:
    (verdict,) = ended({}).verdicts
    assert verdict.fault is FaultClass.UNDETERMINED
    assert "exit status not visible" in verdict.evidence[0].text


def test_while_others_run_those_that_have_ended_are_not_the_others() -> None:
    for how, said in (
        ({3: SEGV}, "Z"), ({3: SEGV, 1: 1}, "; one other ended 490 ms later, waiting for it"),
        ({3: SEGV, 1: 1, 2: 1}, "; 2 others ended 490 ms later, waiting for it"),
    ):  # fmt: skip
        ends_s = {rank: 0.01 if rank == 3 else 0.5 for rank in how}
        text, second, _ = sentences("night", ended(how, ends_s, now_s=8), 60 * S)
        assert text.removesuffix(".").removesuffix(" (ended with exit status 1)").endswith(said)
        assert second.endswith("; 4 ranks wait for it.")


def test_instants_that_are_not_known_are_told_as_such() -> None:
    result = ended(of_all(SEGV, 1), exact=False)
    text = sentences("night", result, 60 * S)[0]
    assert " was ended by SIGSEGV by 22:14:" in text
    assert "; the other 3 ended, waiting for it (ended with exit status 1)" in text


def test_what_is_no_time_of_day_is_not_told_as_one() -> None:
    end = Ended(1_234 * S, 1_234 * S, SEGV)
    text = story({0: end}, [0], "h0", waited=False, over=True)
    assert text == "rank 0 on h0 was ended by SIGSEGV at 1234.000 s"


def of_rank(*readings: tuple[int, int, dict[str, Any]]) -> Ended:
    """How rank 0 ended, by its processes' readings: process, second, and what they say."""
    rows = [process("h0", 0, second, **fields) | {"pid": pid} for pid, second, fields in readings]
    made = bundle(record({JOB_PROCESS.name: rows}))
    return Processes(made.table("processes"), T0 + 60 * S).ended[0]


def test_a_timeline_has_ends_on_hosts_of_which_nothing_else_is_known() -> None:
    """An end before the recording is shown at its begin."""
    late = over(SEGV) | {"lived_ns": -3.0 * S}
    made = bundle(record({JOB_PROCESS.name: [process("h0", 0, 2, **late)]}))
    events = [*timeline.trace(made, ()).events]
    hosts = {each["pid"]: each["args"]["name"] for each in events if each["ph"] == "M"}
    (end,) = (each for each in events if each.get("cat") == "end")
    assert (hosts[end["pid"]], end["ts"]) == ("host h0", 0.0)


def test_ranks_that_run_are_not_gone_wherever_a_timeline_begins() -> None:
    rows = [process(f"h{rank}", rank, second) for rank in range(2) for second in (2, 4)]
    rows.append(process("h0", 0, 6, **over(1)))
    made = bundle(record({JOB_PROCESS.name: rows}))
    ranks = Processes(made.table("processes"), T0 + 8 * S)
    assert set(ranks.gone([0, 1], 0)) == ranks.earliest([0, 1]) == {0}
    assert ranks.earliest([1]) == {1}
    assert ranks.unheard([0, 1], T0 + 6 * S) == set()
    assert ranks.unheard([0, 1], T0 + 6 * S + 1) == {1}


def over(status: int, oom: int = 0) -> dict[str, Any]:
    return {"ended": 1, "lived_ns": float(S), "exit_status": status, "oom_killed": oom}


def test_an_end_that_was_noticed_a_window_later_has_its_own_instant() -> None:
    late = over(SEGV) | {"lived_ns": -S / 2}
    end_ns = T0 + 8 * S - S // 2
    assert of_rank((7, 6, {}), (7, 8, late)) == Ended(end_ns, end_ns, SEGV)


def test_a_rank_ended_as_its_own_process_did_and_not_as_those_that_it_started() -> None:
    end = of_rank((8, 2, {}), (7, 2, {}), (9, 4, {}), (7, 6, over(SEGV)), (8, 8, over(0)),
                  (9, 8, over(0)))  # fmt: skip
    assert end == Ended(T0 + 7 * S, T0 + 7 * S, SEGV)


def test_a_rank_that_was_started_again_ended_as_the_newest_did() -> None:
    end = of_rank((7, 2, {}), (7, 6, over(KILL, 1)), (8, 6, {}), (8, 10, over(1)))
    assert end == Ended(T0 + 11 * S, T0 + 11 * S, 1)


@pytest.mark.parametrize(("status", "oom"), [(1, True), (0, False), (TERM, False)])
def test_what_a_rank_started_may_lack_memory_and_end_it(status: int, oom: bool) -> None:
    end = of_rank((7, 2, {}), (8, 4, {}), (8, 6, over(KILL, 1)), (7, 8, over(status)))
    assert (end.status, end.oom) == (status, oom)


def test_words_of_signals() -> None:
    assert words(Ended(0, 0, -signal.SIGABRT)) == "was ended by SIGABRT"
    assert words(Ended(0, 0, -99)) == "was ended by signal 99"
    assert words(Ended(0, 0, 1)) == "ended with exit status 1"


def test_the_last_operation_is_the_one_that_ranks_are_stuck_in() -> None:
    rows = operations()
    assert {row["seq"] for row in rows if not row["done_ns"]} == {LAST}
    assert stuck_ns(rows) > T0 + 10 * MS

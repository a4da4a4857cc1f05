"""Running jobs judged one after the other by a process of its own, at a bounded cost."""

from __future__ import annotations

import asyncio
import io
import random
import time
from typing import Any

import msgspec
import pytest
from tests.workload.stored_rows import T0, columns, process, steps_of

from syntony.controller import diagnosis_worker, job_diagnosis
from syntony.controller.batches import BatchPiece
from syntony.controller.job_diagnosis import JobDiagnosis
from syntony.controller.own_rows import OwnRows
from syntony.controller.recorded_paths import RecordedPaths
from syntony.errors import StoreError, UsageError
from syntony.model import MS, S
from syntony.store.jobs import MAX_ROWS, JobHost
from syntony.wire.job_diagnosis import JobResult, JobRows, JobVerdict
from syntony.wire.jobs import JobView, Takeover
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS

NOW = T0 + 30 * S
NO_PATHS = RecordedPaths(dict, lambda _way: ())


def rows_with(late: dict[int, int]) -> dict[str, dict[str, list[Any]]]:
    processes = [
        process(f"h{rank}", rank, second) for rank in range(4) for second in range(0, 30, 2)
    ]
    found = {COLLECTIVE.name: steps_of(4, 600, late, random.Random(1)), JOB_PROCESS.name: processes}
    return columns(found)


class Jobs:
    """A store that knows some running jobs."""

    def __init__(self, rows: dict[str, dict[str, dict[str, list[Any]]]]) -> None:
        self.rows = rows
        self.most_ns = 10**12
        self.windows: list[tuple[str, int]] = []
        self.fails = False
        self.names: tuple[str, ...] = ()
        self.known_hosts: tuple[JobHost, ...] = ()

    def jobs(self, first_ns: int, last_ns: int) -> tuple[JobView, ...]:
        """Those of the last day."""
        assert (first_ns, last_ns) == (NOW - 86_400 * S, NOW)
        none = {
            "began_ns": 0, "seen_ns": NOW - 42 * S, "hosts": (), "processes": 0, "running": 0,
            "ranks": 0,
        }  # fmt: skip
        return tuple(msgspec.convert({"job": name, **none, "programs": ()}, JobView)
                     for name in self.names)  # fmt: skip

    def hosts(self, job: str, first_ns: int, last_ns: int) -> tuple[JobHost, ...]:
        assert (job, first_ns, last_ns) == ("night", NOW - 86_400 * S, NOW)
        return self.known_hosts

    def recording(
        self, job: str, first_ns: int, last_ns: int, most: int = MAX_ROWS
    ) -> dict[str, dict[str, list[Any]]]:
        self.windows.append((job, last_ns - first_ns))
        assert most <= job_diagnosis.MAX_ROWS
        if self.fails:
            raise StoreError("down")
        if last_ns - first_ns > self.most_ns:
            raise UsageError("more than that many rows")
        return self.rows[job]

    def takeovers_of(self, job: str, first_ns: int, last_ns: int) -> tuple[Takeover, ...]:
        """One, at the begin of the window."""
        lost = {"what": "replaced", "rank": 1, "at": "h1", "step": 9, "generation": 1}
        more = {"reason": "killed", "worker": job, "stall_ns": last_ns - first_ns}
        return (msgspec.convert({"ts_ns": first_ns, **lost, **more}, Takeover),)


class Store:
    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs


_rows = OwnRows(JOB_PROCESS)


def reported(*jobs: str, at_ns: int = NOW, hosts: int = 2, ended: int = 0) -> list[BatchPiece]:
    """What hosts' agents report of the processes of jobs."""
    rows = [
        {
            "ts_ns": at_ns - 2 * S, "window_ns": 2 * S, "host": f"h{host}", "job": job, "pid": 7,
            "uid": 0, "program": "python", "rank": host, "ranks": hosts, "began_ns": T0,
            "threads": 1, "cpu_ns": 0, "runq_ns": 0, "ended": ended,
        }
        for job in jobs
        for host in range(hosts)
    ]  # fmt: skip
    piece = _rows.piece(rows)
    assert piece is not None
    return [piece]


def made_of(jobs: Jobs) -> JobDiagnosis:
    """All of them run."""
    made = JobDiagnosis(Store(jobs), NO_PATHS, lambda: NOW)  # type: ignore[arg-type]
    made.put(reported(*jobs.rows))
    return made


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pauses that keep the cost down, however slow this machine is."""
    monkeypatch.setattr(job_diagnosis, "SHARE", 1.0)
    monkeypatch.setattr(job_diagnosis, "LIMIT_NS", 600 * S)


def looked(jobs: Jobs, times: int) -> JobDiagnosis:
    async def work() -> JobDiagnosis:
        made = made_of(jobs)
        try:
            for _ in range(times):
                await made.judge_jobs()
        finally:
            await made.close()
        return made

    return asyncio.run(work())


def verdicts(made: JobDiagnosis) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    known = made.known(time.monotonic_ns())
    assert known is not None
    return {each.job: [(one.fault, one.hosts) for one in each.verdicts] for each in known}


@pytest.mark.usefixtures("eager")
def test_every_running_job_is_judged_in_turn() -> None:
    jobs = Jobs({"slow": rows_with({2: 30 * MS}), "well": rows_with({}), "empty": columns({})})
    made = looked(jobs, 3)
    assert verdicts(made) == {"slow": [("straggler", ("h2",))], "well": [], "empty": []}
    assert (made.counts["judged"], made.running) == (3, 3)
    assert sorted(job for job, _ in jobs.windows) == ["empty", "slow", "well"]


@pytest.mark.parametrize("over", [False, True])
def test_what_is_over_is_no_verdict(over: bool) -> None:
    """A rank is late for the first half, or the second."""
    rows = rows_with({})
    for place, at_ns in enumerate(rows[COLLECTIVE.name]["ts_ns"]):
        if (at_ns < T0 + 15 * S) == over:
            late = rows[COLLECTIVE.name]["rank"][place] == 2
            rows[COLLECTIVE.name]["ts_ns"][place] += 30 * MS * late
            rows[COLLECTIVE.name]["done_ns"][place] += 30 * MS
    given = JobRows(job="night", first_ns=T0, last_ns=NOW, now_ns=NOW + 10 * S, rows=rows)
    found = diagnosis_worker.evaluate(given)
    assert not found.error
    assert [each.fault for each in found.verdicts] == ([] if over else ["straggler"])


@pytest.mark.usefixtures("eager")
def test_jobs_that_run_no_longer_are_forgotten() -> None:
    jobs = Jobs({"slow": rows_with({2: 30 * MS})})

    async def work() -> None:
        made = made_of(jobs)
        assert made.known(time.monotonic_ns()) is None
        try:
            await made.judge_jobs()
            assert verdicts(made)["slow"]
            later_ns = time.monotonic_ns() + job_diagnosis.STALE_NS
            (stale,) = made.known(later_ns) or ()
            assert stale.error
            assert stale.verdicts
            asked = len(jobs.windows)
            made.put(reported("slow", ended=1))
            await made.judge_jobs()
            assert (len(jobs.windows), made.running) == (asked, 0)
            assert made.known(later_ns) == ()
        finally:
            await made.close()

    asyncio.run(work())


def test_what_lasts_keeps_when_it_began() -> None:
    """Each look goes back a minute; what is over and comes back begins again."""
    made = made_of(Jobs({"night": {}}))
    one, other = (
        JobVerdict(fault="data-stall", subjects=(name,), hosts=(), confidence=0.9, onset_ns=9 * S,
                   text="", action="")
        for name in ("a", "b")
    )  # fmt: skip

    def begun(*verdicts: JobVerdict, error: str = "") -> dict[str, int]:
        made._keep("night", JobResult(job="night", verdicts=verdicts, flows=(), error=error))
        (known,) = made.known(time.monotonic_ns()) or ()
        return {each.subjects[0]: each.onset_ns for each in known.verdicts}

    later, earlier = (msgspec.structs.replace(one, onset_ns=at_ns * S) for at_ns in (70, 3))
    assert begun(one) == {"a": 9 * S}
    assert begun(later, msgspec.structs.replace(other, onset_ns=80 * S)) == {
        "a": 9 * S, "b": 80 * S}  # fmt: skip
    assert begun(error="store") == {"a": 9 * S, "b": 80 * S}
    assert begun(earlier) == {"a": 3 * S}
    assert begun() == {}
    assert begun(later) == {"a": 70 * S}


@pytest.mark.usefixtures("eager")
def test_only_jobs_that_run_are_asked_for() -> None:
    """Each host reports by itself; the store is not asked where none runs."""
    jobs = Jobs({name: rows_with({}) for name in ("runs", "ended", "silent", "half")})

    async def work() -> None:
        made = JobDiagnosis(Store(jobs), NO_PATHS, lambda: NOW)  # type: ignore[arg-type]
        try:
            for _ in range(3):
                await made.judge_jobs()
            assert jobs.windows == []
            now_ns = time.monotonic_ns()
            assert made.known(now_ns) is None
            assert made.known(now_ns + job_diagnosis.RUNS_NS) == ()
            made.put(reported("silent", at_ns=NOW - job_diagnosis.RUNS_NS))
            made.put(reported("runs", "ended", "half"))
            made.put([*reported("ended", ended=1), *reported("half", hosts=1, ended=1)])
            for _ in range(4):
                await made.judge_jobs()
        finally:
            await made.close()

    asyncio.run(work())
    assert {job for job, _ in jobs.windows} == {"runs", "half"}


def test_what_it_costs_is_bounded() -> None:
    """Ten calls at once judge one job: the others wait for four times what the first took."""
    jobs = Jobs({"a": rows_with({}), "b": rows_with({})})
    made = looked(jobs, 10)
    assert len(jobs.windows) == 1
    assert made.spent_ns > 0


@pytest.mark.usefixtures("eager")
def test_a_job_with_too_many_rows_is_looked_at_less_far_back_and_then_left_alone() -> None:
    jobs = Jobs({"large": rows_with({2: 30 * MS})})
    jobs.most_ns = 30 * S
    made = looked(jobs, 2)
    assert [length for _, length in jobs.windows] == [60 * S, 30 * S]
    assert verdicts(made)["large"] == [("straggler", ("h2",))]
    jobs.most_ns, jobs.windows = 0, []
    made = looked(jobs, 9)
    assert [length for _, length in jobs.windows] == [60 * S, 30 * S, 15 * S]
    assert made.counts["too-large"] == 1
    (known,) = made.known(time.monotonic_ns()) or ()
    assert known.error == "too-large"


@pytest.mark.usefixtures("eager")
def test_a_job_that_takes_too_long_is_ended_and_the_next_one_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = Jobs({"a": rows_with({2: 30 * MS}), "b": rows_with({2: 30 * MS})})

    async def work() -> None:
        made = made_of(jobs)
        try:
            monkeypatch.setattr(job_diagnosis, "LIMIT_NS", 1 * MS)
            await made.judge_jobs()
            assert made.counts["too-slow"] == 1
            monkeypatch.setattr(job_diagnosis, "LIMIT_NS", 600 * S)
            await made.judge_jobs()
            await made.judge_jobs()
        finally:
            await made.close()
        assert verdicts(made) == {"a": [], "b": [("straggler", ("h2",))]}

    asyncio.run(work())


@pytest.mark.usefixtures("eager")
def test_a_store_that_fails_changes_nothing() -> None:
    jobs = Jobs({"a": rows_with({})})
    jobs.fails = True
    made = looked(jobs, 2)
    assert made.known(time.monotonic_ns()) is None


def test_rows_that_cannot_be_judged_are_one_jobs_trouble() -> None:
    """The process goes on with the next one."""

    def given(job: str, rows: dict[str, dict[str, list[Any]]]) -> bytes:
        data = msgspec.msgpack.encode(
            JobRows(job=job, first_ns=T0, last_ns=NOW, now_ns=NOW, rows=rows)
        )
        return len(data).to_bytes(4, "big") + data

    broken = rows_with({})
    broken[COLLECTIVE.name]["ts_ns"] = ["soon"] * len(broken[COLLECTIVE.name]["ts_ns"])
    sink = io.BytesIO()
    source = io.BytesIO(given("broken", broken) + given("slow", rows_with({2: 30 * MS})))
    diagnosis_worker.serve(source, sink)
    data, found = sink.getvalue(), []
    while data:
        length = int.from_bytes(data[:4], "big")
        found.append(msgspec.msgpack.decode(data[4 : 4 + length], type=JobResult))
        data = data[4 + length :]
    assert [(each.job, bool(each.error)) for each in found] == [("broken", True), ("slow", False)]
    assert found[1].verdicts[0].fault == "straggler"

"""What jobs' processes do, from their own interpreters to the agent's rows."""

from __future__ import annotations

import itertools
import math
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.agent.hooked_processes import (
    AHEAD_NS,
    PATIENCE_S,
    Gathered,
    hooked,
    now,
    seq_of,
    start,
    wait_for,
)
from tests.nccl import profiler

from syntony.agent.metrics import put_operations
from syntony.agent.nccl_socket import ProcessOperations
from syntony.agent.operations import JobTelemetry
from syntony.agent.queue_pairs import FleetOffset
from syntony.errors import MissingError
from syntony.io.job_hook import hook_directory, hooked_path
from syntony.io.job_socket import Process
from syntony.io.job_table import JobProcess, JobTable
from syntony.io.nccl_plugin import profiler_plugin
from syntony.io.process_exits import ProcessExit
from syntony.metrics.sheet import Sheet
from syntony.metrics.text import render
from syntony.model import MS, S
from syntony.traffic.operations_page import PAGE_BYTES
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS, STEP
from syntony.workload.nccl_operations import NcclOperation


def test_collectives_steps_and_waits_for_data_become_rows(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    before_ns = time.monotonic_ns() + AHEAD_NS
    with hooked(tmp_path, "work"):
        gathered = Gathered(jobs)
        rows = sorted(gathered.of(COLLECTIVE, 4), key=seq_of)
        steps = gathered.of(STEP, 3)
        after_ns = time.monotonic_ns() + AHEAD_NS
    assert [(row["seq"], row["op"], row["bytes"], row["rank"], row["ranks"]) for row in rows] == [
        (seq, "all_reduce", 100, 2, 4) for seq in range(4)
    ]
    assert {(row["host"], row["job"]) for row in rows} == {("h0", "night")}
    assert all(before_ns < row["ts_ns"] < row["done_ns"] < after_ns for row in rows)
    took_ns = [row["done_ns"] - row["ts_ns"] for row in rows]
    assert min(took_ns[0], took_ns[2]) >= 10 * MS
    assert min(took_ns[1], took_ns[3]) >= 60 * MS  # its end, not its begin's
    assert [row["step"] for row in steps] == [1, 2, 3]
    assert all(20 * MS <= row["data_ns"] <= row["end_ns"] - row["ts_ns"] for row in steps)
    assert all(one["end_ns"] == two["ts_ns"] for one, two in itertools.pairwise(steps))


def test_an_operation_is_recorded_once_by_whichever_name(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    with hooked(tmp_path, "names"):
        rows = Gathered(jobs).of(COLLECTIVE, 3)
    assert [(row["op"], row["bytes"], row["seq"]) for row in sorted(rows, key=seq_of)] == [
        ("all_gather", 100, 0), ("all_gather", 100, 1), ("reduce_scatter", 100, 2)
    ]  # fmt: skip


def test_what_a_process_was_in_when_it_ended_is_reported(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    """However short it was in it."""
    with hooked(tmp_path, "dies", code=-9):
        wait_for(jobs, 1)
    wait_for(jobs, 0)
    rows = Gathered(jobs).of(COLLECTIVE, 2)
    assert [(row["seq"], row["done_ns"] > 0) for row in sorted(rows, key=seq_of)] == [
        (0, True), (1, False)
    ]  # fmt: skip


def test_the_instant_at_which_a_process_ended_is_in_its_last_row(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    """Processes are looked for every two seconds; their end is noticed at once."""
    with hooked(tmp_path, "work"):
        gathered = Gathered(jobs)
        assert math.isnan(gathered.of(JOB_PROCESS)[0]["lived_ns"])
        before_ns = time.monotonic_ns() + AHEAD_NS
    found = gathered.rows[JOB_PROCESS.name]
    while not found[-1]["ended"]:
        found = gathered.of(JOB_PROCESS, len(found) + 1)
    ended_ns = found[-1]["ts_ns"] + found[-1]["lived_ns"]
    assert before_ns < ended_ns < found[-1]["ts_ns"] + found[-1]["window_ns"]


def test_the_rank_of_a_process_that_only_its_framework_knows_is_in_its_last_row(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    """As of `torch.multiprocessing.spawn`. Its last operations come before its end is found."""
    with hooked(tmp_path, "work", RANK="", SPAWNED="2"):
        gathered = Gathered(jobs)
        gathered.of(COLLECTIVE, 4)
    wait_for(jobs, 0)
    jobs._searched_ns = time.monotonic_ns()
    jobs.rows(now)
    jobs._searched_ns = 0
    found = gathered.rows.get(JOB_PROCESS.name, [])
    while not found or not found[-1]["ended"]:
        found = gathered.of(JOB_PROCESS, len(found) + 1)
    assert (found[-1]["rank"], found[-1]["ranks"]) == (2, 4)


def test_an_end_that_was_known_before_the_last_thread_left_keeps_its_instant(
    jobs: JobTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = JobProcess(7, 0, "night", "python", 2, 4, 0, 1, ended=True, exit=ProcessExit(-9, 5 * S))
    monkeypatch.setattr(jobs._table, "look", lambda: [who])
    found = dict(jobs.rows(lambda: FleetOffset(8 * S, AHEAD_NS, 0)))[JOB_PROCESS]
    assert found["ts_ns"][0] + found["lived_ns"][0] == 5 * S + AHEAD_NS


def test_backward_passes_that_ddp_times_become_rows(jobs: JobTelemetry, tmp_path: Path) -> None:
    before_ns = time.monotonic_ns() + AHEAD_NS
    with hooked(tmp_path, "reduces") as said:
        gathered = Gathered(jobs)
        gathered.of(STEP, 6)
        rows = gathered.of(COLLECTIVE, 2)
        after_ns = time.monotonic_ns() + AHEAD_NS
    assert said == ["1 100"]
    assert [(row["seq"], row["op"], row["bytes"], row["ranks"]) for row in rows] == [
        (seq, "all_reduce", 4_000, 4) for seq in (1, 4)
    ]
    assert {row["comm"] for row in rows} == {"ddp.0.0-3:1"}
    assert all(before_ns < row["ts_ns"] < row["done_ns"] < after_ns for row in rows)
    assert all(row["done_ns"] - row["ts_ns"] == pytest.approx(5 * MS, abs=MS) for row in rows)
    assert sum(row["dropped"] for row in rows) == 2


def test_of_short_steps_one_backward_pass_in_many_is_recorded(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    """For the same passes of all models, under a name that says which; what is not asked for does
    not count as lost."""
    with hooked(tmp_path, "short") as said:
        gathered = Gathered(jobs)
        gathered.of(STEP, 99)
        rows = gathered.of(COLLECTIVE, 2)
    assert said == ["8 8"]
    rate = 8
    sampled = [row for row in rows if row["comm"].startswith(f"ddp.1in{rate}.")]
    first = [row["seq"] for row in sampled if not row["comm"].endswith("#2")]
    assert first == [row["seq"] for row in sampled if row["comm"].endswith("#2")]
    assert [seq for seq in first if seq > 32] == [*range(32 + rate, 101, rate)]
    assert {row["seq"] for row in rows if row not in sampled} == {*range(2, 32)}
    assert sum(row["dropped"] for row in rows) == 2, "of the first pass its instant is not known"


def test_of_long_steps_every_backward_pass_is_recorded(jobs: JobTelemetry, tmp_path: Path) -> None:
    with hooked(tmp_path, "long") as said:
        gathered = Gathered(jobs)
        gathered.of(STEP, 99)
        rows = gathered.of(COLLECTIVE, 198)
    assert said == ["1 1"]
    assert len({row["comm"] for row in rows}) == 2
    assert {row["seq"] for row in rows} == {*range(2, 101)}


def test_a_job_that_ends_at_once_has_its_last_words_taken(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    with hooked(tmp_path, "work"):
        wait_for(jobs, 1)
        time.sleep(0.2)
    wait_for(jobs, 0)
    assert len(Gathered(jobs).of(COLLECTIVE, 4)) == 4


def test_without_fleet_time_nothing_is_told_and_nothing_is_lost(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    with hooked(tmp_path, "work"):
        assert jobs.rows(lambda: None) == []
        rows = Gathered(jobs).of(COLLECTIVE, 4)
    assert sum(row["dropped"] for row in rows) == 0


def test_what_raised_has_ended_once_the_program_goes_on(jobs: JobTelemetry, tmp_path: Path) -> None:
    """Its errors stay its own. What it was in last is open: the error may end it. A thread that an
    error ended does not end the program, which goes on in others."""
    with hooked(tmp_path, "errors") as said:
        rows = Gathered(jobs).of(COLLECTIVE, 9)
    assert said == ["no store", "no rank", "no tensor", "no such tag", "no such rank",
                    "'NoneType' object has no attribute 'op'", "no tensor"]  # fmt: skip
    told = [(row["comm"], row["op"], row["seq"], row["done_ns"] > 0) for row in rows]
    assert told == [
        ("0.0-3:1", "all_reduce", 0, True), ("rendezvous down:29500", "rendezvous", 0, True),
        ("rendezvous h0:29500", "rendezvous", 2, True),
        ("rendezvous h0:29500", "init_process_group", 3, True),
        ("0.0-3:1", "all_reduce", 1, True), ("0.p2p 3>2", "recv", 0, True),
        ("new_group.2-99:97", "new_group", 0, True), ("0.p2p 2>3", "isend", 0, True),
        ("0.0-3:1", "all_reduce", 2, False),
    ]  # fmt: skip


def test_steps_are_those_of_the_optimizer_that_the_program_uses(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    """Of the first three; of the second from its second one on, until the third has two alone."""
    with hooked(tmp_path, "optimizers"):
        gathered = Gathered(jobs)
        assert len(gathered.of(STEP, 8)) == 8
    raised = gathered.of(COLLECTIVE, 2)[1]
    assert raised["done_ns"], "it ended before a step"


def test_what_another_thread_waits_for_data_is_no_wait_of_the_step(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    with hooked(tmp_path, "loads_ahead"):
        waits = [row["data_ns"] > 0 for row in Gathered(jobs).of(STEP, 5)]
    assert waits == [False, False, False, True, True]


@pytest.mark.parametrize("mode", ["loops", "loops_elsewhere", "loops_after"])
def test_a_process_that_reports_nothing_any_more_says_where_it_is(
    jobs: JobTelemetry, tmp_path: Path, mode: str
) -> None:
    """In the thread that stepped last, or in the first one if that has ended."""
    with hooked(tmp_path, mode):
        gathered = Gathered(jobs)
        readings = (gathered.of(JOB_PROCESS, number)[-1]["frame"] for number in range(1, 100))
        assert any(re.fullmatch(r"hooked\.py:\d+ loops(_after)?", each) for each in readings)


def test_a_forked_child_tells_nothing(jobs: JobTelemetry, tmp_path: Path) -> None:
    with hooked(tmp_path, "forks") as said:
        gathered = Gathered(jobs)
        gathered.of(COLLECTIVE, 2)
        gathered.of(JOB_PROCESS, 1)
        told = sorted((row["op"], row["seq"]) for row in gathered.rows[COLLECTIVE.name])
        assert told == [("all_reduce", 0), ("send", 0)]
        assert said == ["0"], "no error of the hook reaches it"


def test_a_process_that_a_rank_starts_tells_nothing(jobs: JobTelemetry, tmp_path: Path) -> None:
    """Its groups have the names of the rank's own."""
    with hooked(tmp_path, "starts_others") as said:
        rows = Gathered(jobs).of(COLLECTIVE, 4)
    assert said == ["0"]
    assert {row["op"] for row in rows} == {"all_reduce", "all_gather", "reduce_scatter"}
    assert len({row["pid"] for row in rows}) == 1


def test_a_signals_handler_may_call_what_it_interrupts(jobs: JobTelemetry, tmp_path: Path) -> None:
    with hooked(tmp_path, "interrupted"):
        rows = Gathered(jobs).of(COLLECTIVE, 3)
    assert sorted((row["comm"], row["seq"]) for row in rows) == [
        ("0.0-3:1", seq) for seq in range(3)
    ]


def test_a_signals_handler_may_call_what_ends_the_operations_that_failed(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    with hooked(tmp_path, "interrupted_as_it_goes_on"):
        rows = Gathered(jobs).of(COLLECTIVE, 4)
    assert sorted(row["seq"] for row in rows) == [0, 1, 2, 3]
    assert all(row["done_ns"] for row in rows)


def test_what_a_signals_handler_raises_reaches_the_program(tmp_path: Path) -> None:
    """An error of the hook's own does not."""
    with hooked(tmp_path, "runs_out_of_time") as said:
        assert said == ["time is up"] * 6


def test_a_job_runs_without_an_agent(tmp_path: Path) -> None:
    with hooked(tmp_path, "work"):
        pass


def test_another_sitecustomize_is_loaded_as_well(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    path = hooked_path({"PYTHONPATH": str(tmp_path)})
    with start(tmp_path, "-c", "import sys; print(sys.meta_path[0])", PYTHONPATH=path) as process:
        said = process.communicate()[0].splitlines()
    assert said[0] == "theirs"
    assert "syntony_job_imports.Finder" in said[1]


def test_the_hook_is_put_in_front_once() -> None:
    ours = str(hook_directory())
    assert hooked_path({}) == ours
    assert hooked_path({"PYTHONPATH": "/a:/b"}) == f"{ours}:/a:/b"
    assert hooked_path({"PYTHONPATH": f"/a:{ours}"}) == f"/a:{ours}"


@pytest.mark.parametrize("kind", ["nothing", "byte", "small", "unsealed"])
def test_what_is_no_page_is_refused(jobs: JobTelemetry, tmp_path: Path, kind: str) -> None:
    script = f"""
import os, socket, fcntl, sys
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect({str(tmp_path / "agent-ops")!r})
fd = os.memfd_create("p", os.MFD_ALLOW_SEALING)
os.ftruncate(fd, {PAGE_BYTES - (kind == "small")})
{kind!r} == "unsealed" or fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 7)
fds = [] if {kind!r} in ("nothing", "byte") else [fd]
{kind!r} == "nothing" or socket.send_fds(sock, [b"\\x01"], fds)
print("ready", flush=True)
sys.stdin.readline()
"""
    with start(tmp_path, "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        end_s = time.monotonic() + PATIENCE_S
        while not jobs.socket.processes:
            assert time.monotonic() < end_s
        assert jobs.socket.take() == []
        assert jobs.socket.malformed == (kind != "nothing")
        process.communicate("\n")
        while jobs.socket.processes:
            assert time.monotonic() < end_s
        sheet = Sheet({"host": "h0"})
        put_operations(sheet, jobs)
        unused = 'syntony_job_operation_records_unused_total{host="h0"} 1.0'
        assert unused in render(sheet, "")[1], "also once the process has ended"


def test_processes_of_jobs_are_found_whatever_they_are_written_in(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    table = JobTable(tmp_path / "agent")
    spin = "import time\nwhile time.process_time() < 60: pass"
    begun_ns = time.monotonic_ns()
    with (
        start(tmp_path, "-c", spin) as process,
        start(tmp_path, "-c", spin, SYNTONY_AGENT="/elsewhere/agent") as foreign,
        start(tmp_path, "-c", spin, SYNTONY_JOB="no name") as nameless,
    ):
        try:
            time.sleep(0.5)
            (found,) = (each for each in table.look() if each.job == "night")
            assert (found.pid, found.rank, found.ranks) == (process.pid, 2, 4)
            assert abs(found.began_ns - begun_ns) < 5 * S
            assert (found.cpu_ns, found.runq_ns, found.ended) == (0, 0, False)
            time.sleep(1)
            (found,) = (each for each in table.look() if each.pid == process.pid)
            assert found.cpu_ns + found.runq_ns > 100 * MS
            assert found.state == "R"
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            (found,) = (each for each in table.look() if each.pid == process.pid)
            assert found.state == "T"
        finally:
            for each in (process, foreign, nameless):
                each.kill()
                each.wait()
    (found,) = (each for each in table.look() if each.pid == process.pid)
    assert (found.ended, found.state) == (True, "")
    assert not any(each.pid == process.pid for each in table.look())


@pytest.mark.parametrize(
    ("reported", "place"),
    [
        ({}, (-1, 0)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6"}, (5, 6)),
        ({"RANK": "9", "WORLD_SIZE": "8"}, (9, 0)),
        ({"RANK": "-1"}, (-1, 0)),
        ({"RANK": "x", "WORLD_SIZE": "8"}, (-1, 0)),
        ({"RANK": "99999999999999999999"}, (-1, 0)),
    ],
)
def test_ranks_as_launchers_tell_them(reported: dict[str, str], place: tuple[int, int]) -> None:
    from syntony.io.job_table import _place

    assert _place(reported) == place


def test_what_nccl_did_is_of_the_jobs_rank(jobs: JobTelemetry, tmp_path: Path) -> None:
    """Rank 3 of its communicator, rank 2 of the job by its launcher's word."""
    try:
        driver = profiler.build(tmp_path / "driver", "bench_profiler")
        plugin = profiler_plugin()
    except MissingError as error:
        pytest.skip(f"{error}: its rows of a job are NOT tested")
    words = (str(plugin), "7", "rate", "500", "1")
    jobs.rows(now)  # processes were looked at right before it starts
    with start(tmp_path, *words, python=str(driver)) as process:
        rows = Gathered(jobs).of(COLLECTIVE, 500)
        process.communicate("\n")
    assert [row["seq"] for row in rows] == list(range(500))
    assert {(row["op"], row["rank"], row["ranks"], row["job"]) for row in rows} == {
        ("all_reduce", 2, 8, "night")
    }
    assert len({row["comm"] for row in rows}) == 1
    assert rows[0]["comm"].startswith("nccl.")
    assert all(AHEAD_NS < row["ts_ns"] < row["done_ns"] for row in rows)


def test_of_nccl_only_collectives_whose_end_can_be_known_are_kept(
    jobs: JobTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_ns = time.monotonic_ns()
    given: dict[str, Any] = {
        "comm": "c", "name": "", "op": "all_gather", "collective": True, "seq": 1, "rank": 0,
        "nranks": 2, "peer": None, "bytes": None, "algorithm": "", "protocol": "",
        "enqueue_ns": at_ns, "started_ns": None, "done_ns": None, "parts": 1, "steps": 0,
        "gpu_wait_ns": None, "credit_wait_ns": None, "net_wait_ns": None, "recv_wait_ns": None,
        "flush_wait_ns": None, "consume_wait_ns": None, "waiting": (), "changed_ns": at_ns,
        "dropped": 1,
    }  # fmt: skip
    made = [
        NcclOperation(**given | different)
        for different in (
            {}, {"seq": 2, "parts": 0}, {"seq": 3, "parts": 0, "done_ns": at_ns + 5},
            {"seq": 4, "op": "send", "collective": False}, {"seq": 5, "nranks": None},
        )
    ]  # fmt: skip
    who = Process(1, 0, "python", "night")
    monkeypatch.setattr(jobs.nccl, "read", lambda: [ProcessOperations(who, made)])
    (columns,) = (columns for table, columns in jobs.rows(now) if table is COLLECTIVE)
    assert (list(columns["seq"]), list(columns["rank"])) == ([1, 3], [-1, -1])
    assert list(columns["done_ns"]) == [0, at_ns + 5 + AHEAD_NS]
    assert (list(columns["bytes"]), sum(columns["dropped"])) == ([0, 0], 5)

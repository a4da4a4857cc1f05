"""From NCCL's callbacks in a job's process to rows in the agent, through the plug-in's socket."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.nccl import profiler

from syntony.agent import nccl_socket
from syntony.agent.metrics import put_operations
from syntony.agent.nccl_socket import NcclSocket
from syntony.agent.operations import JobTelemetry
from syntony.errors import MissingError
from syntony.io.nccl_plugin import profiler_plugin
from syntony.io.run_directory import NCCL_SOCKET
from syntony.metrics.sheet import Sheet
from syntony.metrics.text import render
from syntony.workload.nccl_operations import OPERATIONS

if TYPE_CHECKING:
    from syntony.workload.nccl_operations import NcclOperation


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return profiler.build(tmp_path_factory.mktemp("profiler") / "driver", "bench_profiler")
    except MissingError as error:
        pytest.skip(f"{error}: the profiler plug-in is NOT tested")


def test_every_operation_of_a_job_is_reported_once(driver: Path, tmp_path: Path) -> None:
    agent = NcclSocket(tmp_path / NCCL_SOCKET)
    agent.start()
    environment = {"SYNTONY_AGENT": str(tmp_path / "agent"), "SYNTONY_JOB": "night"}
    rows: list[NcclOperation] = []
    words = [str(driver), str(profiler_plugin()), "7", "rate", "1000", "1"]
    with subprocess.Popen(
        words, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        end = time.monotonic() + 300
        while len(rows) < 1000 and time.monotonic() < end:
            for found in agent.read():
                assert (found.process.job, found.process.pid) == ("night", process.pid)
                rows += found.operations
            time.sleep(0.1)
        assert [row.seq for row in rows] == list(range(1000))
        assert {(row.op, row.rank, row.nranks, row.name, row.steps) for row in rows} == {
            ("all_reduce", 3, 8, "dp", 4)
        }
        assert all(row.done_ns and row.done_ns > row.enqueue_ns for row in rows)
        assert agent.read() == []
        assert agent.losses() == {"lost": 0, "malformed": 0, "left_out": 0}
        process.communicate(b"\n")
    agent.close()


@pytest.mark.parametrize("how", ["ended", "crashed", "forgot"])
def test_an_agent_goes_on_where_the_one_before_it_ended(
    how: str, driver: Path, tmp_path: Path
) -> None:
    """Nothing is reported twice; after a crash, only what was read last; without the file, all."""
    environment = {"SYNTONY_AGENT": str(tmp_path / "agent"), "SYNTONY_JOB": "night"}
    words = [str(driver), str(profiler_plugin()), "7", "rate", "250", "12"]
    kept = tmp_path / f"{NCCL_SOCKET}.read"

    def read(agent: NcclSocket, last: int) -> list[list[int]]:
        """Call by call, until that operation is there."""
        found: list[list[int]] = []
        end = time.monotonic() + 300
        while max((max(some) for some in found if some), default=0) < last:
            assert time.monotonic() < end
            found.append([row.seq for each in agent.read() for row in each.operations])
            time.sleep(0.2)
        return found

    first = NcclSocket(tmp_path / NCCL_SOCKET)
    first.start()
    with subprocess.Popen(
        words, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        early = read(first, 600)
        at_crash = kept.read_bytes()
        first.close()
        if how == "crashed":
            kept.write_bytes(at_crash)
        elif how == "forgot":
            kept.write_bytes(b"{broken")
        second = NcclSocket(tmp_path / NCCL_SOCKET)
        second.start()
        seen = [seq for some in early for seq in some]
        late = [seq for some in read(second, 2999) for seq in some]
        process.communicate(b"\n")
    assert set(seen) | set(late) == set(range(3000))
    twice = set(seen) & set(late)
    if how == "ended":
        assert twice == set()
    elif how == "crashed":
        assert twice <= set(early[-1])
    else:
        assert twice == set(seen)
    assert len(late) == len(set(late))
    assert second.losses() == {"lost": 0, "malformed": 0, "left_out": 0}
    second.close()


@pytest.mark.parametrize(("operations", "lost"), [(3000, 0), (10_000, 10_000 - OPERATIONS)])
def test_what_a_process_did_last_is_read_after_its_end(
    operations: int, lost: int, driver: Path, tmp_path: Path
) -> None:
    """Nothing was read while it ran."""
    agent = NcclSocket(tmp_path / NCCL_SOCKET)
    agent.start()
    environment = {"SYNTONY_AGENT": str(tmp_path / "agent"), "SYNTONY_JOB": "night"}
    words = [str(driver), str(profiler_plugin()), "7", "rate", str(operations), "1"]
    subprocess.run(
        words, env=os.environ | environment, input=b"\n", capture_output=True, timeout=600,
        check=True,
    )  # fmt: skip
    end = time.monotonic() + 300
    while agent.processes and time.monotonic() < end:
        time.sleep(0.01)
    [found] = agent.read()
    assert [row.seq for row in found.operations] == list(range(lost, operations))
    assert all(row.done_ns for row in found.operations)
    assert agent.losses() == {"lost": lost, "malformed": 0, "left_out": 0}
    assert agent.read() == []
    agent.close()


def test_operations_of_ended_processes_are_kept_up_to_a_bound(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_socket, "MAX_ENDED", 1500)
    agent = NcclSocket(tmp_path / NCCL_SOCKET)
    agent.start()
    environment = {"SYNTONY_AGENT": str(tmp_path / "agent"), "SYNTONY_JOB": "night"}
    words = [str(driver), str(profiler_plugin()), "7", "rate", "1000", "1"]
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    words, env=os.environ | environment, stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                )
            )
            for _ in range(2)
        ]  # fmt: skip
        for process in processes:
            process.communicate(b"\n", timeout=600)
    end = time.monotonic() + 300
    while agent.processes and time.monotonic() < end:
        time.sleep(0.01)
    assert sorted(len(each.operations) for each in agent.read()) == [500, 1000]
    assert agent.losses()["lost"] == 500
    agent.close()


def test_losses_are_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = JobTelemetry("h0", tmp_path)
    monkeypatch.setattr(jobs.nccl, "losses", lambda: {"lost": 1, "malformed": 2, "left_out": 3})
    sheet = Sheet({"host": "h0"})
    put_operations(sheet, jobs)
    text = render(sheet, "")[1]
    for name, value in (("operations_lost", 1), ("operations_unused", 2), ("parts_left_out", 3)):
        assert f'syntony_nccl_{name}_total{{host="h0"}} {value}.0\n' in text


def test_a_job_without_an_agent_runs_as_ever(driver: Path, tmp_path: Path) -> None:
    environment = {"SYNTONY_AGENT": str(tmp_path / "agent")}
    words = [str(driver), str(profiler_plugin()), "5", "rate", "10000", "1"]
    done = subprocess.run(
        words, env=os.environ | environment, input=b"\n", capture_output=True, timeout=600,
        check=True,
    )  # fmt: skip
    assert done.stdout.startswith(b"10000 ")

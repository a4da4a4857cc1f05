"""From NCCL's callbacks in a job's process to rows in the agent, through the plug-in's socket."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.nccl import profiler

from syntony.agent.nccl_socket import NCCL_SOCKET, NcclSocket
from syntony.errors import MissingError
from syntony.io.nccl_plugin import profiler_plugin

if TYPE_CHECKING:
    from syntony.workload.nccl_operations import NcclOperation


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return profiler.build(tmp_path_factory.mktemp("profiler") / "driver", "bench_profiler")
    except MissingError as error:
        pytest.skip(str(error))


def test_every_operation_of_a_job_is_told_once(driver: Path, tmp_path: Path) -> None:
    agent = NcclSocket(tmp_path / NCCL_SOCKET)
    agent.start()
    environment = {"SYNTONY_AGENT": str(tmp_path / "agent"), "SYNTONY_JOB": "night"}
    rows: list[NcclOperation] = []
    words = [driver, profiler_plugin(), "7", "rate", "1000", "1"]
    with subprocess.Popen(
        words, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        end = time.monotonic() + 30
        while len(rows) < 1000 and time.monotonic() < end:
            for told in agent.read():
                assert (told.process.job, told.process.pid) == ("night", process.pid)
                rows += told.operations
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


def test_a_job_without_an_agent_runs_as_ever(driver: Path, tmp_path: Path) -> None:
    environment = {"SYNTONY_AGENT": str(tmp_path / "agent")}
    words = [driver, profiler_plugin(), "5", "rate", "10000", "1"]
    done = subprocess.run(
        words, env=os.environ | environment, input=b"\n", capture_output=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert done.stdout.startswith(b"10000 ")

"""From a process of a job to `syntony paths`, and from a fault to the process, in a lab."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet.failing import Fleet, await_true, four_hosts
from tests.live import SYNTONY

import syntony.io
from syntony.controller.client import ask
from syntony.wire.failover import ConnectionsQuery, ProcessView, SwitchCommand

pytestmark = pytest.mark.lab
NAME = "t-job-link"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The example, built as the documentation says, from what is installed."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip(
            "needs a C compiler (Debian: gcc): links of jobs are NOT tested on a live fleet"
        )
    folder = next(
        found for base in syntony.io.__path__ if (found := Path(base) / "_native/job").exists()
    )
    made = tmp_path_factory.mktemp("job") / "job_tell"
    sources = [str(folder / name) for name in ("job_tell.c", "syn_job.c")]
    subprocess.run(
        [compiler, "-O2", "-D_GNU_SOURCE", f"-I{folder}", *sources, "-o", str(made)], check=True
    )
    return str(made)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    yield from four_hosts(NAME)


def reported(fleet: Fleet, job: str) -> list[ProcessView]:
    answer = ask(fleet.target, ConnectionsQuery(job=job, host="h0"))
    return [each for host in answer.hosts for each in host.report.processes]


def test_a_process_tells_and_hears(fleet: Fleet, program: str, tmp_path: Path) -> None:
    addresses = fleet.lab.addresses(4)
    ends = (addresses["h0/rail0"], addresses["h2/rail0"])
    words = ["run", "--job", "ring", "--", program, "300", *ends]
    heard = tmp_path / "heard"
    with (
        heard.open("w") as out,
        subprocess.Popen(fleet.lab.enter_argv("h0", [*SYNTONY, *words]), stdout=out),
    ):
        await_true(lambda: bool(reported(fleet, "ring")), "the process is connected")
        (view,) = reported(fleet, "ring")
        try:
            assert view.program == "job_tell"
            (flow,) = view.flows
            assert (flow.local.partition(":")[0], flow.remote.partition(":")[0]) == ends
            assert flow.outstanding == 4
            assert not reported(fleet, "another")
            await_true(
                lambda: reported(fleet, "ring")[0].flows[0].bytes_done > flow.bytes_done, "progress"
            )
            path = " ".join(f"::ffff:{end}" for end in ends)
            fault = fleet.lab.inject("blackhole", "h2/rail0", {})
            await_true(lambda: f"path-dead {path}\n" in heard.read_text(), "the path is dead")
            fleet.lab.clear(fault.id)
            await_true(lambda: f"path-alive {path}\n" in heard.read_text(), "its return")
            ask(fleet.target, SwitchCommand(stopped=True, by="test"))
            await_true(lambda: "stopped :: ::\n" in heard.read_text(), "the stop")
            ask(fleet.target, SwitchCommand(stopped=False, by="test"))
            await_true(lambda: "started :: ::\n" in heard.read_text(), "the start")
        finally:
            fleet.lab.run("h0", "kill", str(view.pid))
    await_true(lambda: not reported(fleet, "ring"), "it is gone")

"""Jobs in a real lab: right results, planted wrong ones, ranks that die, nothing left behind."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.live import LiveLab, eventually, live

from syntony.errors import MissingError, RemoteError
from syntony.lab.jobs.programs import BY_NAME, JobSpec
from syntony.lab.jobs.records import StepRecord
from syntony.lab.jobs.runner import LabJob
from syntony.lab.jobs.torch_build import find_torch

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.lab
END_S = 60.0


@pytest.fixture(scope="module")
def lab(able: None) -> Iterator[LiveLab]:
    with live("t-jobs", "--hosts", "4") as found:
        yield found


def spec(lab: LiveLab, name: str = "builtin") -> JobSpec:
    framework, kind = BY_NAME[name]
    hosts = lab.status().hosts
    addresses = tuple(lab.addresses(4)[f"{host}/rail0"] for host in hosts)
    return JobSpec(
        framework=framework, kind=kind, hosts=hosts, addresses=addresses, elements=16_384
    )


@pytest.mark.parametrize("name", ["builtin", "builtin-all-to-all"])
def test_the_builtin_job_ends_when_asked_with_every_result_right(lab: LiveLab, name: str) -> None:
    with LabJob(lab, spec(lab, name)) as job:
        job.wait_steps(20)
        job.request_end()
        assert job.wait_end(END_S)
        assert job.finished()
        steps = [record for record in job.records() if isinstance(record, StepRecord)]
    assert all(step.wrong == 0 and step.start_ns < step.end_ns for step in steps)
    assert len({sum(step.rank == rank for step in steps) for rank in range(4)}) == 1


def test_a_planted_wrong_number_is_told_by_every_rank(lab: LiveLab) -> None:
    with LabJob(lab, msgspec.structs.replace(spec(lab), spoil=3)) as job:
        job.wait_steps(6)
        wrong = {(r.rank, r.step) for r in job.records() if isinstance(r, StepRecord) and r.wrong}
    assert wrong == {(rank, 3) for rank in range(4)}


def test_a_rank_that_dies_takes_the_job_with_it_and_nothing_stays(lab: LiveLab) -> None:
    with LabJob(lab, spec(lab)) as job:
        job.wait_steps(3)
        victim = pids(lab, "h2")
        assert len(victim) == 1
        lab.run("h2", "kill", "-9", *victim)
        assert job.wait_end(END_S)
        assert not job.finished()
        assert "rank" in job.last_output()
        with pytest.raises(RemoteError, match="did not start: rank"):
            job.wait_steps(10**6)
    eventually(lambda: not any(pids(lab, host) for host in lab.status().hosts), "all gone")


def test_a_job_that_hangs_is_killed_with_all_its_processes(lab: LiveLab) -> None:
    """A frozen rank: the others wait for it for ever."""
    with LabJob(lab, spec(lab)) as job:
        job.wait_steps(3)
        lab.run("h1", "kill", "-STOP", *pids(lab, "h1"))
        job.request_end()
        assert not job.wait_end(0.5)
        assert job.alive()
    assert not any(pids(lab, host) for host in lab.status().hosts)


def test_ranks_end_when_whoever_started_them_is_gone(lab: LiveLab) -> None:
    child = os.fork()
    if child == 0:
        with LabJob(lab, spec(lab)) as job:
            job.wait_steps(1)
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    eventually(lambda: not any(pids(lab, host) for host in lab.status().hosts), "ranks gone")


_slow = pytest.mark.slow


@pytest.mark.parametrize(
    "name",
    ["ddp", pytest.param("all-reduce", marks=_slow), pytest.param("all-to-all", marks=_slow)],
)
def test_the_same_through_pytorch(lab: LiveLab, name: str) -> None:
    """Right but for the step in which rank 1 plants a wrong number."""
    try:
        python = find_torch()
    except MissingError as error:
        pytest.skip(f"{error}: its jobs are NOT tested in a lab")
    with LabJob(lab, msgspec.structs.replace(spec(lab, name), python=python, spoil=3)) as job:
        job.wait_steps(5)
        job.request_end()
        assert job.wait_end(END_S)
        assert job.finished(), job.last_output()
        wrong = {(r.rank, r.step) for r in job.records() if isinstance(r, StepRecord) and r.wrong}
    assert wrong == {(rank, 3) for rank in range(4)}


def pids(lab: LiveLab, host: str) -> list[str]:
    """Of the job's ranks in one host."""
    look = (
        "for p in $(ip netns pids $0); do grep -qa 'lab.job[s]' /proc/$p/cmdline && echo $p; done"
    )
    return lab.run(host, "sh", "-c", f"{look}; true", host).split()

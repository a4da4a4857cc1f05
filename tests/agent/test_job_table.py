"""Jobs' processes in trees like /proc: whose they are, and interrupts of their cores."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from syntony.io.job_table import JobProcess, JobTable
from syntony.model import S

TICK_NS = S // os.sysconf("SC_CLK_TCK")


def add_process(proc: Path, pid: int, cores: str = "0-1", **environ: str) -> None:
    place = proc / str(pid)
    (place / "task" / str(pid)).mkdir(parents=True)
    (place / "environ").write_bytes(b"".join(f"{k}={v}\0".encode() for k, v in environ.items()))
    (place / "comm").write_text("python\n")
    fields = ["S", *["0"] * 10, "3", "4", *["0"] * 4, "1", "0", "100", *["0"] * 30]
    (place / "stat").write_text(f"{pid} (python) {' '.join(fields)}\n")
    (place / "task" / str(pid) / "schedstat").write_text("5 6 7\n")
    (place / "status").write_text(f"Name:\tpython\nCpus_allowed_list:\t{cores}\nMems:\t0\n")


def interrupts(proc: Path, **ticks: tuple[int, int]) -> None:
    """Of each core: irq and softirq."""
    lines = ["cpu  1 1 1 1 1 900 900 0 0 0"]
    lines += [f"{core} 1 1 1 1 1 {irq} {soft} 0 0 0" for core, (irq, soft) in ticks.items()]
    (proc / "stat").write_text("\n".join([*lines, "intr 1 2 3", "ctxt 4"]) + "\n")


def look(proc: Path, times: int = 1) -> list[JobProcess]:
    table = JobTable(Path("/run/syntony/agent"), proc)
    found: list[JobProcess] = []
    for _ in range(times):
        found = table.look()
    return found


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({"SLURM_JOB_ID": "88", "SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, "slurm-88"),
        ({"PBS_JOBID": "7.head", "PMI_RANK": "3", "PMI_SIZE": "8"}, "pbs-7.head"),
        ({"TORCHELASTIC_RUN_ID": "night", "RANK": "3", "WORLD_SIZE": "8"}, "torch-night"),
        ({"JOB_COMPLETION_INDEX": "3", "HOSTNAME": "train-3", "RANK": "3", "WORLD_SIZE": "8"},
         "k8s-train"),
        ({"SYNTONY_JOB": "mine", "SLURM_JOB_ID": "88", "RANK": "3", "WORLD_SIZE": "8"}, "mine"),
        ({"SLURM_JOB_ID": "88"}, None),
        ({"JOB_COMPLETION_INDEX": "3", "HOSTNAME": "train-3"}, None),
        ({"RANK": "3", "WORLD_SIZE": "8"}, None),
        ({"SYNTONY_JOB": "no name", "SLURM_JOB_ID": "88", "RANK": "3", "WORLD_SIZE": "8"}, None),
        ({"SLURM_JOB_ID": "88", "RANK": "3", "WORLD_SIZE": "8", "SYNTONY_AGENT": "/other"}, None),
    ],
)  # fmt: skip
def test_ranks_of_schedulers_jobs_are_found(
    tmp_path: Path, environ: dict[str, str], job: str | None
) -> None:
    add_process(tmp_path, 71, **environ)
    found = [(each.job, each.rank, each.ranks) for each in look(tmp_path)]
    assert found == ([] if job is None else [(job, 3, 8)])


def test_interrupts_are_those_of_the_cores_that_the_job_may_use(tmp_path: Path) -> None:
    add_process(tmp_path, 71, "0", SYNTONY_JOB="a")
    add_process(tmp_path, 72, "1,3", SYNTONY_JOB="a")
    add_process(tmp_path, 73, "2-3", SYNTONY_JOB="b")
    table = JobTable(Path("/run/syntony/agent"), tmp_path)
    interrupts(tmp_path, cpu0=(10, 20), cpu1=(1, 1), cpu2=(0, 0), cpu3=(5, 5))
    assert all(math.isnan(each.irq_ns) for each in table.look())
    interrupts(tmp_path, cpu0=(13, 24), cpu1=(1, 2), cpu2=(0, 50), cpu3=(6, 5), cpu4=(9, 9))
    found = {each.pid: each.irq_ns for each in table.look()}
    assert found == {71: 9 * TICK_NS, 72: 9 * TICK_NS, 73: 51 * TICK_NS}


def test_interrupts_that_are_hidden_are_not_known(tmp_path: Path) -> None:
    """The hardened unit's ProcSubset=pid."""
    add_process(tmp_path, 71, SYNTONY_JOB="a")
    (found,) = look(tmp_path, times=3)
    assert math.isnan(found.irq_ns)
    assert (found.cpu_ns, found.runq_ns) == (0, 0)

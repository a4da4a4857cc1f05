"""Jobs' processes in trees like /proc: whose they are, and interrupts of their cores."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from syntony.io.job_table import OOM_LOOKS, JobProcess, JobTable
from syntony.io.oom_kills import OomKills
from syntony.io.process_exits import ExitSource, ProcessExit
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


class Told(ExitSource):
    """Ends that the kernel tells."""

    def __init__(self) -> None:
        self.watched: list[int] = []
        self.ends: dict[int, ProcessExit] = {}
        self.late = 0
        """After so many readings it tells them."""

    def watch(self, pid: int) -> None:
        self.watched.append(pid)

    def read(self) -> dict[int, ProcessExit]:
        if self.late:
            self.late -= 1
            return {}
        found, self.ends = self.ends, {}
        return found

    def close(self) -> None: ...


class Kills(OomKills):
    """One cgroup, in which so many were killed since the last look."""

    def __init__(self) -> None:
        super().__init__()
        self.since: int | None = 0
        """None: that cannot be read."""

    def of(self, process: Path) -> Path | None:
        return Path("/job")

    def look(self, cgroups: Iterable[Path]) -> dict[Path, int]:
        found, self.since = self.since, 0
        return {} if found is None else dict.fromkeys(cgroups, found)


def table_of(proc: Path, pids: Iterable[int]) -> tuple[JobTable, Told, Kills]:
    """A table that knows these processes."""
    for pid in pids:
        add_process(proc, pid, SYNTONY_JOB="a")
    exits, kills = Told(), Kills()
    table = JobTable(Path("/run/syntony/agent"), proc, lambda: exits, kills)
    table.look()
    assert sorted(exits.watched) == sorted(pids)
    return table, exits, kills


def ends(table: JobTable) -> dict[int, tuple[int | None, bool | None]]:
    """Process → exit status, and whether memory lacked, of those that have ended."""
    return {each.pid: (each.exit.status if each.exit else None, each.oom)
            for each in table.look() if each.ended}  # fmt: skip


def test_a_process_ends_as_the_kernel_says(tmp_path: Path) -> None:
    table, exits, _ = table_of(tmp_path, (71, 72, 73))
    for pid in (71, 72):
        shutil.rmtree(tmp_path / str(pid))
    exits.ends = {71: ProcessExit(-11, 5), 99: ProcessExit(0, 6)}
    assert ends(table) == {71: (-11, False), 72: (None, False)}
    assert ends(table) == {}


def test_what_the_kernel_says_after_a_process_is_gone_counts(tmp_path: Path) -> None:
    table, exits, _ = table_of(tmp_path, (71,))
    shutil.rmtree(tmp_path / "71")
    exits.ends, exits.late = {71: ProcessExit(-9, 5)}, 2
    assert ends(table) == {71: (-9, False)}


def without_first_thread(proc: Path, pid: int, threads: int) -> None:
    fields = ["Z", *["0"] * 10, "3", "4", *["0"] * 4, str(threads), "0", "100", *["0"] * 30]
    (proc / str(pid) / "stat").write_text(f"{pid} (python) {' '.join(fields)}\n")
    (proc / str(pid) / "environ").write_bytes(b"")


@pytest.mark.parametrize(("threads", "ended"), [(1, True), (2, False)])
def test_a_process_that_nobody_waits_for_ends_with_its_last_thread(
    tmp_path: Path, threads: int, ended: bool
) -> None:
    table, exits, _ = table_of(tmp_path, (71,))
    without_first_thread(tmp_path, 71, threads)
    exits.ends = {71: ProcessExit(1, 5)}
    assert ends(table) == ({71: (1, False)} if ended else {})
    shutil.rmtree(tmp_path / "71")
    assert ends(table) == ({} if ended else {71: (1, False)})


@pytest.mark.parametrize("late", [False, True])
def test_of_killed_processes_as_many_as_the_kernel_counts_lacked_memory(
    tmp_path: Path, late: bool
) -> None:
    """The first ones; also if they end after the look that finds the kill, and not later."""
    table, exits, kills = table_of(tmp_path, (71, 72, 73, 74))
    kills.since = 1
    if late:
        assert ends(table) == {}
    for pid in (71, 72, 73):
        shutil.rmtree(tmp_path / str(pid))
    exits.ends = {71: ProcessExit(-15, 5), 72: ProcessExit(-9, 7), 73: ProcessExit(-9, 6)}
    assert ends(table) == {71: (-15, False), 72: (-9, False), 73: (-9, True)}
    shutil.rmtree(tmp_path / "74")
    exits.ends = {74: ProcessExit(-9, 9)}
    assert ends(table) == {74: (-9, False)}


@pytest.mark.parametrize(("status", "known"), [(0, None), (-9, -9), (3, 3)])
def test_the_status_of_a_first_thread_that_ended_alone_is_not_the_processs(
    tmp_path: Path, status: int, known: int | None
) -> None:
    """pthread_exit leaves 0. Threads of a process that was killed may take long to end."""
    table, exits, _ = table_of(tmp_path, (71,))
    without_first_thread(tmp_path, 71, 2)
    exits.ends = {71: ProcessExit(status, 5)}
    (running,) = table.look()
    assert (running.ended, running.exit) == (False, None)
    assert ends(table) == {}
    shutil.rmtree(tmp_path / "71")
    (gone,) = table.look()
    assert gone.exit == (None if known is None else ProcessExit(known, 5))


@pytest.mark.parametrize(
    ("looks", "oom"), [(1, True), (OOM_LOOKS - 1, True), (OOM_LOOKS, None), (100, None)]
)
def test_who_was_killed_for_lack_of_memory_may_be_waited_for_later(
    tmp_path: Path, looks: int, oom: bool | None
) -> None:
    table, exits, kills = table_of(tmp_path, (71, 72))
    kills.since = 1
    for _ in range(looks):
        assert ends(table) == {}
    for pid, status, told in ((71, -9, oom), (72, -9, False)):
        shutil.rmtree(tmp_path / str(pid))
        exits.ends = {pid: ProcessExit(status, 5)}
        assert ends(table) == {pid: (status, told)}


def test_where_kills_cannot_be_counted_only_other_ends_are_known_not_to_be_such(
    tmp_path: Path,
) -> None:
    table, exits, kills = table_of(tmp_path, (71, 72))
    for pid in (71, 72):
        shutil.rmtree(tmp_path / str(pid))
    exits.ends, kills.since = {71: ProcessExit(-9, 5), 72: ProcessExit(-15, 6)}, None
    assert ends(table) == {71: (-9, None), 72: (-15, False)}

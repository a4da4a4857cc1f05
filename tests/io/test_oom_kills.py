"""Kills for lack of memory, in trees like /sys/fs/cgroup of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.io.oom_kills import OomKills


def process(place: Path, *lines: str) -> Path:
    found = place / "proc"
    found.mkdir(exist_ok=True)
    (found / "cgroup").write_text("".join(f"{line}\n" for line in lines))
    return found


def count(cgroup: Path, kills: int, name: str = "memory.events") -> None:
    cgroup.mkdir(parents=True, exist_ok=True)
    (cgroup / name).write_text(f"low 0\noom {kills + 3}\noom_kill {kills}\noom_group_kill 0\n")


def test_kills_since_the_last_look_are_of_their_cgroup(tmp_path: Path) -> None:
    count(tmp_path / "job_1", 4)
    count(tmp_path / "job_2", 0)
    kills = OomKills(tmp_path)
    one = kills.of(process(tmp_path, "0::/job_1"))
    two = kills.of(process(tmp_path, "0::/job_2"))
    assert (one, two) == (tmp_path / "job_1", tmp_path / "job_2")
    assert one
    assert two
    count(tmp_path / "job_1", 6)
    assert kills.look([one, two]) == {one: 2, two: 0}
    assert kills.look([one, two]) == {one: 0, two: 0}


def test_of_a_cgroup_that_was_removed_the_one_above_it_tells(tmp_path: Path) -> None:
    """Slurm removes a step's as soon as it has ended."""
    count(tmp_path / "slurm", 7)
    count(tmp_path / "slurm" / "step_0", 0)
    kills = OomKills(tmp_path)
    step = kills.of(process(tmp_path, "0::/slurm/step_0"))
    assert step
    (step / "memory.events").unlink()
    count(tmp_path / "slurm", 8)
    assert kills.look([step]) == {step: 1}


def test_of_removed_cgroups_the_first_gets_what_no_other_counted(tmp_path: Path) -> None:
    above = tmp_path / "slurm"
    steps = [above / f"step_{number}" for number in range(3)]
    for each in (above, *steps):
        count(each, 0)
    kills = OomKills(tmp_path)
    for each in steps:
        kills.of(process(tmp_path, f"0::/slurm/{each.name}"))
    count(steps[2], 2)
    count(above, 2)
    (steps[0] / "memory.events").unlink()
    (steps[1] / "memory.events").unlink()
    assert kills.look(steps) == {steps[0]: 0, steps[1]: 0, steps[2]: 2}
    count(steps[2], 3)
    count(above, 4)
    assert kills.look(steps) == {steps[0]: 1, steps[2]: 1}


def test_cgroups_without_counters_are_counted_together_above(tmp_path: Path) -> None:
    """Where the memory controller is not enabled below."""
    job = tmp_path / "job"
    count(job, 0)
    kills = OomKills(tmp_path)
    assert {kills.of(process(tmp_path, f"0::/job/{name}")) for name in "ab"} == {job}
    count(job, 1)
    assert kills.look([job]) == {job: 1}


def test_version_1_counts_beside_other_controllers(tmp_path: Path) -> None:
    group = tmp_path / "memory" / "job"
    count(group, 1, "memory.oom_control")
    kills = OomKills(tmp_path)
    found = kills.of(process(tmp_path, "12:cpu,cpuacct:/a", "4:memory:/job", "0::/"))
    assert found == group
    count(group, 2, "memory.oom_control")
    assert kills.look([group]) == {group: 1}


def test_of_version_1_no_cgroup_counts_for_those_below(tmp_path: Path) -> None:
    job, step = tmp_path / "memory" / "job", tmp_path / "memory" / "job" / "step"
    for each in (job, step):
        count(each, 0, "memory.oom_control")
    kills = OomKills(tmp_path)
    assert kills.of(process(tmp_path, "4:memory:/job/step")) == step
    (step / "memory.oom_control").unlink()
    count(job, 1, "memory.oom_control")
    assert kills.look([job, step]) == {}


@pytest.mark.parametrize("lines", [(), ("3:cpuset:/",)])
def test_without_a_cgroup_nothing_is_known(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert OomKills(tmp_path).of(process(tmp_path, *lines)) is None
    assert OomKills(tmp_path).of(tmp_path / "gone") is None


def test_counters_that_cannot_be_read_are_not_known(tmp_path: Path) -> None:
    kills = OomKills(tmp_path)
    assert kills.of(process(tmp_path, "0::/job")) is None
    count(tmp_path / "job", 3)
    assert kills.look([tmp_path / "job"]) == {}
    (tmp_path / "job" / "memory.events").unlink()
    assert kills.look([tmp_path / "job"]) == {}

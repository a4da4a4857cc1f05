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
    assert kills.look([one, two]) == {one: 2}
    assert kills.look([one, two]) == {}


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


def test_version_1_counts_beside_other_controllers(tmp_path: Path) -> None:
    group = tmp_path / "memory" / "job"
    count(group, 1, "memory.oom_control")
    kills = OomKills(tmp_path)
    found = kills.of(process(tmp_path, "12:cpu,cpuacct:/a", "4:memory:/job", "0::/"))
    assert found == group
    count(group, 2, "memory.oom_control")
    assert kills.look([group]) == {group: 1}


@pytest.mark.parametrize("lines", [(), ("3:cpuset:/",)])
def test_without_a_cgroup_nothing_is_known(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert OomKills(tmp_path).of(process(tmp_path, *lines)) is None
    assert OomKills(tmp_path).of(tmp_path / "gone") is None


def test_counters_that_cannot_be_read_are_not_known(tmp_path: Path) -> None:
    kills = OomKills(tmp_path)
    found = kills.of(process(tmp_path, "0::/job"))
    assert found
    count(found, 3)
    assert kills.look([found]) == {}

"""Jobs by their sockets, and settings: against trees made for the purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.errors import MissingError
from syntony.io.jobs import JobProcesses
from syntony.io.mptcp_pm import UserspaceManagement


def process(proc: Path, pid: int, environ: bytes, inodes: tuple[int, ...]) -> None:
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "environ").write_bytes(environ)
    for number, inode in enumerate(inodes):
        (proc / str(pid) / "fd" / str(number)).symlink_to(f"socket:[{inode}]")


def test_a_socket_belongs_to_the_job_of_whoever_holds_it(tmp_path: Path) -> None:
    process(tmp_path, 10, b"PATH=/bin\0SYNTONY_JOB=train-7\0", (100, 101))
    process(tmp_path, 11, b"PATH=/bin\0NOT_SYNTONY_JOB=x\0", (102,))
    process(tmp_path, 12, b"SYNTONY_JOB=\xff\0", (103,))
    (tmp_path / "self").mkdir()
    jobs = JobProcesses(tmp_path)
    assert jobs.look([100, 102, 103, 999]) == {100: "train-7", 103: "\ufffd"}


def test_a_process_that_becomes_a_job_by_exec_is_seen(tmp_path: Path) -> None:
    process(tmp_path, 10, b"PATH=/bin\0", (100,))
    jobs = JobProcesses(tmp_path)
    assert jobs.look([100]) == {}
    (tmp_path / "10" / "environ").write_bytes(b"SYNTONY_JOB=late\0")
    assert jobs.look([100]) == {100: "late"}


@pytest.mark.parametrize(("name", "before"), [("path_manager", "kernel"), ("pm_type", "0")])
def test_management_is_taken_and_given_back(tmp_path: Path, name: str, before: str) -> None:
    (tmp_path / name).write_text(f"{before}\n")
    held = UserspaceManagement(tmp_path)
    assert (tmp_path / name).read_text() in {"userspace", "1"}
    held.release()
    assert (tmp_path / name).read_text() == before


def test_a_setting_that_is_right_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    setting = tmp_path / "path_manager"
    setting.write_text("userspace\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/path_manager").write_text("kernel\n")
    monkeypatch.setattr(Path, "write_text", refuse)
    UserspaceManagement(tmp_path).release()
    with pytest.raises(MissingError, match=r"Read-only file system.* set it to userspace"):
        UserspaceManagement(tmp_path / "other")


def test_a_kernel_without_mptcp_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="CONFIG_MPTCP"):
        UserspaceManagement(tmp_path)

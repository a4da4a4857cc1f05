"""Finds the job of a socket: inode → process that holds it → ``SYNTONY_JOB`` in its environment."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from syntony.io.job_sockets import SocketHolder
from syntony.model.jobs import JOB_VARIABLE

_MAX_VALUE = 256
_MAX_ENVIRONMENT = 8 << 20
"""Bytes looked through; Linux allows 6 MiB of arguments and environment together."""


class JobProcesses:
    """Processes of jobs, remembered from one look to the next. Not thread-safe."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._jobs: dict[tuple[str, int], str] = {}
        """(pid, inode of /proc/PID: a new one for a new process of that number) to job; empty for
        processes of none. An exec may change it: see `look`."""
        self.held: dict[int, SocketHolder] = {}
        """Where the sockets are that the last `look` found, by inode."""

    def look(self, inodes: Collection[int]) -> dict[int, str]:
        """Socket inode to job, for those of `inodes` that a job's process holds."""
        wanted = {f"socket:[{inode}]": inode for inode in inodes}
        found: dict[int, str] = {}
        self.held = {}
        for pid, job in self._processes().items():
            if len(found) == len(wanted):
                break
            for number, link in self._links(pid):
                if link in wanted:
                    found[wanted[link]] = job
                    self.held[wanted[link]] = SocketHolder(int(pid), int(number))
        return found

    def _processes(self) -> dict[str, str]:
        """Processes of jobs. Their environment is read once: it changes only by exec, and a job's
        launcher sets it first. So only processes of no job are read again."""
        jobs: dict[tuple[str, int], str] = {}
        for entry in os.scandir(self._proc):
            if not entry.name.isdigit():
                continue
            key = (entry.name, entry.inode())
            jobs[key] = self._jobs.get(key) or self._job(entry.name)
        self._jobs = jobs
        return {pid: job for (pid, _), job in jobs.items() if job}

    def _job(self, pid: str) -> str:
        try:
            return job_in_environment(self._proc / pid)
        except OSError:
            return ""  # gone, or not ours to see

    def _links(self, pid: str) -> list[tuple[str, str]]:
        """Open files of a process: number, and what it is."""
        with suppress(OSError):  # ended meanwhile: found by the next look
            return [(each.name, _target(each)) for each in Path(self._proc, pid, "fd").iterdir()]
        return []


def job_in_environment(process: Path) -> str:
    """The job that a process's environment names; empty: none.

    Args:
        process: ``/proc/PID``.

    Raises:
        OSError: it is gone, or not ours to see.
    """
    return environment(process).get(JOB_VARIABLE, "")


def environment(process: Path) -> dict[str, str]:
    """What a process's environment was when its program began, values cut at 256 bytes.

    Args:
        process: ``/proc/PID``.

    Raises:
        OSError: it is gone, or not ours to see.
    """
    with (process / "environ").open("rb") as file:
        entries = file.read(_MAX_ENVIRONMENT).split(b"\0")
    found: dict[str, str] = {}
    for entry in entries:
        name, _, value = entry.partition(b"=")
        found.setdefault(name.decode(errors="replace"), value[:_MAX_VALUE].decode(errors="replace"))
    return found


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # closed meanwhile

"""Processes of a job's ranks, as the causes of `bench.why_lab` need them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PIDFD_GETFD = 438
"""Its number among Linux's system calls, on all machines."""
LIBC = ctypes.CDLL(None, use_errno=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    """With all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def members(group: int) -> list[int]:
    """Processes of a process group."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[2]) == group:
            found.append(int(place.parent.name))
    return found


def sockets(group: int) -> list[socket.socket]:
    """Duplicates of the TCP sockets that processes of a group hold."""
    found = []
    for pid in members(group):
        with ExitStack() as stack:
            process = os.pidfd_open(pid)
            stack.callback(os.close, process)
            for place in Path(f"/proc/{pid}/fd").iterdir():
                if not str(place.readlink()).startswith("socket:"):
                    continue
                number = LIBC.syscall(PIDFD_GETFD, process, int(place.name), 0)
                held = socket.socket(fileno=number) if number >= 0 else None
                if held is None:
                    continue
                if held.family == socket.AF_INET and held.type == socket.SOCK_STREAM:
                    found.append(held)
                else:
                    held.close()
    return found


def pin(thread: int, cores: set[int], nice: int) -> None:
    """Let a thread run on these cores only, at this priority."""
    try:
        os.sched_setaffinity(thread, cores)
        os.setpriority(os.PRIO_PROCESS, thread, nice)
    except ProcessLookupError:
        return


def end_groups(groups: Iterable[int]) -> None:
    """Ask process groups to end, if they have not."""
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGTERM)

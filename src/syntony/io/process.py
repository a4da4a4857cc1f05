"""What this process costs its host."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from syntony.io._library import library
from syntony.model import S


class Usage(NamedTuple):
    """Resources that a process used since its start, all threads together."""

    cpu_ns: int
    rss_bytes: int


def own_usage() -> Usage:
    """CPU time and resident memory of this process (proc_pid_statm(5))."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return Usage(time.process_time_ns(), pages * os.sysconf("SC_PAGESIZE"))


class ProcStat(NamedTuple):
    """What ``/proc/PID/stat`` says of a process (proc_pid_stat(5))."""

    state: str
    """Of its first thread: R, S, D (waits for a device), T (stopped), t (traced), Z."""
    cpu_ns: int
    """User and system time of all its threads."""
    threads: int
    started_ticks: int
    """CLOCK_BOOTTIME in clock ticks; with its number it identifies a process."""
    handles_term: bool
    """It handles SIGTERM."""


def read_stat(process: Path) -> ProcStat:
    """Read ``stat`` in a directory ``/proc/PID``. Raises `OSError`: the process is gone."""
    text = (process / "stat").read_text(encoding="ascii", errors="replace")
    # Its name, in parentheses, may contain anything.
    fields = text.rpartition(")")[2].split()
    cpu_ns = (int(fields[11]) + int(fields[12])) * (S // os.sysconf("SC_CLK_TCK"))
    handles_term = bool(int(fields[31]) >> (signal.SIGTERM - 1) & 1)
    return ProcStat(fields[0], cpu_ns, int(fields[17]), int(fields[19]), handles_term)


def serve_promptly() -> bool:
    """Ask for prompt scheduling of the calling thread and those it starts later, by a short time
    slice (Linux 6.12, no privilege). Returns whether it was granted.

    A thread that an operator gave another policy (batch, say) is left as it is.
    """
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    return bool(library().syn_short_slice() == 0)


def name_thread(name: str) -> None:
    """Show the calling thread under this name, cut to 15 characters, in ``top -H`` and ``ps -L``.

    Before 3.14 Python does not pass the names of its threads to the kernel.
    """
    with contextlib.suppress(OSError):
        Path("/proc/thread-self/comm").write_text(name[:15], encoding="ascii")

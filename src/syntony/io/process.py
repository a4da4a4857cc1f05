"""What this process costs its host."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple


class Usage(NamedTuple):
    """Since the process started, all threads together."""

    cpu_ns: int
    rss_bytes: int


def own_usage() -> Usage:
    """CPU time and resident memory of this process (proc_pid_statm(5))."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return Usage(time.process_time_ns(), pages * os.sysconf("SC_PAGESIZE"))


def name_thread(name: str) -> None:
    """Show the calling thread under this name, 15 bytes of it, in ``top -H`` and ``ps -L``: what
    Python calls its threads, the kernel does not know before 3.14."""
    with contextlib.suppress(OSError):
        Path("/proc/thread-self/comm").write_text(name[:15], encoding="ascii")

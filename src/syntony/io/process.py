"""What this process costs its host."""

from __future__ import annotations

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

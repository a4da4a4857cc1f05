"""Whether a process still runs the files that are installed: an upgrade replaces them under it.

What such a process starts is of the new version, and may not understand it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import syntony
from syntony.io.process import read_stat
from syntony.model import S

REPLACED = "the package was replaced after this process started: restart it"
_PROC = Path("/proc")


class Installation:
    """The installed package as it was when this was made, at the start of a process.

    Args:
        file: one of its files. dpkg and pip replace each file, also one that is the same.
    """

    def __init__(self, file: Path = Path(syntony.__file__)) -> None:
        self._file = file
        self._found = self._look()

    def is_replaced(self) -> bool:
        """Whether the file is another one now, or gone."""
        return self._look() != self._found

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns


def is_older(pid: int, file: Path = Path(syntony.__file__), proc: Path = _PROC) -> bool:
    """Whether a process of this installation was started before the package was installed.

    False if that is not known: it is gone, runs another interpreter, or the clock was stepped back.
    """
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
        ticks = read_stat(proc / str(pid)).started_ticks
        installed_ns = file.stat().st_ctime_ns
    except OSError:
        return False
    age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * S // os.sysconf("SC_CLK_TCK")
    now_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    return words[0] == os.fsencode(sys.executable) and now_ns - age_ns < installed_ns <= now_ns

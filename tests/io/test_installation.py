"""Whether a process runs what is installed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from syntony.io.installation import Installation, is_older


def test_a_file_that_is_replaced_or_gone(tmp_path: Path) -> None:
    file = tmp_path / "__init__.py"
    file.write_text("")
    found = Installation(file)
    assert not found.is_replaced()
    other = tmp_path / "new"
    other.write_text("")
    other.rename(file)  # as dpkg does, also if it is the same
    assert found.is_replaced()
    file.unlink()
    assert found.is_replaced()


def test_a_process_that_was_started_before_a_file(tmp_path: Path) -> None:
    file = tmp_path / "__init__.py"
    file.write_text("")
    started = tmp_path / "proc" / "7"
    started.mkdir(parents=True)
    tick_s = 1 / os.sysconf("SC_CLK_TCK")

    def is_older_by(seconds: float, program: str = sys.executable) -> bool:
        """A process that was started so long before the file was written."""
        (started / "cmdline").write_bytes(f"{program}\0syntony\0agent\0".encode())
        age_s = time.clock_gettime(time.CLOCK_REALTIME) - file.stat().st_ctime + seconds
        began = (time.clock_gettime(time.CLOCK_BOOTTIME) - age_s) / tick_s
        (started / "stat").write_text(f"7 (a b) S {' '.join('1' * 18)} {round(began)}{' 1' * 30}")
        return is_older(7, file, tmp_path / "proc")

    assert is_older_by(60)
    assert not is_older_by(-60)
    assert not is_older_by(60, "/usr/bin/other-python"), "another installation"
    assert not is_older(8, file, tmp_path / "proc"), "gone"

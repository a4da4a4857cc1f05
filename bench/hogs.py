"""Busy loops beside whatever is measured."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOP = (sys.executable, "-c", "while True: pass")


@contextmanager
def hogs(count: int, niceness: int = 0) -> Iterator[None]:
    """So many, at this priority, until the end of the block."""
    running = [subprocess.Popen(["nice", "-n", str(niceness), *LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()

"""Busy loops beside whatever is measured."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOREVER = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""
LOOP = (sys.executable, "-c", _FOREVER)
"""Ends with who started it."""


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

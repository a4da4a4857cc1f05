"""What the controller asks of the C library's allocator, seen in page faults of a process."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from syntony.controller.main import keep_freed

assert keep_freed()
for each in range(20):
    if each == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(250_000) for _ in range(16)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library has no mallopt"
)
def test_arrays_of_the_next_second_get_the_memory_of_this_one() -> None:
    """Ten rounds of 16 arrays of 2 MB: without it each round faults in some 8,000 pages of 4 KiB
    (fewer where the kernel gives huge pages to all)."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1_000

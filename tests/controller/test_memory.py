"""What the controller does at its start to need less memory, seen in processes of their own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

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
    not hasattr(ctypes.CDLL(None), "mallopt"),
    reason="needs glibc's mallopt: that freed memory is kept is NOT tested",
)
def test_arrays_of_the_next_second_get_the_memory_of_this_one() -> None:
    """Ten rounds of 16 arrays of 2 MB: without it each round faults in some 8,000 pages of 4 KiB
    (fewer where the kernel gives huge pages to all)."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1_000


ARROW = """
import sys
from syntony.controller.main import leave_out_pandas
{first}
import pyarrow as pa
pa.table({{"a": pa.array([1]), "b": [2]}})
print("pandas" in sys.modules)
import pandas
"""


@pytest.mark.parametrize(
    ("first", "imported"),
    [("", True), ("leave_out_pandas()", False)],
)
def test_arrow_does_not_import_pandas_at_the_first_array(
    first: str, imported: bool, tmp_path: Path
) -> None:
    """Nor is it kept from anybody else."""
    (tmp_path / "pandas.py").write_text("__version__ = '1.0'\n")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ARROW.format(first=first)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(imported)

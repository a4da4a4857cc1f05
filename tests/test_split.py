"""Workers that collect only their own files leave none out and run none twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.split import LONGEST_S, expected_s, find_files, share_of


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
def test_every_file_is_one_workers(workers: int) -> None:
    sizes = find_files(Path(__file__).parent)
    shares = [share_of(sizes, worker, workers) for worker in range(workers)]
    assert Counter(name for share in shares for name in share) == dict.fromkeys(sizes, 1)
    assert LONGEST_S.keys() <= sizes.keys(), "renamed or gone: mend tests/split.py"


def test_shares_are_about_equally_long() -> None:
    sizes = find_files(Path(__file__).parent)
    for workers in range(2, 9):
        shares = [share_of(sizes, worker, workers) for worker in range(workers)]
        loads = [sum(expected_s(name, sizes[name]) for name in share) for share in shares]
        assert max(loads) < 1.02 * min(loads)


def test_each_test_runs_once(tmp_path: Path) -> None:
    record = tmp_path / "run.xml"
    files = ["tests/model/test_units.py", "tests/model/test_defaults.py", "tests/test_costly.py"]
    names = {Path(file).stem for file in files}
    options = ["-n", "2", "--dist", "each", f"--junit-xml={record}"]
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "pytest", "-q", *options, *files]
    environment = {name: os.environ[name] for name in os.environ if "PYTEST" not in name}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cases = ET.parse(record).iter("testcase")  # noqa: S314 - pytest wrote it
    ran = Counter((case.get("classname"), case.get("name")) for case in cases)
    assert set(ran.values()) == {1}
    assert {str(module).rpartition(".")[2] for module, _ in ran} == names

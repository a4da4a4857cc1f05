"""Each test is one worker's, and what a worker says is not lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workers import Run

ROOT = Path(__file__).parents[1]
FILES = ["tests/model/test_units.py", "tests/model/test_defaults.py", "tests/test_costly.py"]


def run_both(tmp_path: Path, first: str, second: str) -> Run:
    """Two workers that do this."""
    script = tmp_path / "work.py"
    script.write_text(f"import os, sys\nif sys.argv[1][-3] == '0':\n  {first}\nelse:\n  {second}")
    run = Run(2, [sys.executable, str(script)])
    run.work_all()
    return run


def test_what_workers_say_is_printed_and_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = "FAILED test_it.py::test_b - assert 1 == 2\n1 failed, 3 passed in 1.00s"
    run = run_both(
        tmp_path, "print('..s.   [ 50%]\\n..\\n3 passed, 1 skipped in 1.00s')", f"print({last!r})"
    )
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith("0 ")] == [
        "0 ..s.   [ 50%]", "0 ..",
    ]  # fmt: skip
    assert "\n3 passed, 1 skipped in 1.00s\n" in f"\n{printed}"
    assert last in printed, "in one piece"
    assert run.counts == {"passed": 6, "skipped": 1, "failed": 1}


def test_what_runs_beside_is_printed_and_may_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = [sys.executable, "-c", "import sys; print(sys.argv); sys.exit(8)"]
    run = Run(1, [sys.executable, "-c", "print('2 passed in 1.00s')"], [beside])
    run.work_all()
    assert "['-c']\n" in capsys.readouterr().out, "it has no share"
    assert (run.counts, run.status) == ({"passed": 2}, 8)


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        ("sys.exit(0)", "sys.exit(0)", 0),
        ("sys.exit(1)", "sys.exit(0)", 1),
        ("sys.exit(0)", "os.kill(os.getpid(), 9)", 9),
        ("sys.exit(5)", "sys.exit(0)", 0),
        ("sys.exit(5)", "sys.exit(5)", 5),
        ("sys.exit(5)", "sys.exit(1)", 1),
    ],
)
def test_a_worker_that_fails_or_dies_fails_the_run(
    tmp_path: Path, first: str, second: str, status: int
) -> None:
    """One alone may have no tests (5), all may not."""
    assert run_both(tmp_path, first, second).status == status


def test_each_test_runs_once() -> None:
    kept = {name: os.environ[name] for name in os.environ if "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "tests.workers", "2", "-rp", *FILES],
        cwd=ROOT, env=kept | {"SYNTONY_TEST_SEED": "7"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SYNTONY_TEST_SEED=7\n" in done.stdout
    ran = [line for line in done.stdout.splitlines() if line.startswith("PASSED")]
    assert len(ran) == len(set(ran))
    assert {line.split()[1].partition("::")[0] for line in ran} == set(FILES)
    assert f"all workers: {len(ran)} passed;" in done.stdout

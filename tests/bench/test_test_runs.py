"""What is read of the output of runs of pytest."""

from __future__ import annotations

from bench.test_runs import read_output

OUTPUT = """\
collected 3 items
x 5 passed in total, it said
=========== short test summary info ===========
FAILED tests/a/test_b.py::test_c[1] - assert 5 passed in 3 s
ERROR tests/a/test_d.py::test_e
==== 1 failed, 7 passed, 2 skipped, 2 errors in 61.20s (0:01:01) ====
"""


def test_counts_of_all_runs_are_added() -> None:
    counts, failed = read_output(
        OUTPUT + "==== 4 passed, 1 error in 2.00s ====\n9 passed in 1.00s\n"
    )
    assert counts == {"failed": 1, "passed": 20, "skipped": 2, "error": 3}
    assert failed == ("tests/a/test_b.py::test_c[1]", "tests/a/test_d.py::test_e")


def test_what_never_began_counts_nothing() -> None:
    assert read_output("make: *** [Makefile:60: test] Error 2\n") == ({}, ())

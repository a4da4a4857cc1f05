"""Workers that collect only their own files leave none out and run none twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

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

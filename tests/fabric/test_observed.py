"""Rows of a file of observations as counts of windows."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.fabric.observed import check_observed, window_counts

PATHS = 3


def counts(**columns: list[float | str]) -> dict[str, tuple[list[int], list[int]]]:
    """By window: what each path sent and lost."""
    path = np.array(columns.pop("path_id"), dtype=np.intp)
    given = {"path_id": path, **{name: np.array(values) for name, values in columns.items()}}
    found = window_counts(check_observed(given, path), PATHS)
    return {each.name: (each.sent.tolist(), each.lost.tolist()) for each in found}


ROWS: dict[str, list[float | str]] = {
    "path_id": [0, 1, 0, 2], "sent": [100, 200, 50, 10], "lost": [1, 20, 3, 0],
}  # fmt: skip


@pytest.mark.parametrize("windows", [[10, 10, 20, 20], [20, 20, 10, 10]])
def test_stretches_of_time_are_looked_at_one_by_one_and_together(windows: list[float]) -> None:
    first, second = ([100, 200, 0], [1, 20, 0]), ([50, 0, 10], [3, 0, 0])
    reported = counts(**ROWS, window=list(windows))
    assert reported.pop("all") == ([150, 200, 10], [4, 20, 0])
    assert reported == {str(windows[0]): first, str(windows[2]): second}
    assert list(reported) == sorted(reported), "in their order"


def test_labels_have_no_whole() -> None:
    assert counts(**ROWS, window=["a", "a", "b", "b"]).keys() == {"a", "b"}


def test_one_stretch_is_the_whole_already() -> None:
    rows: dict[str, list[float | str]] = {
        "path_id": [0, 1, 2], "sent": [100, 200, 50], "lost": [1, 20, 3],
    }  # fmt: skip
    reported = counts(**rows, window=[10, 10, 10])
    assert list(reported.values()) == [([100, 200, 50], [1, 20, 3])]

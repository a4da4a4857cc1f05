"""The grading of `bench.overlapping_faults`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from bench.overlapping_faults import Event, graded

HOMES = {"h0/rail0": "leaf0", "h1/rail0": "leaf0", "h2/rail0": "leaf1"}
FABRIC: Any = SimpleNamespace(
    leaf={"h0": "leaf0", "h1": "leaf0", "h2": "leaf1"}, control=SimpleNamespace(homes=HOMES)
)
EVENTS = (Event("loss", "leaf0->spine0", 0, 30), Event("port", "h2/rail0", 20, 45))
RIGHT = [("leaf0--spine0", 6.0, "link-loss"), ("h2/rail0", 24.0, "port-down")]


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ([], (0, 0)),
        ([("spine1", 8.0, "switch-loss")], (1, 0)),
        ([("leaf0->spine0", 60.0, "link-loss")], (1, 0)),
        ([("leaf0->spine0", 12.0, "link-loss")], (0, 1)),
    ],
)
def test_pages_of_healthy_parts_and_second_pages(
    more: list[tuple[str, float, str]], counts: tuple[int, int]
) -> None:
    got = graded(FABRIC, EVENTS, [*RIGHT, *more], {name for name, *_ in RIGHT}, ())
    assert (len(got.wrong), len(got.twice)) == counts
    assert got.missing == ()


def test_a_fault_without_an_incident_is_missing() -> None:
    got = graded(FABRIC, EVENTS, RIGHT[:1], {RIGHT[0][0]}, ("h2",))
    assert (got.missing, got.open) == (("port h2/rail0",), ("h2",))

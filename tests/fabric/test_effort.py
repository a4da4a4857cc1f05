"""The limit on the work of locating one second: what is found first, kept, and said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.fabric.test_fault_locator import Fabric
from tests.fabric.test_search import PENALTY, background, tally

from syntony.fabric import fault_locator
from syntony.fabric.candidates import Candidates
from syntony.fabric.effort import CUT, Effort
from syntony.fabric.locate import Located, search
from syntony.fabric.loss import LossSearch

PATHS = [[0]] * 20 + [[1]] * 15 + [[2]] * 10 + background(400)
LOST = [60] * 20 + [30] * 15 + [10] * 10 + [0] * 400


def searched(steps: float, known: tuple[int, ...] = ()) -> tuple[LossSearch, Effort]:
    """Three faults, the strongest first by number."""
    effort = Effort(steps)
    counts = tally(PATHS, [1_000] * len(PATHS), LOST)
    return LossSearch(counts, PENALTY, effort=effort, known=np.array(known, dtype=np.intp)), effort


def test_the_strongest_fault_comes_first_and_the_rest_is_said() -> None:
    whole, free = searched(float("inf"))
    assert [each.candidate for each in whole.findings] == [0, 1, 2]
    assert whole.unexplained == 0
    cut, effort = searched(20)
    assert effort.spent <= 20 < 2 * free.spent
    (found,) = cut.findings
    assert found.candidate == 0
    assert found.confidence == pytest.approx(CUT * whole.findings[0].confidence)
    assert cut.unexplained == pytest.approx(15 * 30 + 10 * 10, rel=0.01)


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    assert searched(100)[0].findings == searched(float("inf"))[0].findings


def test_what_was_found_before_is_kept_at_the_limit_while_it_loses() -> None:
    found, _ = searched(20, known=(2, 5))
    assert [each.candidate for each in found.findings] == [0, 2]


def test_a_search_knows_what_those_of_the_second_before_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known: list[list[str]] = []

    def noted(candidates: Candidates, *args: Any) -> Located:
        known.append([candidates.names[number] for number in args[-1]])
        return search(candidates, *args)

    monkeypatch.setattr(fault_locator, "search", noted)
    fabric = Fabric(seed=3)
    for _ in range(2):
        for _ in range(10):
            fabric.second({"leaf0->spine0": 0.1})
        fabric.watch.findings()
    assert known == [[], ["leaf0->spine0"]]


def test_losses_without_a_cause_are_said_with_their_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_locator, "SECOND_STEPS", 30.0)
    fabric = Fabric(seed=3)
    for _ in range(10):
        fabric.second({"leaf0->spine0": 0.3, "leaf1->spine1": 0.3, "spine0->leaf3": 0.3})
    fabric.watch.findings()
    assert fabric.watch.unexplained.lost > 20
    assert fabric.watch.unexplained.window in {"1s", "3s", "10s"}


def test_queues_without_a_cause_are_said_until_they_are_searched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fabric = Fabric(seed=3)
    for second in range(70):
        fabric.second(late={"leaf0->spine0": 4e5, "spine1->leaf3": 3e5} if second >= 40 else None)
    monkeypatch.setattr(fault_locator, "SECOND_STEPS", 10.0)
    fabric.watch.queues()
    late = fabric.watch.unexplained_queued
    assert late > 20
    monkeypatch.undo()
    fabric.watch.findings()
    assert fabric.watch.unexplained_queued == late
    fabric.watch.queues()
    assert fabric.watch.unexplained_queued == 0

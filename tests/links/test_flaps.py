"""Flaps are counted exactly, over any window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.links.flaps import FlapCount, FlapHistory
from syntony.model import S


def test_before_any_reading_nothing_is_exact() -> None:
    assert FlapHistory().count(0, 10) == FlapCount(0, exact=False)


def test_a_quiet_link_is_known_to_be_quiet() -> None:
    history = FlapHistory()
    history.add(5, 0)
    assert history.count(5, 100) == FlapCount(0, exact=True)
    assert history.count(4, 100) == FlapCount(0, exact=False)


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3)), max_size=60),
    st.integers(0, 4000),
    st.integers(0, 4000),
    st.integers(2, 8),
)
def test_any_window(steps: list[tuple[int, int]], first: int, length: int, kept: int) -> None:
    """Exact where it says so; never more than the truth elsewhere."""
    history, now, truth = FlapHistory(kept), 0, []
    history.add(0, 0)
    for wait, increase in steps:
        now += wait
        history.add(now, increase)
        truth += [now] * increase
    flaps = history.count(first, first + length)
    real = sum(first <= at < first + length for at in truth)
    assert flaps.losses == real if flaps.exact else flaps.losses <= real
    assert history.total == len(truth)


def test_a_clock_that_goes_back_loses_nothing() -> None:
    history = FlapHistory()
    history.add(0, 0)
    history.add(100 * S, 1)
    history.add(50 * S, 2)
    assert history.count(0, 101 * S).losses == 3
    assert history.last_ns == 100 * S


def test_a_window_has_its_first_instant_and_not_its_last() -> None:
    history = FlapHistory()
    history.add(0, 0)
    for at in (10, 10, 20, 20, 30):
        history.add(at, 1)
    windows = {(10, 20): 2, (11, 20): 0, (10, 21): 4, (10, 10): 0, (20, 30): 2, (20, 31): 3}
    assert {window: history.count(*window).losses for window in windows} == windows


@pytest.mark.parametrize("kept", [2, 5, 50])
def test_a_short_memory_says_from_when_on_it_is_exact(kept: int) -> None:
    """At least `kept` changes are remembered, never twice as many; the total forgets nothing."""
    history = FlapHistory(kept)
    history.add(0, 0)
    for change in range(1, 301):
        history.add(10 * change, 2)
        assert history.total == 2 * change
        assert history.last_ns == 10 * change
        known = [
            n for n in range(change + 1)
            if history.count(10 * (change - n) + 1, 10 * change + 1) == FlapCount(2 * n, exact=True)
        ]  # fmt: skip
        assert max(known) == len(known) - 1
        assert min(kept, change) <= max(known) < 2 * kept or change < 2 * kept
    assert history.count(0, 3001).losses < 600
    assert not history.count(0, 3001).exact

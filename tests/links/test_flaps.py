"""Flaps are counted exactly, over any window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syntony.links.flaps import FlapHistory, Flaps
from syntony.model import S


def test_before_any_reading_nothing_is_exact() -> None:
    assert FlapHistory().count(0, 10) == Flaps(0, exact=False)


def test_a_quiet_link_is_known_to_be_quiet() -> None:
    history = FlapHistory()
    history.add(5, 0)
    assert history.count(5, 100) == Flaps(0, exact=True)
    assert history.count(4, 100) == Flaps(0, exact=False)


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

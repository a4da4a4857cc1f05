"""Pages and all-clears of a condition that returns again and again."""

from __future__ import annotations

import pytest
from tests.alerts.test_lifecycle import T0, feed, kinds, rule
from tests.cases import drawn

from syntony.alerts import render
from syntony.alerts.incident_book import Book
from syntony.alerts.incidents import ChangeKind, IncidentChange
from syntony.errors import UsageError
from syntony.model import S


def test_an_intermittent_fault_pages_twice_however_often_it_returns() -> None:
    rng = drawn(0)
    for stable_s in (0, 10, 30, 60):
        book = Book([rule(stable=f"{stable_s}s", clear_after=2)])
        period_s = rng.randrange(2 * stable_s + 20, 600)
        bad_s = rng.randrange(5, period_s - stable_s - 10)
        changes: list[IncidentChange] = []
        for at_s in range(0, 3600, 2):
            changes += feed(book, T0 + at_s * S, "hot", 11 if at_s % period_s < bad_s else 1)
        last_ns = book.find(1).bad_ns
        assert kinds(changes).count(ChangeKind.PAGE) == 2
        for at_s in range(3600, 3600 + 900, 2):
            changes += feed(book, T0 + at_s * S, "hot", 1)
        clears = [each.at_ns for each in changes if each.kind is ChangeKind.CLEAR]
        assert len(clears) == 2
        assert clears[1] - last_ns <= min(2 * period_s, 902) * S
        assert feed(book, T0 + 5000 * S, "hot", 11)[-1].kind is ChangeKind.PAGE


def test_one_that_returned_and_is_resolved_by_hand_is_over() -> None:
    book = Book([rule()])
    for at_s, value in ((0, 11), (10, 1), (100, 11)):
        feed(book, T0 + at_s * S, "hot", value)
    assert kinds(feed(book, T0 + 110 * S, "hot", 1)) == [ChangeKind.RESOLVED]
    assert kinds(feed(book, T0 + 120 * S, "hot", 11)) == [ChangeKind.REOPENED]
    assert kinds(book.resolve(1, "eve", T0 + 130 * S)) == [ChangeKind.RESOLVED, ChangeKind.CLEAR]
    assert ChangeKind.PAGE in kinds(feed(book, T0 + 200 * S, "hot", 11))


def test_an_all_clear_that_waits_is_shown_and_can_be_sent_by_hand() -> None:
    book = Book([rule()])
    for at_s, value in ((0, 11), (10, 1), (100, 11), (110, 1)):
        feed(book, T0 + at_s * S, "hot", value)
        assert at_s == 110 or render.plain(book.find(1))["clear"] is None
    assert render.plain(book.find(1))["clear_ns"] == T0 + 300 * S
    assert kinds(book.resolve(1, "eve", T0 + 130 * S)) == [ChangeKind.CLEAR]
    assert book.find(1).resolved_ns == T0 + 110 * S
    with pytest.raises(UsageError, match="resolved already"):
        book.resolve(1, "eve", T0 + 131 * S)

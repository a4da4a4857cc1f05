"""Pages and all-clears of a condition that returns again and again."""

from __future__ import annotations

import msgspec
import pytest
from tests.alerts.test_lifecycle import T0, Apart, Inside, feed, kinds, rule
from tests.cases import drawn

from syntony.alerts import incidents, paging, render
from syntony.alerts.incident_book import Book
from syntony.alerts.incidents import BookState, ChangeKind, IncidentChange
from syntony.alerts.observations import Observation, measured
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


def returned() -> Book:
    """It was good for 100 s, and has been good again since T0 + 110 s."""
    book = Book([rule()])
    for at_s, value in ((0, 11), (10, 1), (100, 11), (110, 1)):
        feed(book, T0 + at_s * S, "hot", value)
    return book


def test_an_all_clear_waits_for_twice_the_longest_time_that_it_was_good() -> None:
    book, at_s = Book([rule()]), 0
    for good_s, waits_s in ((0, 0), (100, 200), (50, 200), (440, 880), (600, 900)):
        at_s += good_s
        feed(book, T0 + at_s * S, "hot", 11)
        feed(book, T0 + (at_s + 1) * S, "hot", 1)
        assert paging.clear_ns(book.find(1)) == T0 + (at_s + waits_s) * S
    assert feed(book, T0 + (at_s + 899) * S, "hot", 1) == []
    assert kinds(feed(book, T0 + (at_s + 900) * S, "hot", 1)) == [ChangeKind.CLEAR]
    assert book.find(1).updated_ns == T0 + (at_s + 900) * S


@pytest.mark.parametrize(
    ("severities", "pages"), [("WWWCWC", [1, 2, 2, 3, 3, 3]), ("CCCWC", [1, 2, 2, 2, 2])]
)
def test_an_open_page_is_followed_by_another_only_if_it_returns_more_severe(
    severities: str, pages: list[int]
) -> None:
    book, found = Book([rule(severity="critical")]), []
    for number, severity in enumerate(severities):
        seen = [Observation("hot", "x", 11, mild=severity == "W")]
        book.evaluate(T0 + 100 * number * S, measured(seen, ["hot"]), Apart())
        found.append(book.find(1).pages)
        book.evaluate(T0 + (100 * number + 10) * S, measured([], ["hot"]), Apart())
    assert found == pages


def test_an_open_page_is_not_forgotten_however_many_are_resolved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incidents, "MAX_RESOLVED", 1)
    book = returned()
    for number in range(3):
        feed(book, T0 + (120 + 20 * number) * S, "hot", 11, f"y{number}")
        book.evaluate(T0 + (130 + 20 * number) * S, measured([], ["hot"]), Apart())
    changes = book.evaluate(T0 + 301 * S, measured([], ["hot"]), Apart())
    assert [(each.kind, each.incident.number) for each in changes] == [(ChangeKind.CLEAR, 1)]
    assert book.evaluate(T0 + 302 * S, measured([], ["hot"]), Apart()) == []
    assert 1 not in [each.number for each in book.incidents]


def test_no_all_clear_is_sent_while_the_metric_is_not_measured() -> None:
    """As while the store does not answer: it may be bad."""
    book = returned()
    assert book.evaluate(T0 + 400 * S, measured([], ["warm"]), Apart()) == []
    assert kinds(feed(book, T0 + 500 * S, "hot", 11)) == [ChangeKind.REOPENED]
    assert kinds(feed(book, T0 + 501 * S, "hot", 1)) == [ChangeKind.RESOLVED]


def test_an_open_page_of_a_rule_that_is_gone_is_no_other_ones() -> None:
    warm = rule("warm", joins=("hot",))
    book = Book([warm], returned().state)
    seen = [Observation("warm", "x1", 11, span_ns=60 * S)]
    changes = book.evaluate(T0 + 120 * S, measured(seen, ["warm"]), Inside())
    assert kinds(changes) == [ChangeKind.OPENED, ChangeKind.PAGE]
    assert kinds(book.evaluate(T0 + 301 * S, measured([], []), Inside())) == [ChangeKind.CLEAR]


def test_a_book_of_an_older_version_waits_as_usual() -> None:
    """It does not say when an incident was last bad."""
    stable = [rule(stable="60s")]
    book = Book(stable)
    feed(book, T0, "hot", 11)
    feed(book, T0 + 2 * S, "hot", 1)
    book = Book(stable, older(book))
    assert feed(book, T0 + 4 * S, "hot", 1) == []
    assert kinds(feed(book, T0 + 61 * S, "hot", 1)) == [ChangeKind.RESOLVED, ChangeKind.CLEAR]
    book = Book(stable, older(book))
    feed(book, T0 + 100 * S, "hot", 11)
    assert kinds(feed(book, T0 + 160 * S, "hot", 1)) == [ChangeKind.RESOLVED]
    assert render.plain(book.find(1))["clear_ns"] == T0 + 178 * S


def older(book: Book) -> BookState:
    stored = msgspec.to_builtins(book.state)
    for each in stored["incidents"]:
        del each["bad_ns"], each["quiet_ns"]
    return msgspec.convert(stored, BookState)

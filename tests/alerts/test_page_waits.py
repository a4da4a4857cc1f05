"""How long a page is held back: for a wider cause to be found, and for what comes and goes."""

from __future__ import annotations

import pytest
from tests.alerts.clos import Night, bad
from tests.alerts.test_lifecycle import T0, Inside, feed, kinds, rule

from syntony.alerts.incident_book import Book
from syntony.alerts.incidents import ChangeKind
from syntony.alerts.observations import Observation, measured
from syntony.model import S


@pytest.mark.parametrize(("last_s", "pages"), [(29, False), (30, True)])
def test_a_page_waits_from_the_opening(last_s: int, pages: bool) -> None:
    book = Book([rule(wait="30s")])
    changes = [c for k in range(last_s + 1) for c in feed(book, T0 + k * S, "hot", 11)]
    assert (ChangeKind.PAGE in kinds(changes)) == pages
    assert book.find(1).paged == bool(book.find(1).pages) == pages


@pytest.mark.parametrize(("jobs", "last_s"), [((), 2), (("a",), 30)])
def test_what_no_job_uses_waits_as_long_as_its_rule_says_for_that(
    jobs: tuple[str, ...], last_s: int
) -> None:
    book = Book([rule(wait="30s", idle_wait="2s")])
    for k in range(last_s):
        assert ChangeKind.PAGE not in kinds(feed(book, T0 + k * S, "hot", 11, jobs=jobs))
    assert ChangeKind.PAGE in kinds(feed(book, T0 + last_s * S, "hot", 11, jobs=jobs))


def test_what_a_job_used_once_waits_longer_from_then_on() -> None:
    book = Book([rule(wait="30s", idle_wait="10s")])
    feed(book, T0, "hot", 11, jobs=("a",))
    assert all(not feed(book, T0 + k * S, "hot", 11) for k in range(1, 30))
    assert kinds(feed(book, T0 + 30 * S, "hot", 11)) == [ChangeKind.PAGE]


def test_a_second_of_its_rule_waits_longer() -> None:
    """What is over in parts leaves parts of it."""
    book = Book([rule(wait="30s", idle_wait="2s")])

    def step(at_s: int) -> dict[str, list[ChangeKind]]:
        first = [Observation("hot", "cable", 11), Observation("hot", "group", 11)]
        seen = measured(first if at_s >= 10 else first[:1], ["hot"])
        found: dict[str, list[ChangeKind]] = {}
        for each in book.evaluate(T0 + at_s * S, seen, Inside()):
            found.setdefault(each.incident.subject, []).append(each.kind)
        return found

    paged = {
        subject: at_s
        for at_s in range(60) for subject, kinds in step(at_s).items() if ChangeKind.PAGE in kinds
    }  # fmt: skip
    assert paged == {"cable": 2, "group": 40}


def test_what_is_left_by_a_cause_or_comes_back_waits_longer() -> None:
    book = Book([
        rule("hot", wait="30s", idle_wait="2s", explained_by=("rack",), clear_after=1, stable="5s"),
        rule("rack"),
    ])  # fmt: skip

    def step(at_s: int, hot: float, rack: float) -> list[ChangeKind]:
        seen = [Observation("hot", "r1/x", hot), Observation("rack", "r1", rack)]
        changes = book.evaluate(T0 + at_s * S, measured(seen, ["hot", "rack"]), Inside())
        return kinds([each for each in changes if each.incident.rule == "hot"])

    assert ChangeKind.EXPLAINED in step(0, 11, 11)
    found = {kind: k for k in range(1, 90) for kind in step(k, 11, 1)}
    assert set(found) == {ChangeKind.UNEXPLAINED, ChangeKind.PAGE}
    assert found[ChangeKind.PAGE] - found[ChangeKind.UNEXPLAINED] == 30
    cleared = next(k for k in range(90, 120) if ChangeKind.RESOLVED in step(k, 1, 1))
    found = {kind: k - cleared for k in range(cleared + 1, cleared + 60) for kind in step(k, 11, 1)}
    assert found == {ChangeKind.REOPENED: 1, ChangeKind.PAGE: 31}


def test_what_is_good_again_when_its_wait_is_over_pages_nobody() -> None:
    """It is not resolved yet, but nobody need get up for what is better already."""
    book = Book([rule(wait="30s", clear_after=100)])
    changes = [c for k in range(20) for c in feed(book, T0 + k * S, "hot", 11)]
    changes += [c for k in range(20, 60) for c in feed(book, T0 + k * S, "hot", 1)]
    assert kinds(changes) == [ChangeKind.OPENED]
    # For 20 s it was bad; what it was good is no part of its wait.
    assert kinds([c for k in range(61, 71) for c in feed(book, T0 + k * S, "hot", 11)]) == []
    assert kinds(feed(book, T0 + 71 * S, "hot", 11)) == [ChangeKind.PAGE]


def test_a_page_waits_again_from_the_end_of_its_cause() -> None:
    book = Book([rule("hot", wait="30s", explained_by=("rack",)), rule("rack")])

    def step(at_s: int, rack: float) -> list[ChangeKind]:
        seen = [Observation("hot", "r1/x", 11), Observation("rack", "r1", rack)]
        return kinds(book.evaluate(T0 + at_s * S, measured(seen, ["hot", "rack"]), Inside()))

    assert step(0, 11) == [ChangeKind.OPENED, ChangeKind.OPENED, ChangeKind.EXPLAINED,
                           ChangeKind.PAGE]  # fmt: skip
    assert step(100, 1) == [ChangeKind.RESOLVED, ChangeKind.CLEAR, ChangeKind.UNEXPLAINED]
    assert step(129, 1) == []
    assert step(130, 1) == [ChangeKind.PAGE]


@pytest.mark.parametrize(("gap_s", "left_s"), [(29, 3), (30, 5)])
def test_a_first_page_waits_until_the_times_it_was_bad_add_up(gap_s: int, left_s: int) -> None:
    book = Book([rule(wait="5s", stable="30s")])
    feed(book, T0, "hot", 11.0)
    assert kinds(feed(book, T0 + 2 * S, "hot", 1.0)) == [ChangeKind.RESOLVED]
    again_ns = T0 + (2 + gap_s) * S
    assert kinds(feed(book, again_ns, "hot", 11.0)) == [ChangeKind.REOPENED]
    assert kinds(feed(book, again_ns + left_s * S - 1, "hot", 11.0)) == []
    assert kinds(feed(book, again_ns + left_s * S, "hot", 11.0)) == [ChangeKind.PAGE]


@pytest.mark.parametrize("clear_after", [1, 3, 100])
def test_what_comes_and_goes_pages_in_bounded_time(clear_after: int) -> None:
    """Bad for 1 s and good for 9 s, again and again, whether or not it is resolved in between."""
    book = Book([rule(wait="5s", stable="30s", clear_after=clear_after)])
    pages_s = [
        second
        for second in range(120)
        for change in feed(book, T0 + second * S, "hot", 11.0 if second % 10 == 0 else 1.0)
        if change.kind is ChangeKind.PAGE
    ]
    assert pages_s == [50]


def test_after_a_page_a_gap_is_no_longer_held_against_it() -> None:
    """Whether more is to be reported of what was paged for is not a question of its first page."""
    book = Book([rule(wait="5s", stable="30s", clear_after=3)])
    for second in range(6):
        feed(book, T0 + second * S, "hot", 11.0)
    held_ns = book.find(1).held_ns
    feed(book, T0 + 6 * S, "hot", 1.0)
    feed(book, T0 + 20 * S, "hot", 11.0)
    assert book.find(1).held_ns == held_ns


@pytest.mark.parametrize(("link_s", "cable_s"), [(4, 2), (6, 2), (6, 4)])
def test_a_wait_goes_on_under_the_name_that_is_left(link_s: int, cable_s: int) -> None:
    """A direction and its cable are named in turn, and neither has paged."""
    night = Night()
    link, cable = bad("link-loss", "leaf0->spine0"), bad("link-loss", "leaf0--spine0")
    for _ in range(2):
        night.run(link_s, link)
        night.run(cable_s, cable)
    night.run(link_s, link)
    assert night.said(ChangeKind.PAGE) == ["link-loss leaf0->spine0"]

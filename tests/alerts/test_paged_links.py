"""Links that paged, and what they explain afterwards."""

from __future__ import annotations

import pytest
from tests.alerts.test_lifecycle import T0, Apart, rule

from syntony.alerts.incident_book import Book
from syntony.alerts.incidents import ChangeKind, IncidentChange
from syntony.alerts.observations import Observation, measured
from syntony.alerts.rules import Rule
from syntony.model import S


class Fabric(Apart):
    """``a->b`` and ``b->a`` are one cable; ``x or y`` names two suspects."""

    def holds(self, wider: str, narrower: str) -> bool:
        return wider != narrower and narrower in wider.split(" or ")

    def may_hold(self, wider: str, narrower: str) -> bool:
        return wider in narrower.split(" or ")

    def mirrors(self, one: str, other: str) -> bool:
        return "->" in one and "->".join(reversed(one.split("->"))) == other


def losses(book: Book, second: int, **subjects: str) -> list[IncidentChange]:
    """One evaluation in which these lose: metric to subject, of ``link`` and ``either``."""
    seen = [Observation(metric, subject, 11.0) for metric, subject in subjects.items()]
    return book.evaluate(T0 + second * S, measured(seen, ["link", "either"]), Fabric())


def loss_rules() -> list[Rule]:
    every = ("link", "either")
    settings: dict[str, object] = {"wait": "2s", "stable": "30s", "clear_after": 3, "joins": every}
    return [rule("link", explained_by=("either",), **settings), rule("either", **settings)]


def paged(changes: list[IncidentChange]) -> list[str]:
    return [each.incident.subject for each in changes if each.kind is ChangeKind.PAGE]


@pytest.mark.parametrize(("later", "pages"), [("b->a", []), ("b->c", ["b->c"])])
def test_the_other_direction_of_a_cable_that_paged_is_no_news(later: str, pages: list[str]) -> None:
    book = Book(loss_rules())
    first = [each for second in range(3) for each in losses(book, second, link="a->b")]
    assert paged(first) == ["a->b"]
    rest = [each for second in range(3, 20) for each in losses(book, second, link=later)]
    assert paged(rest) == pages


def test_a_link_that_paged_and_is_one_of_two_suspects_now_is_no_news() -> None:
    book = Book(loss_rules())
    changes = [each for second in range(3) for each in losses(book, second, link="a->b")]
    for second in range(3, 20):
        name = {"either": "a->b or b->c"} if second % 4 else {"link": "a->b"}
        changes += losses(book, second, **name)
    assert paged(changes) == ["a->b"]


def test_suspects_that_paged_explain_the_link_that_it_was() -> None:
    book = Book(loss_rules())
    changes = [each for second in range(3) for each in losses(book, second, either="a->b or b->c")]
    changes += [each for second in range(3, 20) for each in losses(book, second, link="a->b")]
    assert paged(changes) == ["a->b or b->c"]


def test_what_paged_beside_a_link_goes_on_explaining_it() -> None:
    book = Book(loss_rules())
    for second in range(3):
        losses(book, second, link="a->b")
    for second in range(3, 9):
        losses(book, second, link="a->b", either="a->b or b->c")
    assert [each.paged for each in book.incidents] == [True, True]
    losses(book, 9, either="a->b or b->c")
    assert [each.cause for each in book.incidents] == [2, 0]

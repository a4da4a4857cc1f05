"""The API's routes, derived from the registry of requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from syntony.controller.dispatch import QUESTIONS
from syntony.controller.questions import Question
from syntony.wire.query import Query, answer_type
from syntony.wire.rest import PREFIX, has_rows, is_question, route_name
from syntony.wire.roles import Role


class Route(NamedTuple):
    """Method, path and limits of one kind of request."""

    method: str
    path: str
    request: type[Query[Any]]
    answer: type[msgspec.Struct]
    question: Question
    paged: bool
    """Whether its answer has rows, which can be fetched page by page."""

    @property
    def roles(self) -> frozenset[Role]:
        return self.question.roles


def _route(kind: type[Query[Any]], question: Question) -> Route:
    method, answer = "GET" if is_question(kind) else "POST", answer_type(kind)
    path = f"{PREFIX}/{route_name(kind)}"
    return Route(method, path, kind, answer, question, method == "GET" and has_rows(answer))


ROUTES: Mapping[tuple[str, str], Route] = {
    (route.method, route.path): route
    for route in sorted(
        (_route(kind, question) for kind, question in QUESTIONS.items()),
        key=lambda route: (route.path, route.method),
    )
}
"""By method and path, sorted by path."""

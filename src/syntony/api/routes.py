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
        """Roles that may make it."""
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
"""Routes by method and path, sorted by path."""


def route_table() -> str:
    """The routes as a Markdown table, for the docs."""
    lines = [
        "| Route | Parameters | Answer | Roles | Limits |",
        "| --- | --- | --- | --- | --- |",
    ]
    for route in ROUTES.values():
        names = [
            f"`{field.name}`{'' if _optional(route, field) else ' (required)'}"
            for field in msgspec.structs.fields(route.request)
        ]
        cells = [
            f"`{route.method} {route.path}`", ", ".join(names),
            route.answer.__name__ + (", paged" if route.paged else ""),
            ", ".join(sorted(route.roles)), _limits(route.question),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _optional(route: Route, field: msgspec.structs.FieldInfo) -> bool:
    return not field.required or (field.name == "by" and route.method == "POST")


def _limits(question: Question) -> str:
    found = []
    if question.longest_ns:
        found.append(f"window ≤ {question.longest_ns / (86_400 * 1_000_000_000):g} days")
    if question.most:
        found.append(f"limit ≤ {question.most:,}")
    return ", ".join(found)

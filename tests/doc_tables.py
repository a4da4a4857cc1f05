"""Tables of the reference pages, made from what the code knows: the docs must print them."""

from __future__ import annotations

import msgspec

from syntony.api.routes import ROUTES, Route
from syntony.controller.dispatch import QUESTIONS
from syntony.controller.questions import Question
from syntony.wire.roles import Role


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


def _limits(known: Question) -> str:
    found = []
    if known.longest_ns:
        found.append(f"window ≤ {known.longest_ns / (86_400 * 1_000_000_000):g} days")
    if known.most:
        found.append(f"limit ≤ {known.most:,}")
    return ", ".join(found)


def allow_list() -> str:
    """The allow-list as a Markdown table, for the docs."""
    lines = ["| Request | " + " | ".join(Role) + " |", "| --- |" + " --- |" * len(Role)]
    attach = ["yes" if role is Role.AGENT else "" for role in Role]
    lines.append("| attach, as the certificate's host | " + " | ".join(attach) + " |")
    relay = ["yes" if role is Role.GATEWAY else "" for role in Role]
    lines.append("| relay agents and their requests, as a gateway | " + " | ".join(relay) + " |")
    lines.append("| join, with a token and no certificate |" + "  |" * len(Role))
    for name, roles in sorted((q.__name__, known.roles) for q, known in QUESTIONS.items()):
        cells = ["yes" if role in roles else "" for role in Role]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"

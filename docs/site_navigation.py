"""Navigation of the site (mkdocs.yml): decision records in sections of a hundred numbers.

Every page repeats the list of its section: of all records in one list it would be most of the site.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

SECTION = "Decisions"


def hundred(title: str) -> str:
    """The section of a record, ``0100 to 0199``; empty for a page that is no record."""
    return f"{title[:2]}00 to {title[:2]}99" if title[:4].isdigit() else ""


def on_nav(nav: Any, **_: Any) -> Any:
    """Called by mkdocs with the navigation of the whole site."""
    for section in nav.items:
        if section.title == SECTION:
            section.children = _divided(section)
    return nav


def _divided(section: Any) -> list[Any]:
    children: list[Any] = []
    for name, group in groupby(section.children, lambda page: hundred(page.file.name)):
        pages = list(group)
        if name:
            part = type(section)(name, pages)
            part.parent = section
            for page in pages:
                page.parent = part
            children.append(part)
        else:
            children += pages
    return children

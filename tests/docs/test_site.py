"""How the site's navigation is divided (`docs/site_navigation.py`)."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
MOST = 100
"""Pages in one list, which each of them repeats."""


class Section(SimpleNamespace):
    """As mkdocs makes them."""

    def __init__(self, title: str, children: list[Any]) -> None:
        super().__init__(title=title, children=children, parent=None)


def test_records_are_in_short_lists_and_none_is_lost() -> None:
    names = sorted(path.stem for path in (DOCS / "decisions").glob("*.md"))
    pages = [SimpleNamespace(file=SimpleNamespace(name=name), parent=None) for name in names]
    nav = SimpleNamespace(items=[Section("How to", []), Section("Decisions", list(pages))])
    on_nav = runpy.run_path(str(DOCS / "site_navigation.py"))["on_nav"]
    assert on_nav(nav=nav, config=None, files=None) is nav
    decisions = nav.items[1]
    parts = [each for each in decisions.children if isinstance(each, Section)]
    assert [each.file.name for each in decisions.children if each not in parts] == ["README"]
    assert all(part.parent is decisions and len(part.children) <= MOST for part in parts)
    assert [page for part in parts for page in part.children] == [
        page for page in pages if page.file.name != "README"
    ]
    assert all(page.parent is part for part in parts for page in part.children)

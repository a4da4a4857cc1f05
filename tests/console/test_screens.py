"""Every view looks as it did: see `screens`; and a broken layout does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.console.screens import (
    FONT,
    FONTS,
    MOST_OTHER,
    OTHER,
    kept,
    ready,
    reduced,
    share_of_others,
    views,
)
from tests.console.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow
BREAKS = {
    "panels in one column": "document.querySelectorAll('.grid').forEach("
    "each => each.style.display = 'block')",
    "no styles": "document.querySelectorAll('link[rel=stylesheet]').forEach(each => each.remove())",
    "a panel is missing": "document.querySelector('.panel').remove()",
    "the navigation is gone": "document.querySelector('nav').remove()",
}
"""What may go wrong with a layout → how."""


@pytest.fixture
def drawn(chrome: Browser) -> Iterator[Generator[tuple[str, Page]]]:
    """The views. Skips the test where fonts are others than those of the kept pictures."""
    shown = views(chrome)
    view, page = next(shown)
    if page.evaluate(FONT) != FONTS.read_text().strip():
        shown.close()
        pytest.skip(
            "needs the fonts of the kept pictures (tests/console/screens.py): how the views look "
            "is NOT compared"
        )

    def every() -> Generator[tuple[str, Page]]:
        yield view, page
        yield from shown

    yield every()
    shown.close()


def test_every_view_looks_as_it_did(chrome: Browser, drawn: Generator[tuple[str, Page]]) -> None:
    other = {view: share_of_others(kept(view), reduced(chrome, page)) for view, page in drawn}
    assert other.keys() == VIEWS.keys()
    assert {view: share for view, share in other.items() if share > MOST_OTHER} == {}, (
        "look at the view, then: python -m tests.console.screens"
    )


def test_a_broken_layout_looks_otherwise(
    chrome: Browser, drawn: Generator[tuple[str, Page]]
) -> None:
    view, page = next(drawn)
    for how, script in BREAKS.items():
        page.evaluate(script)
        assert share_of_others(kept(view), reduced(chrome, page)) > MOST_OTHER, how
        page.reload()
        ready(page, view)


def test_the_blocks_of_a_picture_are_counted() -> None:
    same = bytes(range(100)) * 129 + bytes(60)
    assert share_of_others(same, same) == 0
    assert share_of_others(same, bytes(each + OTHER for each in same)) == 0
    assert share_of_others(same, bytes(each + OTHER + 1 for each in same)) == 1

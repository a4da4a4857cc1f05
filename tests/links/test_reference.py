"""The reference page is the code's own table."""

from __future__ import annotations

from pathlib import Path

from syntony.cli.links import counter_markdown

PAGE = Path(__file__).parents[2] / "docs/reference/links.md"


def test_the_page_holds_the_table() -> None:
    hint = "run: syntony links counters --markdown, and put it at the end of the page"
    assert PAGE.read_text().endswith(counter_markdown()), hint

"""Every link in the documentation leads somewhere, also to the right heading."""

from __future__ import annotations

import re
import runpy
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGES = sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md"), *(TOP / ".github").rglob("*.md")])
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\))?)(?: \"[^\"]*\")?\)")
_SPACED = re.compile(r"\]\(([^()\n\"]*[^()\n\"\s] [^()\n\"]+)\)")
"""Not links at all to a renderer, which shows the brackets."""
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
_ANCHOR = re.compile(r"<a (?:name|id)=\"([^\"]+)\"")


MAX_WORDS = 2_500
"""Of a page of figures, numbers aside: shorten replaced measurements, or split it by theme."""


def slug(heading: str) -> str:
    """The anchor that GitHub and the site make of a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Of a page; a heading that comes again gets a number."""
    text = page.read_text(encoding="utf-8")
    found: dict[str, int] = {}
    names = set(_ANCHOR.findall(text))
    for heading in _HEADING.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        name = slug(heading)
        names.add(f"{name}-{found[name]}" if name in found else name)
        found[name] = found.get(name, 0) + 1
    return frozenset(names)


def broken(page: Path) -> list[str]:
    """Links of a page to nothing, as they stand there."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    wrong: list[str] = _SPACED.findall(text)
    docs = TOP / "docs"
    top = docs if page.is_relative_to(docs) else TOP  # the site has nothing else of the repository
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue  # of other sites, which tests do not ask
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        there = target.exists() and target.is_relative_to(top)
        if there and anchor and target.suffix == ".md":
            there = anchor in anchors(target)
        if not there:
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_lead_somewhere(page: Path) -> None:
    assert not broken(page)


def test_a_broken_link_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(broken.__globals__, "TOP", tmp_path)
    (tmp_path / "there.md").write_text("# One `two`, three\n\n## Again\n\n## Again\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#one-two-three) [c](there.md#again-1) `[d](code.md)`\n"
        "[e](missing.md) [f](there.md#four) [g](#nowhere) [h](https://example.org/x)\n"
        '[i](there.md "a title") [j](the re.md)\n'
    )
    assert broken(page) == ["the re.md", "missing.md", "there.md#four", "#nowhere"]
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    page.write_text("[a](page.md) [b](../there.md)\n")
    assert broken(page) == ["../there.md"]


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = (TOP / "docs/README.md").read_text(encoding="utf-8")
    listed = {(TOP / "docs" / link).resolve() for link in _LINK.findall(contents)}
    pages = [*(TOP / "docs/how-to").glob("*.md"), *(TOP / "docs/reference").glob("*.md")]
    assert not [page.name for page in pages if page not in listed]


def test_every_page_of_figures_is_listed_and_short() -> None:
    overview = TOP / "docs/reference/figures.md"
    listed = {
        (overview.parent / link).resolve() for link in _LINK.findall(overview.read_text("utf-8"))
    }
    pages = sorted((TOP / "docs/reference/figures").glob("*.md"))
    assert not [page.name for page in pages if page not in listed]
    words = {page.name: re.findall(r"\S*[a-zA-Z]\S*", page.read_text("utf-8")) for page in pages}
    assert not {name: len(each) for name, each in words.items() if len(each) > MAX_WORDS}


def test_the_index_of_decisions_has_every_record_once() -> None:
    made = runpy.run_path(str(TOP / "docs/decisions/make_index.py"))["index"]()
    listed = re.findall(r"^\* \[\d{4}\]\(([^)]+)\) \S", made, re.MULTILINE)
    records = [path.name for path in (TOP / "docs/decisions").glob("[0-9]*.md")]
    assert sorted(listed) == sorted(records)

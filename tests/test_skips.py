"""Reasons of skipped tests, which `make test` prints for strangers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
CALLS = {"pytest.skip", "pytest.importorskip", "pytest.mark.skipif", "pytest.mark.skip"}


def reasons(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a file that skip tests, and the reasons as they are in the source."""
    text = path.read_text()
    if "pytest.importorskip" not in text and ".skip" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in CALLS:
            given = [each.value for each in node.keywords if each.arg == "reason"]
            given += node.args[:1] if name == "pytest.skip" else []
            yield node.lineno, ast.unparse(given[0]) if given else ""


def test_a_skipped_test_says_what_it_needs_and_what_is_not_tested() -> None:
    """What to install, or that nothing helps; then what is NOT tested, checked, run …"""
    found = [
        (f"{path.relative_to(FOLDER)}:{line}", reason)
        for path in FOLDER.rglob("*.py")
        for line, reason in reasons(path)
    ]
    assert len(found) > 100
    assert not [each for each in found if " NOT " not in each[1]]

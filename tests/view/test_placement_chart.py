"""The picture of policies coming to rest."""

from __future__ import annotations

import pytest
from bench.placement_chart import render

LINES = {"ecmp": [0.5], "syntony": [0.6, 0.6, 1.0], "load-aware": [0.5, 0.9, 1.0]}


@pytest.mark.parametrize(("kind", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_same_lines_are_the_same_bytes(kind: str, begins: bytes) -> None:
    found = render("A title", "a subtitle", LINES, kind)
    assert found.startswith(begins)
    assert found == render("A title", "a subtitle", LINES, kind)


def test_every_policy_is_named_with_what_it_ends_at() -> None:
    text = render("A title", "a subtitle", LINES).decode()
    for words in ("A title", "a subtitle", "ecmp 0.500", "load-aware 1.000", "syntony 1.000"):
        assert words in text

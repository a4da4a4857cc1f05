"""Cases of parametrized tests: which run every time, how they are drawn, what they once gave."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest


def mostly_slow(values: Iterable[Any], always: Collection[Any]) -> list[Any]:
    """All values as parameters; those that are not among `always` are marked slow."""
    return [
        value if value in always else pytest.param(value, marks=pytest.mark.slow)
        for value in values
    ]


def drawn(draw: int) -> random.Random:
    """A generator for one case, whose seed a failure shows."""
    seed = random.randrange(1 << 32)
    print(f"draw {draw}, seed {seed}")
    return random.Random(seed)


def recorded(file: Path) -> dict[str, list[str]]:
    """Paragraphs of a file: the first line is the name of a case, the others what it gave."""
    parts = file.read_text(encoding="utf-8").split("\n\n")
    return {name: lines for name, *lines in (part.strip().splitlines() for part in parts)}

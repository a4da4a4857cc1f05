"""Which cases of a parametrized test run every time, and which with the slow tests only."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mostly_slow(values: Iterable[Any], always: Collection[Any]) -> list[Any]:
    """All values as parameters; those that are not among `always` are marked slow."""
    return [
        value if value in always else pytest.param(value, marks=pytest.mark.slow)
        for value in values
    ]

"""Control state in every backend; the real PostgreSQL server runs for the slow tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.postgres import postgresql

from syntony.state import ControlState

__all__ = ["Open", "postgresql"]
Open = Callable[[], ControlState]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same control state again and again; close it in between."""
    if request.param == "sqlite":
        return lambda: ControlState(tmp_path)
    url = request.getfixturevalue("postgresql").database()
    return lambda: ControlState(url)

"""An alert desk; a real PostgreSQL server, for the tests that name it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controller.judged import Control
from tests.postgres import postgresql

__all__ = ["postgresql"]


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    made = Control(tmp_path)
    yield made
    made.close()

"""A controller to talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.link import ControllerProcess, running


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    """One for a whole module of tests that leave it as it was."""
    with running(tmp_path_factory.mktemp("controller")) as process:
        yield process

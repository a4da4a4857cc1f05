"""Labs for tests."""

from __future__ import annotations

import pytest

from syntony.errors import MissingError
from syntony.lab.world import unshare_argv


@pytest.fixture(scope="session")
def able() -> None:
    """Skips, visibly, where this machine cannot make a private world."""
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no lab here: {error}: diagnosis of live jobs is NOT tested")

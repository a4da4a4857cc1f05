"""What every test has: a place of its own for labs, so that a person's labs do not matter."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def labs_of_our_own() -> Iterator[None]:
    """A short path: sockets live below it."""
    before = os.environ.get("TMPDIR")
    directory = tempfile.mkdtemp(prefix="syt")
    os.environ["TMPDIR"] = directory
    yield
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
    shutil.rmtree(directory, ignore_errors=True)

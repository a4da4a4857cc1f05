"""What every test has: examples without a stop-watch, and a place of its own for labs.

A person's own labs do not matter to the tests, nor the tests to them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is not a failure; CI repeats the same examples, a person's runs look for new ones.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


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


@pytest.fixture(scope="session")
def captures() -> Path:
    """Real outputs of real clusters, which are not part of the repository (`SYNTONY_CAPTURES`)."""
    default = Path(__file__).parents[2] / "shared/data/captures"
    folder = Path(os.environ.get("SYNTONY_CAPTURES", default))
    if not folder.is_dir():
        pytest.skip(f"no captures at {folder}; set SYNTONY_CAPTURES")
    return folder

"""`make setup` after one that was interrupted. Python and pip are played."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.deploy.daemons import DEPLOY

# An environment is whole, and its pip works, unless the file `broken` was there when it was made.
PYTHON = """#!/bin/sh
case "$*" in
*version_info*) exit 0 ;;
*signal*) mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo >>made
        if [ -e broken ]; then exit 130; fi; touch .venv/whole ;;
*pip*) [ -e .venv/whole ] && [ ! -e unreachable ] ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copy(DEPLOY.parent / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "native").mkdir()
    (tmp_path / "CMakeLists.txt").touch()
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def set_up(checkout: Path) -> int:
    command = ["make", "-s", "-C", str(checkout), ".venv/.ready", f"PYTHON={checkout}/python"]
    return subprocess.run(command, capture_output=True, timeout=600, check=False).returncode


@pytest.mark.parametrize("lacks", ["broken", "unreachable"])
def test_an_interrupted_setup_is_done_anew(checkout: Path, lacks: str) -> None:
    (checkout / lacks).touch()
    assert set_up(checkout) != 0
    (checkout / lacks).unlink()
    assert set_up(checkout) == 0
    assert not (checkout / ".venv/.unfinished").exists()


def test_a_complete_environment_stays_though_an_upgrade_fails(checkout: Path) -> None:
    """A developer has put other things in it."""
    assert set_up(checkout) == 0
    (checkout / "pyproject.toml").write_text("# newer")
    (checkout / ".venv/.ready").unlink()
    (checkout / "unreachable").touch()
    assert set_up(checkout) != 0
    (checkout / "unreachable").unlink()
    assert set_up(checkout) == 0
    assert (checkout / "made").read_text() == "\n"

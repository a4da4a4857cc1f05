"""What `deploy/try-bare-root.sh` leaves behind when it cannot go on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.deploy.daemons import DEPLOY


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def call(tmp_path: Path, debootstrap: str) -> int:
    """Exit status of a call whose debootstrap does this, and whose chroot refuses."""
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    program(programs, "debootstrap", debootstrap)
    program(programs, "chroot", "exit 3")
    return subprocess.run(
        [DEPLOY / "try-bare-root.sh", "trixie", "root", "true"],
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "ROOTS": str(tmp_path / "roots"),
        },
        capture_output=True,
        check=False,
    ).returncode


@pytest.mark.parametrize("end", ["exit 5", "kill -INT $PPID; exit 130"])
def test_a_base_that_was_not_completed_is_not_in_the_way(tmp_path: Path, end: str) -> None:
    assert call(tmp_path, f'for place; do :; done; touch "$place/half"; {end}') != 0
    assert list((tmp_path / "roots").iterdir()) == []
    # A real debootstrap refuses a place in which it finds what it would write.
    assert (
        call(tmp_path, 'for place; do :; done; [ ! -e "$place/half" ] && touch "$place/made"') == 3
    )
    assert [each.name for each in (tmp_path / "roots").iterdir()] == ["trixie"]
    assert (tmp_path / "roots" / "trixie" / "made").exists()


def test_two_calls_may_make_the_same_base(tmp_path: Path) -> None:
    """The other one is first."""
    other = tmp_path / "roots" / "trixie"
    assert call(tmp_path, f"mkdir {other}; touch {other}/theirs") == 3
    assert [each.name for each in (tmp_path / "roots").iterdir()] == ["trixie"]
    assert [each.name for each in other.iterdir()] == ["theirs"]

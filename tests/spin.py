"""Models that spin checks exhaustively: what it finds wrong first, and how much it looked at."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

LIMIT_S = 3600.0
"""Of one step. A search ends by itself, but takes ten times as long on a busy machine."""
NEEDS_SPIN = pytest.mark.skipif(
    shutil.which("spin") is None or shutil.which("gcc") is None,
    reason="needs spin and gcc (Debian packages of these names): the model is NOT checked",
)


def check(model: Path, directory: Path, *defines: str, optimized: bool = False) -> tuple[str, int]:
    """Search all states of a model.

    Args:
        model: a Promela file.
        directory: an empty one for what is built.
        defines: of the preprocessor, ``NAME`` or ``NAME=VALUE``.
        optimized: worth it for 300,000 states and more: gcc then takes longer, the search half.

    Returns:
        What was found wrong first (empty: nothing), and how many states were looked at.
    """
    flags = [f"-D{define}" for define in defines]
    effort = "-O1" if optimized else "-O0"
    for command in (
        ["spin", "-a", *flags, str(model)],
        ["gcc", effort, "-w", "-DSAFETY", "-DMEMLIM=2048", "-o", "pan", "pan.c"],
    ):
        subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=LIMIT_S)
    found = subprocess.run(
        ["./pan", "-m100000", "-n"],
        cwd=directory,
        check=True,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    ).stdout
    states = re.search(r"(\d+) states, stored", found)
    errors = re.search(r"errors: (\d+)", found)
    assert states is not None, found
    assert errors is not None, found
    assert "Search not completed" not in found or int(errors[1]), (
        "more states than spin may look at"
    )
    wrong = re.search(r"pan:1: (.*) \(at depth", found)
    assert (wrong is None) == (int(errors[1]) == 0)
    return (wrong[1] if wrong else ""), int(states[1])

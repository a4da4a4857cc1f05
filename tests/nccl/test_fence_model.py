"""The fence-and-replay protocol, checked exhaustively by spin, and its broken variants."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "native" / "nccl" / "model" / "fence.pml"
pytestmark = pytest.mark.skipif(
    shutil.which("spin") is None or shutil.which("gcc") is None,
    reason="needs spin and gcc (Debian packages of these names): the fence protocol is NOT checked",
)


def _check(directory: Path, *defines: str) -> tuple[str, int]:
    """What spin found wrong first (empty: nothing), and how many states it looked at."""
    flags = [f"-D{define}" for define in defines]
    for command in (
        ["spin", "-a", *flags, str(MODEL)],
        ["gcc", "-O1", "-w", "-DSAFETY", "-DMEMLIM=2048", "-o", "pan", "pan.c"],
    ):
        subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=60)
    found = subprocess.run(
        ["./pan", "-m100000", "-n"],
        cwd=directory,
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
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


@pytest.mark.parametrize(
    ("defines", "states"),
    [
        (("MESSAGES=3", "CHUNKS=1", "FAULTS=2"), 500_000),
        pytest.param(("MESSAGES=2", "CHUNKS=2", "FAULTS=2"), 100_000, marks=pytest.mark.slow),
        pytest.param(("MESSAGES=3", "CHUNKS=1", "FAULTS=3"), 4_000_000, marks=pytest.mark.slow),
        pytest.param(("MESSAGES=2", "CHUNKS=2", "FAULTS=3"), 1_000_000, marks=pytest.mark.slow),
    ],
)
def test_no_message_completes_twice_incomplete_or_never(
    tmp_path: Path, defines: tuple[str, ...], states: int
) -> None:
    wrong, seen = _check(tmp_path, *defines)
    assert not wrong
    assert seen > states  # the check did look at faults at any moment


WRITTEN_AFTERWARDS = "assertion violated  !((completed&(1<<m)))"
INCOMPLETE = "assertion violated ((written&"
NEVER = "invalid end state"


@pytest.mark.parametrize(
    ("variant", "wrong"),
    [
        ("NO_FENCE", WRITTEN_AFTERWARDS),
        ("NO_DRAIN", WRITTEN_AFTERWARDS),
        ("NO_REPORT", WRITTEN_AFTERWARDS),
        ("DECREMENT", INCOMPLETE),
        ("NO_CTS_REPLAY", NEVER),
        ("TAKE_LAST", "assertion violated ((failures||"),
    ],
)
def test_each_rule_is_needed(tmp_path: Path, variant: str, wrong: str) -> None:
    size = ("MESSAGES=2", "CHUNKS=2") if variant == "DECREMENT" else ()
    found, _ = _check(tmp_path, variant, *size)
    assert found.startswith(wrong)

"""Scenarios that need a network of their own: functions of a test file, run in a process of their
own inside fresh namespaces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from syntony.errors import MissingError
from syntony.lab.world import unshare_argv

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 600  # only a hang lasts so long
_ROOT = Path(__file__).parents[2]
_UNSHARE = ("unshare", "-Urnmpf", "--kill-child", "--mount-proc", "--propagation", "private")
_WORLD = 'mount -t sysfs none /sys && ip link set lo up && exec "$@"'


def run_alone(scenario: Callable[[], None]) -> None:
    """Runs it; its file must call `globals()[sys.argv[1]]()` when it is the main program."""
    skip_unless_able()
    file = Path(scenario.__code__.co_filename).relative_to(_ROOT)
    module = ".".join(file.with_suffix("").parts)
    done = subprocess.run(
        [*_UNSHARE, "sh", "-c", _WORLD, "sh", sys.executable, "-m", module, scenario.__name__],
        cwd=_ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def skip_unless_able() -> None:
    """Skips, visibly, where this machine cannot make a private world."""
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no private namespaces here: {error}: this is NOT tested against a kernel")


def ip(words: str) -> None:
    """One `ip` command."""
    subprocess.run(["ip", *words.split()], check=True)

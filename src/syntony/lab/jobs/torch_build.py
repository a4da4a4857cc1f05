"""Finds PyTorch, or installs its CPU build: never the build with CUDA."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

from syntony.errors import MissingError
from syntony.lab.jobs.programs import by_name

VARIABLE = "SYNTONY_TORCH_PYTHON"
"""Names an interpreter that has torch, where it is neither ours nor ``python3``."""
VERSION = "2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
REQUIREMENT = f"torch=={VERSION}+cpu"
"""The local version tag is what keeps the CUDA build (several GB) away, whatever indexes pip is
configured with: only CPU builds carry it."""
SIZE = "about 200 MB to fetch and 800 MB on disk"
_ASK = (
    "import torch.distributed as d, sys; sys.exit(not (d.is_available() and d.is_gloo_available()))"
)
_ASK_TIMEOUT_S = 300.0
"""Loading torch takes minutes on a busy machine; only a hang takes longer."""


def candidates() -> tuple[str, ...]:
    """Interpreters that may have torch, the most likely first."""
    named = os.environ.get(VARIABLE)
    if named:
        return (named,)
    others = (shutil.which("python3"), shutil.which("python"))
    return tuple(dict.fromkeys([sys.executable, *(other for other in others if other)]))


def find_torch() -> str:
    """An interpreter that has torch with gloo. Raises `MissingError`: none has; with how to get
    it."""
    found = candidates()
    for python in found:
        if _has_torch(python):
            return python
    raise MissingError(
        f"PyTorch with gloo is not in {', '.join(found)}; "
        f"install it: {' '.join(install_argv(named=True))}"
    )


def install_argv(*, named: bool = False) -> list[str]:
    """The command that installs the CPU build for Syntony's Python; `named`: as typed by a user."""
    pip = ["pip"] if named else [sys.executable, "-m", "pip"]
    quiet = [] if named else ["--disable-pip-version-check", "--retries", "1", "--quiet"]
    return [*pip, "install", *quiet, "--extra-index-url", CPU_INDEX, REQUIREMENT]


def torch_or_plain_sockets(
    say: Callable[[str], None], with_torch: str = "ddp", without: str = "builtin"
) -> tuple[str, str, str]:
    """Framework, kind and interpreter of the default job: PyTorch if it is installed, otherwise
    plain sockets. Nothing is fetched."""
    try:
        return *by_name(with_torch), find_torch()
    except MissingError as error:
        say(f"going on with plain sockets: {error}")
        return *by_name(without), sys.executable


def fetch_torch(say: Callable[[str], None]) -> None:
    """Install PyTorch's CPU build for Syntony's Python, unless an interpreter has it. Raises
    `MissingError`: it cannot be had; with pip's last line."""
    try:
        find_torch()
    except MissingError:
        say(f"fetching PyTorch's CPU build, {SIZE}: {REQUIREMENT} from {CPU_INDEX}")
    else:
        return
    done = subprocess.run(install_argv(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise MissingError(f"PyTorch cannot be installed: {last}")


def _has_torch(python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", _ASK], capture_output=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0

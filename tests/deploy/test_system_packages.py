"""What `make` says and does where system packages are missing."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "system-packages.sh"
VERBS = "infiniband/verbs.h"
MAIN = "int main"
NOBODY = 65_534 if os.getuid() == 0 else os.getuid()


class Machine:
    """One whose compiler has all headers and refuses files that hold some text, whose apt-get
    installs nothing, and whose distribution has all packages but one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.requested_for = folder / "asked-for"
        header = folder / VERBS
        header.parent.mkdir(mode=0o755)
        header.touch()
        self._program("apt-get", f'echo "$*" >>{self.requested_for}')
        self.lack("")

    def lack(self, package: str) -> None:
        self._program("apt-cache", f'[ "$2" != "{package}" ]')

    def _program(self, name: str, text: str) -> None:
        path = self._folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def ask(
        self, refused: str, user: int, python: str = "true"
    ) -> subprocess.CompletedProcess[str]:
        self._program("cc", f'grep -q \'{refused}\' "$1" && exit 1\nexec /usr/bin/cc "$@"')
        environment = os.environ | {
            "PATH": f"{self._folder}:{os.environ['PATH']}",
            "CC": "cc",
            "CPATH": str(self._folder),
        }
        # Who is nobody may not read the tree, nor run its virtual environment's Python.
        return subprocess.run(
            ["sh", "-s"],
            input=SCRIPT.read_text(),
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
            env=environment | {"PYTHON": python, "TMPDIR": "/tmp"},  # noqa: S108
            user=None if user == os.getuid() else user,
            cwd="/",
        )


@pytest.fixture
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Machine(Path(folder))


def test_a_user_gets_a_package_without_the_plugin_and_one_line(machine: Machine) -> None:
    done = machine.ask(VERBS, NOBODY)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert "without its NCCL net plug-in" in line
    assert "apt-get install -y libibverbs-dev" in line
    assert not machine.requested_for.exists()


def test_a_user_without_a_compiler_gets_no_package_and_one_line(machine: Machine) -> None:
    done = machine.ask(MAIN, NOBODY)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("sudo apt-get install -y gcc libc6-dev libibverbs-dev")


def test_a_complete_machine_is_told_nothing(machine: Machine) -> None:
    done = machine.ask("no such text", NOBODY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(
    os.getuid() != 0, reason="needs root: that missing system packages are installed is NOT tested"
)
@pytest.mark.parametrize(("refused", "status"), [(VERBS, 0), (MAIN, 1)])
def test_root_installs_and_looks_again(machine: Machine, refused: str, status: int) -> None:
    """Here nothing comes of it: what is left out is said, what cannot be left out is an error."""
    done = machine.ask(refused, 0)
    assert "libibverbs-dev" in machine.requested_for.read_text().splitlines()[-1]
    assert done.returncode == status, done.stderr
    last = done.stderr.splitlines()[-1]
    assert ("without its NCCL" if status == 0 else "still lacks: gcc libc6-dev") in last


@pytest.mark.skipif(
    os.getuid() != 0, reason="needs root: that missing system packages are installed is NOT tested"
)
def test_a_package_that_the_distribution_lacks_does_not_keep_others_away(machine: Machine) -> None:
    """apt-get installs nothing at all if it does not know one of the names."""
    machine.lack("libc6-dev")
    done = machine.ask(MAIN, 0)
    assert "== not in this distribution: libc6-dev" in done.stderr.splitlines()
    installed = machine.requested_for.read_text().splitlines()[-1].split()
    assert "libc6-dev" not in installed
    assert {"gcc", "libibverbs-dev"} <= set(installed)


def test_a_python_that_is_not_there_installs_nothing(machine: Machine) -> None:
    done = machine.ask("nothing that is refused", os.getuid(), python="/nowhere/python3.11")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "PYTHON=/nowhere/python3.11: no such program" in line
    assert not machine.requested_for.exists()

"""Two hosts on a real fabric, programs to run on them, and what their kernels counted."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import pytest
from tests.live import LiveLab, live

from syntony.errors import MissingError
from syntony.io.interposer import tcp_library
from syntony.lab.world import unshare_argv

SOURCES = Path(__file__).parents[2] / "native" / "tests"
PYTHON = sys.executable
_PATIENCE_S = 300


class Done(NamedTuple):
    """What a program printed, and how many connections MPTCP carried meanwhile."""

    out: str
    err: str
    code: int
    requested: int
    """Connections that this host asked to be MPTCP and whose peer agreed."""


class Hosts:
    """Runs programs on hosts of a lab, by default with what `syntony run` sets in their environment
    (that it sets it: test_run_command.py)."""

    def __init__(self, lab: LiveLab) -> None:
        self.lab = lab

    def address(self, nic: str, family: int = 4) -> str:
        return self.lab.addresses(family)[nic]

    def start(
        self, host: str, *words: str, stdin: int = subprocess.DEVNULL, **environ: str
    ) -> subprocess.Popen[str]:
        """A program with the interposer, left running."""
        preload = f"LD_PRELOAD={tcp_library()}"
        return self.start_plain(
            host, "env", preload, "SYNTONY_JOB=test", *words, stdin=stdin, **environ
        )

    def start_plain(
        self, host: str, *words: str, stdin: int = subprocess.DEVNULL, **environ: str
    ) -> subprocess.Popen[str]:
        """A program as it is."""
        return subprocess.Popen(
            self.lab.enter_argv(host, words),
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=os.environ | environ, start_new_session=True,
        )  # fmt: skip

    def run(self, host: str, *words: str, **environ: str) -> Done:
        """A program with the interposer, to its end."""
        return self.finish(
            host, lambda: self.start(host, *words, stdin=subprocess.DEVNULL, **environ)
        )

    def finish(self, host: str, start: Callable[[], subprocess.Popen[str]]) -> Done:
        """Whatever `start` starts, to its end."""
        before = self.requested(host)
        process = start()
        try:
            out, err = process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return Done(out, err, process.returncode, self.requested(host) - before)

    def requested(self, host: str) -> int:
        return self.count(host, "MPCapableSYNACKRX")

    def count(self, host: str, counter: str) -> int:
        """One of the kernel's MPTCP counters."""
        lines = self.lab.run(host, "cat", "/proc/net/netstat").splitlines()
        names, values = (line.split()[1:] for line in lines if line.startswith("MPTcpExt:"))
        return int(dict(zip(names, values, strict=True))[counter])


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no lab here: {error}: programs under the interposer are NOT tested")
    with live("t-run", "--hosts", "2", "--leaves", "1") as lab:
        yield Hosts(lab)


Compile = Callable[..., str]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Makes a program of one of the sources in native/tests: ``compiled("tcp_calls", "-static")``.

    Skips, visibly, where the compiler is missing or has not got what the flags ask for.
    """
    directory = tmp_path_factory.mktemp("programs")

    def compile_(name: str, *flags: str, compiler: str = "cc") -> str:
        if shutil.which(compiler) is None:
            pytest.skip(f"needs the compiler {compiler}: {name}.c is NOT tested")
        program = directory / "-".join([name, compiler, *flags])
        if not program.exists():
            source = str(SOURCES / f"{name}.c")
            words = [compiler, "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1"]
            subprocess.run([*words, *flags, "-o", str(program), source], check=True)
        return str(program)

    return compile_


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[str]:
    """A server: yields the first line that it prints, and ends it."""
    out: IO[str] | None = process.stdout
    assert out is not None
    with process:
        try:
            first = out.readline().strip()
            assert first, process.communicate()[1]
            yield first
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.killpg(process.pid, signal.SIGKILL)  # nsenter and what it started

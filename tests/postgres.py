"""A real PostgreSQL server of our own: Debian's, on a Unix socket."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


class Server:
    """A PostgreSQL server of our own on a Unix socket, with a database for each test."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs, self.directory = programs, directory
        self._count = 0
        # The server refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(directory, self._user)
        data = str(directory / "data")
        self.run("initdb", "-D", data, "-A", "trust", "-U", "syntony", "--no-sync")
        self.start()

    def start(self) -> None:
        options = f"-c listen_addresses='' -c fsync=off -k {self.directory}"
        self.run("pg_ctl", "-D", str(self.directory / "data"), "-o", options,
                 "-l", str(self.directory / "log"), "-w", "start")  # fmt: skip

    def stop(self) -> None:
        self.run("pg_ctl", "-D", str(self.directory / "data"), "-m", "immediate", "-w", "stop")

    def copy(self) -> None:
        """A replica has all that is committed by now, and gets nothing later."""
        self.stop()
        subprocess.run(["cp", "-a", "data", "replica"], cwd=self.directory, check=True)
        self.start()

    def promote(self, *, replica: bool) -> None:
        """The server is lost, and a replica takes its place.

        Args:
            replica: the copy; otherwise one that has all.
        """
        self.stop()
        data = self.directory / "data"
        if replica:
            data.rename(self.directory / "lost")
            (self.directory / "replica").rename(data)
        (data / "standby.signal").touch()
        self.start()
        self.run("pg_ctl", "-D", str(data), "-w", "promote")

    def signal(self, number: int) -> None:
        """To all its processes."""
        leader = (self.directory / "data" / "postmaster.pid").read_text().split()[0]
        subprocess.run(["pkill", f"-{number}", "-P", leader], check=False)
        os.kill(int(leader), number)

    def database(self) -> str:
        """The URL of a new one."""
        self._count += 1
        name = f"fleet{self._count}"
        self.run("createdb", "-h", str(self.directory), "-U", "syntony", name)
        return f"postgresql://syntony@/{name}?host={self.directory}"

    def run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            user=self._user, cwd=self.directory, check=True, timeout=600,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """A running server of its own; skips a test where there is none, or no driver."""
    pytest.importorskip(
        "psycopg",
        reason="needs the extra [postgresql] (make dev): control state in PostgreSQL is NOT tested",
    )
    on_path = shutil.which("initdb")
    found = [Path(on_path)] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip(
            "needs PostgreSQL (sh deploy/system-packages.sh --slow): control state in it is NOT "
            "tested"
        )
    directory = Path(tempfile.mkdtemp(prefix="sytpg", dir="/tmp"))
    running = Server(found[-1].resolve().parent, directory)
    try:
        yield running
    finally:
        running.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """One for all tests of a session."""
    with server() as running:
        yield running

"""Backup and restore as docs/how-to/deploy.md says, its own commands, on real controllers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.link import ControllerProcess
from tests.postgres import server

from syntony.controller.client import ask
from syntony.wire.failover import FailoverStatusQuery

PAGE = Path(__file__).parents[2] / "docs/how-to/deploy.md"


def command(beginning: str) -> str:
    """The only command of the page that begins so, as it stands there."""
    found = set(re.findall(rf"`({re.escape(beginning)}[^`]*)`", PAGE.read_text()))
    assert len(found) == 1, found
    return str(found.pop())


class Fleet:
    """A controller and a place for its backups; paths of the page are below its directory."""

    def __init__(self, directory: Path, controller: ControllerProcess) -> None:
        self.controller = controller
        self.backups = directory / "backups"
        self.backups.mkdir()

    def run(self, words: str, **environment: str) -> None:
        """A command of the page, in the directory of the backups."""
        for path, own in (("controller", "state"), ("ca", "ca"), ("store", self.controller.store)):
            words = words.replace(f"/var/lib/syntony/{path}", str(self.controller.directory / own))
        words = words.replace("/var/lib/syntony", str(self.controller.directory))
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", words],
            cwd=self.backups, env={**os.environ, **environment}, check=True, timeout=600,
        )  # fmt: skip

    def switch(self, order: str) -> None:
        """`syntony failover stop` or `start`: what control state must keep."""
        words = ["failover", order, "--controller", f"unix:{self.controller.socket}"]
        words += ["--why", f"test of {order}"]
        subprocess.run(
            [sys.executable, "-m", "syntony", *words], check=True, timeout=600, capture_output=True
        )

    def is_stopped(self) -> bool:
        switch = ask(f"unix:{self.controller.socket}", FailoverStatusQuery()).switch
        return switch is not None and switch.stopped


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    if shutil.which("sqlite3") is None:
        pytest.skip("needs sqlite3 (Debian: sqlite3): backups of control state are NOT tested")
    yield from fleet_of(tmp_path, "")


def fleet_of(directory: Path, state: str) -> Iterator[Fleet]:
    controller = ControllerProcess(directory, state=state)
    controller.start()
    try:
        yield Fleet(directory, controller)
    finally:
        controller.end(signal.SIGKILL)


def test_control_state_in_sqlite(fleet: Fleet) -> None:
    fleet.switch("stop")
    fleet.run(command("sqlite3 "))  # while it runs
    fleet.switch("start")
    assert not fleet.is_stopped()
    fleet.controller.end(signal.SIGKILL)  # a journal of the newer state is left
    fleet.run(command("rm -f /var/lib/syntony/controller"))
    fleet.run("cp control.db /var/lib/syntony/controller/control.db")
    fleet.controller.start()
    assert fleet.is_stopped()
    fleet.switch("start")  # and it can be written


@pytest.mark.slow
def test_control_state_in_postgresql(tmp_path: Path) -> None:
    if shutil.which("pg_dump") is None:
        pytest.skip(
            "needs pg_dump (Debian: postgresql-client): backups from PostgreSQL are NOT tested"
        )
    with server() as postgresql:
        url = postgresql.database()
        name = url.removeprefix("postgresql://syntony@/").partition("?")[0]
        there = {"PGHOST": str(postgresql.directory), "PGUSER": "syntony"}

        def of_database(words: str) -> str:
            return re.sub(r"\bsyntony\b(?!\.dump)", name, words)

        for fleet in fleet_of(tmp_path, url):
            fleet.switch("stop")
            fleet.run(of_database(command("pg_dump ")), **there)
            fleet.switch("start")
            assert not fleet.is_stopped()
            fleet.controller.end(signal.SIGTERM)
            fleet.run(of_database(command("pg_restore ")), **there)
            fleet.controller.start()
            assert fleet.is_stopped()
            fleet.switch("start")


def test_the_authority(fleet: Fleet) -> None:
    fleet.run(command("tar -C /var/lib/syntony -czf"))
    before = fleet.controller.authority.fingerprint
    shutil.rmtree(fleet.controller.directory / "ca")
    fleet.run(command("tar -C /var/lib/syntony -xzf"))
    place = str(fleet.controller.directory / "ca")
    done = subprocess.run(
        [sys.executable, "-m", "syntony", "enrol", "authority", place, "--address", "localhost"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert before in done.stdout + done.stderr


def test_the_embedded_store(fleet: Fleet) -> None:
    """Copied while the controller is stopped; what it keeps of itself is there again."""
    store = Path(fleet.controller.store)
    fleet.controller.end(signal.SIGTERM)
    shutil.copytree(store, fleet.backups / "store", symlinks=True)
    names = sorted(str(path.relative_to(store)) for path in store.rglob("*.sql"))
    assert names
    shutil.rmtree(store)
    shutil.copytree(fleet.backups / "store", store, symlinks=True)
    fleet.controller.start()
    assert set(names) <= {str(path.relative_to(store)) for path in store.rglob("*.sql")}

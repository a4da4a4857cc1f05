"""Control state that cannot be used, or is another's: one line, a non-zero exit, nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.link import ControllerProcess, running
from tests.live import eventually
from tests.postgres import Server

from syntony.state import ControlState
from syntony.wire.control import Issuer
from syntony.wire.failover import Switch

ANN = Issuer("ann", "local")


def refused(controller: ControllerProcess) -> str:
    """What a controller that does not start says."""
    done = subprocess.run(
        [sys.executable, "-m", "syntony", "controller", "--config", str(controller.config)],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.strip().splitlines()
    return line


@pytest.mark.parametrize("damage", ["no database", "a page", "a newer schema"])
def test_a_file_that_cannot_be_used(tmp_path: Path, damage: str) -> None:
    controller = ControllerProcess(tmp_path)
    file = tmp_path / "state" / "control.db"
    with ControlState(tmp_path / "state") as state:
        state.set_switch(Switch(stopped=True, at_ns=1, by="ann"), ANN, "")
        for number in range(300):
            state.record(f"{number}", "x" * 99, at_ns=number, issuer=ANN, comment="")
        if damage == "a newer schema":
            with state.transaction() as connection:
                connection.execute("INSERT INTO schema_migration VALUES (9999)")
    data = bytearray(file.read_bytes())
    if damage != "a newer schema":
        start = 0 if damage == "no database" else len(data) // 2 // 4096 * 4096
        data[start : start + 64] = b"\xff" * 64
        file.write_bytes(data)
    line = refused(controller)
    assert f"control state {file}" in line
    assert file.read_bytes() == data


@pytest.mark.slow
def test_a_second_controller_takes_over_when_the_first_is_killed(
    tmp_path: Path, postgresql: Server
) -> None:
    url = postgresql.database()
    first = ControllerProcess(tmp_path / "a", state=url)
    second = ControllerProcess(tmp_path / "b", state=url)
    first.start()
    try:
        assert "in use by another controller" in refused(second)
        first.end(signal.SIGKILL)
        second.start()
        assert second.end() == 0
    finally:
        first.end(signal.SIGKILL)
        second.end(signal.SIGKILL)


@pytest.mark.slow
def test_a_controller_that_was_replaced_ends(tmp_path: Path, postgresql: Server) -> None:
    """Paused while the server restarts and lets another one in."""
    url = postgresql.database()
    controller = ControllerProcess(tmp_path, state=url)
    controller.start()
    try:
        os.kill(controller.pid, signal.SIGSTOP)
        postgresql.stop()
        postgresql.start()
        with ControlState(url):
            os.kill(controller.pid, signal.SIGCONT)
            eventually(lambda: "taken over by another controller" in controller.log())
            assert controller.end() != 0
    finally:
        controller.end(signal.SIGKILL)


@pytest.mark.slow
def test_a_restart_of_the_server_ends_no_controller(tmp_path: Path, postgresql: Server) -> None:
    with running(tmp_path, state=postgresql.database()) as controller:
        postgresql.stop()
        eventually(lambda: "control state does not answer" in controller.log())
        postgresql.start()
        said = controller.log().count("control state does not answer")
        for _ in range(3):
            controller.fleet()
        assert controller.up()
        assert controller.log().count("control state does not answer") <= said + 1
        assert controller.end() == 0

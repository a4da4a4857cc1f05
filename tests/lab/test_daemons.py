"""Supervision with stand-in daemons: restart, hold, freeze, end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from syntony.errors import UsageError
from syntony.lab.client import Lab
from syntony.lab.daemons import Daemons, DaemonSpec
from syntony.lab.messages import DaemonStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STEADY = "import time\nwhile True: time.sleep(1)"
STUBBORN = (
    "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    f"print('on', flush=True)\n{STEADY}"
)
BRIEF = "print('hello', flush=True)"


def scene(tmp_path: Path, code: str, play: Callable[[Daemons], Awaitable[None]]) -> list[str]:
    """Runs `play` beside one daemon named ``d``; returns what the supervisor noted."""
    notes: list[str] = []

    async def go() -> None:
        daemons = Daemons(notes.append)
        argv = (sys.executable, "-c", code)
        daemons.start(DaemonSpec("d", "h0", argv, str(tmp_path / "d.log")))
        try:
            await play(daemons)
        finally:
            await daemons.close(0.2)
            assert await until(lambda: daemons.statuses()[0].pid is None)

    asyncio.run(go())
    return notes


async def until(true: Callable[[], bool]) -> bool:
    for _ in range(1000):
        if true():
            return True
        await asyncio.sleep(0.01)
    return False


def pid(daemons: Daemons) -> int:
    found = daemons.statuses()[0].pid
    assert found is not None
    return found


def process_state(number: int) -> str:
    stat = Path(f"/proc/{number}/stat").read_text(encoding="ascii")
    return stat.rpartition(")")[2].split()[0]


def test_a_dead_daemon_is_started_again_and_its_output_kept(tmp_path: Path) -> None:
    async def play(daemons: Daemons) -> None:
        assert await until(lambda: daemons.statuses()[0].restarts >= 2)

    notes = scene(tmp_path, BRIEF, play)
    assert "d ended (exit code 0)" in notes
    assert (tmp_path / "d.log").read_text(encoding="ascii").count("hello") >= 2


def test_a_killed_daemon_comes_back_as_another_process(tmp_path: Path) -> None:
    async def play(daemons: Daemons) -> None:
        first = pid(daemons)
        os.kill(first, signal.SIGKILL)
        assert await until(lambda: daemons.statuses()[0].pid not in {None, first})

    assert "d ended (signal SIGKILL)" in scene(tmp_path, STEADY, play)


def test_held_stays_dead_until_the_last_holder_lets_go(tmp_path: Path) -> None:
    async def play(daemons: Daemons) -> None:
        daemons.hold(1, "d")
        daemons.hold(2, "d")
        assert await until(lambda: daemons.statuses()[0].state == "held")
        daemons.release(1, "d")
        daemons.release(1, "d")
        assert daemons.statuses()[0].state == "held"
        daemons.release(2, "d")
        assert daemons.statuses()[0].state == "running"

    scene(tmp_path, STEADY, play)


def test_released_before_it_died_it_comes_back_too(tmp_path: Path) -> None:
    async def play(daemons: Daemons) -> None:
        daemons.hold(1, "d")
        daemons.release(1, "d")
        assert await until(lambda: daemons.statuses()[0].restarts == 1)

    scene(tmp_path, STEADY, play)


def test_frozen_until_the_last_fault_ends(tmp_path: Path) -> None:
    async def play(daemons: Daemons) -> None:
        number = pid(daemons)
        daemons.pause(1, "d")
        daemons.pause(2, "d")
        assert await until(lambda: process_state(number) == "T")
        daemons.resume(1, "d")
        assert daemons.statuses()[0].state == "stopped"
        daemons.resume(2, "d")
        assert await until(lambda: process_state(number) != "T")
        assert daemons.statuses()[0].state == "running"

    scene(tmp_path, STEADY, play)


def test_close_kills_what_ignores_sigterm(tmp_path: Path) -> None:
    async def play(daemons: Daemons) -> None:
        log = tmp_path / "d.log"
        assert await until(lambda: log.read_text(encoding="ascii") == "on\n")

    scene(tmp_path, STUBBORN, play)


def test_an_unknown_daemon(tmp_path: Path) -> None:
    async def play(daemons: Daemons) -> None:
        with pytest.raises(UsageError, match="--no-agents"):
            daemons.hold(1, "agent-h9")
        with pytest.raises(UsageError, match="--no-agents"):
            daemons.pause(1, "agent-h9")
        with pytest.raises(UsageError, match="--gateways"):
            daemons.hold(1, "gateway1")

    scene(tmp_path, STEADY, play)


def test_a_daemon_that_does_not_stay_up_is_reported_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(name: str, restarts: int, state: str = "waiting") -> DaemonStatus:
        return DaemonStatus(
            name=name, node=name, state=state, pid=None, restarts=restarts, cpu_ns=0
        )

    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "controller.log").write_text("started\nsyntony: error: it needs scipy\n\n")
    killed = status("controller2", 4, "held")
    daemons = (status("controller", 7), killed, status("agent-h0", 1), status("agent-h1", 3))
    monkeypatch.setattr(Lab, "status", lambda _: SimpleNamespace(daemons=daemons))
    assert Lab(tmp_path).crash_reports() == (
        "controller restarted 7 times, last: syntony: error: it needs scipy",
        "agent-h1 restarted 3 times, last: its log cannot be read: No such file or directory",
    )
    assert len(Lab(tmp_path).crash_reports("controller")) == 1, "one that a fault killed is none"
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4096))
    full, _ = Lab(tmp_path).crash_reports("controller")
    assert full == f"the disk of {tmp_path} is full; set TMPDIR to another place"

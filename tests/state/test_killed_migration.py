"""A controller that is killed before each statement of a migration: the next one goes on from
there, whichever version the control state began with."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cases import mostly_slow

from syntony.state import ControlState
from syntony.state.database import migrations
from syntony.state.sqlite import FILE
from syntony.wire.control import Issuer

STEPS = migrations("sqlite")
ANN = Issuer("ann", "local")


def of_version(place: Path, number: int) -> None:
    """Control state as a version with the steps up to this number left it, with a mode set; 0: a
    new one. The first versions had no table of their steps."""
    place.mkdir()
    if not number:
        return
    with sqlite3.connect(place / FILE) as database:
        for step in STEPS:
            if step.number <= number:
                database.executescript(step.script)
        database.execute("INSERT INTO mode (what, mode) VALUES ('placement', 'observe')")
        database.execute(f"PRAGMA user_version = {number}")
    database.close()


def in_a_process(work: Callable[[], None]) -> int:
    """How a process that does this ended, as `os.waitpid` has it."""
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def killed_before(place: Path, number: int) -> bool:
    """Open control state in a process that is killed before its statement of this number; False:
    it has fewer."""
    connect = sqlite3.connect

    def traced(*words: Any, **names: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*words, **names)
        left = [number]

        def before(_: str) -> None:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

        database.set_trace_callback(before)
        return database

    def work() -> None:
        sqlite3.connect = traced  # type: ignore[assignment]
        ControlState(place).close()

    status = in_a_process(work)
    assert status in {0, signal.SIGKILL}
    return status == signal.SIGKILL


@pytest.mark.parametrize("case", mostly_slow([(1, 9), (0, 1), (1, 1), (3, 1)], [(1, 9)]))
def test_killed_before_each_statement(tmp_path: Path, case: tuple[int, int]) -> None:
    """From a version, at every statement or every so many."""
    (version, stride), number = case, 1
    while True:
        place = tmp_path / f"{number}"
        of_version(place, version)
        if not killed_before(place, number):
            break
        if number % 3 == 0:  # and again, a little later
            killed_before(place, number // 2 + 1)
        with ControlState(place) as state:
            assert state.mode("placement") == ("observe" if version else None)
            found = [row[0] for row in state.read("SELECT number FROM schema_migration")]
            assert sorted(found) == [step.number for step in STEPS]
            state.record("x", "y", at_ns=1, issuer=ANN, comment="")
            assert len(state.changes(0, 9)) == 1
        number += stride
    assert number > (60 if version < 2 else 40), "else it was not a migration that was killed"

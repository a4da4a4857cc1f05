"""`lab down` without a name ends nobody else's lab unasked."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from syntony.cli import run
from syntony.errors import RemoteError
from syntony.lab import state
from syntony.lab.client import Lab


class FakeLab:
    name = "theirs"

    def __init__(self, session: str) -> None:
        self.session, self.ended = session, False

    def file(self) -> SimpleNamespace:
        return SimpleNamespace(session=self.session)

    def down(self) -> None:
        self.ended = True


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def give(monkeypatch: pytest.MonkeyPatch, session: str, stdin: io.StringIO) -> FakeLab:
    lab = FakeLab(session)
    monkeypatch.setattr("syntony.cli.lab.open_lab", lambda _name: lab)
    monkeypatch.setattr(sys, "stdin", stdin)
    return lab


@pytest.mark.parametrize("words", [["--name", "theirs"], ["--yes"]])
def test_a_name_or_yes_ends_any_lab(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lab = give(monkeypatch, "another", io.StringIO())
    assert run(["lab", "down", *words]) == 0
    assert lab.ended


def test_this_terminals_lab_needs_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = give(monkeypatch, state.terminal_session(), io.StringIO())
    assert run(["lab", "down"]) == 0
    assert lab.ended


def test_without_a_terminal_it_refuses_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = give(monkeypatch, "another", io.StringIO("y\n"))
    assert run(["lab", "down"]) == 2
    assert not lab.ended
    (line,) = capsys.readouterr().err.splitlines()
    assert "--name theirs" in line
    assert "--yes" in line


@pytest.mark.parametrize(("answer", "ended"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_at_a_terminal_it_asks(answer: str, ended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = give(monkeypatch, "another", Terminal(answer))
    assert run(["lab", "down"]) == (0 if ended else 130)
    assert lab.ended is ended


@pytest.mark.parametrize("words", [[], ["--name", "mine"]])
def test_without_a_lab_it_names_no_command_that_starts_one(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert run(["lab", "down", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("there is nothing to end")
    assert "lab up" not in line


def test_processes_of_one_terminal_share_a_session_and_another_has_its_own() -> None:
    ask = [sys.executable, "-c", "from syntony.lab import state; print(state.terminal_session())"]

    def reported(*, new: bool) -> str:
        return subprocess.run(
            ask, start_new_session=new, check=True, capture_output=True, text=True
        ).stdout.strip()

    mine = state.terminal_session()
    assert reported(new=False) == mine
    assert reported(new=True) != mine
    assert mine.startswith(f"{os.getsid(0)}:")


def test_a_lab_without_its_socket_is_coming_up_or_going_down(tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="lab 'new' does not answer: it is coming up or going"):
        Lab(tmp_path / "new").down()

"""Whatever a command is given, it answers an error with one line, and with no traceback."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from tests.command_tree import commands

from syntony.cli import fleet, run
from syntony.controller.pki import create_authority
from syntony.errors import RemoteError
from syntony.io.files import write_output
from syntony.wire.coding import encode
from syntony.wire.query import Query
from syntony.wire.rest import body

DEAD = ("--controller", "unix:/nowhere/controller.sock")
NOT_TEXT = os.fsdecode(b"h\xff0")
ARGUMENTS = {
    "src": "h0/rail0", "dst": "h1/rail0", "number": "1", "role": "agent", "mode": "off",
    "above": "1", "out": "nowhere", "rank": "0", "at": "c:1", "token": "t",
}  # fmt: skip
WRONG = {
    "text": (NOT_TEXT, "9" * 400 + "s", "99999999999h"),
    "integer": ("", "-1", "9" * 30),
    "integer range": ("", "9" * 30),
    "choice": ("", NOT_TEXT),
}
"""Values for each type of parameter."""


EVERY = [
    each
    for each in commands()
    if not isinstance(each.command, click.Group) or each.command.invoke_without_command
]
OF_FLEETS = [
    each
    for each in EVERY
    if {"target", "controller"} & {option.name for option in each.command.params}
    and not each.command_path.startswith(("syntony audit", "syntony enrol join"))
]


def words(
    context: click.Context, given: click.Parameter | None = None, value: str = ""
) -> list[str]:
    """A command line with all that is required, and one parameter with a value of its own."""
    options, arguments = [*DEAD], []
    for each in context.command.params:
        if not each.required and each is not given:
            continue
        text = value if each is given else ARGUMENTS.get(each.name or "", "x")
        if isinstance(each, click.Argument):
            arguments.append(text)
        else:
            options += [each.opts[0], text]
    return [*context.command_path.split()[1:], *options, "--", *arguments]


@pytest.fixture
def wrong(capsys: pytest.CaptureFixture[str]) -> Callable[[list[str]], str]:
    """Run a command line that must fail, and return its line."""

    def check(line: list[str]) -> str:
        code = run(line)
        said = capsys.readouterr()
        assert code in {2, 3}, (line, code, said.err)
        assert (said.err.count("\n"), said.out) == (1, ""), (line, said.err)
        assert said.err.startswith("syntony: error: "), (line, said.err)
        return said.err

    return check


@pytest.fixture(autouse=True)
def dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question is encoded for both ways to a controller, and nobody answers."""

    def ask_once(_target: object, query: Query[Any], **_: object) -> None:
        encode(query), body(query)
        raise RemoteError("no controller answers")

    monkeypatch.setattr("syntony.controller.client.ask", ask_once)
    monkeypatch.chdir("/")
    for name in (fleet.CONTROLLER_VARIABLE, fleet.TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def test_an_option_that_is_not_known(wrong: Callable[[list[str]], str]) -> None:
    for each in EVERY:
        if each.command.context_settings.get("ignore_unknown_options"):
            continue  # `lab exec`, `run`: they are the program's
        assert "--nosuch" in wrong([*each.command_path.split()[1:], "--nosuch"])


def test_a_controller_that_does_not_answer(wrong: Callable[[list[str]], str]) -> None:
    asked = 0
    for each in OF_FLEETS:
        line = words(each)
        asked += "no controller answers" in wrong(line)
        if any("--json" in option.opts for option in each.command.params):
            wrong(
                [*line[: line.index("--controller")], "--json", *line[line.index("--controller") :]]
            )
    assert asked > 40


def test_values_of_the_wrong_kind_or_size(wrong: Callable[[list[str]], str]) -> None:
    lines = 0
    for each in OF_FLEETS:
        for parameter in each.command.params:
            if parameter.name not in {"lab", "controller", "json", "ca", "cert", "key"}:
                for value in WRONG.get(parameter.type.name, ()):
                    wrong(words(each, parameter, value))
                    lines += 1
    assert lines > 200


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("clock status --controller 10.0.0.1", "'10.0.0.1' is not HOST:PORT; write for example"),
        ("clock status --controller 10.0.0.1:99999", "is not HOST:PORT"),
        ("clock status --controller ::1", "is not HOST:PORT"),
        ("clock status --controller unix:", "unix: needs the path"),
        ("clock status --controller [::1]:8443", "needs --ca, --cert and --key"),
        ("changes --since 99999999999h --controller unix:/x", "at most 292 years"),
        (f"incidents show {'9' * 30} --controller unix:/x", "a number is too large"),
        (f"failover log --job {NOT_TEXT} --controller unix:/x", r"'h\udcff0' is not UTF-8 text"),
        ("context remove ''", "give the name of a context"),
        ("doctor --config agent.toml", "--config goes with --for"),
        ("enrol authority {folder} --address a/b", "'a/b' is neither an IP address nor a DNS name"),
        ("enrol authority {folder} --address [::1]:8443", "give it without a port"),
        ("enrol authority {folder} --address c --lifetime 0s", "--lifetime 0s: give more than 0"),
        ("enrol authority {file} --address c", "{file}: File exists"),
        ("enrol authority {file}/x --address c", "{file}/x: Not a directory"),
        (
            "login https://127.0.0.1:1 --ca /dev/zero --cert c",
            "/dev/zero: cannot be used: not a reg",
        ),
        ("login https://127.0.0.1:1 --ca {file} --cert c", "{file}: cannot be used: "),
        ("login https://127.0.0.1:1 --cert /dev/zero", "/dev/zero: cannot be used: not a regular"),
        ("links show --root {long}", "{long}: File name too long"),
        ("replay {long}", "{long}/chdb: File name too long"),
        ("sim run --traffic {long}", "File name too long"),
        ("traffic place --topology {file} --flows {file}", "not-toml: {file}: not TOML"),
        ("sim run --topology {file} --traffic rings", "not-toml: {file}: not TOML"),
        ("sim run --traffic {file}", "{file}: "),
    ],
)
def test_what_is_wrong_is_named(
    wrong: Callable[[list[str]], str], tmp_path: Path, line: str, says: str
) -> None:
    file = tmp_path / "file"
    file.write_text("hello\n")
    places = {"file": str(file), "folder": str(tmp_path / "ca"), "long": "x" * 300}
    given = ["" if word == "''" else word.format_map(places) for word in line.split()]
    assert says.format_map(places) in wrong(given)
    assert not (tmp_path / "ca" / "tls").exists()


@pytest.mark.parametrize(
    "command", ["version", "links counters --json", "links counters", "--help"]
)
def test_an_output_that_is_full_or_closed(command: str) -> None:
    """What is lost is said; a closed pipe is the reader's wish."""
    line = [sys.executable, "-m", "syntony", *command.split()]
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        ended = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        2, "syntony: error: the output cannot be written: No space left on device\n",
    )  # fmt: skip
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(line, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_a_silence_of_nothing_is_not_one_of_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """As from `silence "$HOST"` in a shell without HOST."""
    assert run(["incidents", "silence", "", "--for", "1h", *DEAD]) == 2
    assert "of what?" in capsys.readouterr().err


def test_nobody_answers_at_the_enrolment_port(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
    words = ["enrol", "join", "h0", "--at", at, "--fingerprint", "0" * 64, "--token", "t"]
    assert run(words) == RemoteError.exit_code
    assert f"no controller answers at {at}: Connection refused" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "</dev/null"])
@pytest.mark.parametrize(
    "command",
    [
        "login https://127.0.0.1:1",
        "enrol join h0 --at 127.0.0.1:1 --dir . --ca ca/ca.crt --token -",
    ],
)
def test_a_secret_from_an_input_that_is_closed_or_empty(
    command: str, closed: str, tmp_path: Path
) -> None:
    create_authority(tmp_path / "ca")
    line = f"{shlex.quote(sys.executable)} -m syntony {command} {closed}"
    home = {**os.environ, "HOME": str(tmp_path)}
    ended = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=home, capture_output=True, text=True, check=False
    )
    assert ended.returncode in {2, 3}
    assert ended.stderr.startswith("syntony: error: ")
    assert ended.stderr.count("\n") == 1


def test_an_output_that_is_a_link_to_itself_is_replaced(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    write_output(loop, b"whole")
    assert loop.read_bytes() == b"whole"

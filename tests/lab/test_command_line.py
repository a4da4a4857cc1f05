"""The root of the command line: lazy groups, errors as one line, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import click
import pytest

from syntony import __version__, cli
from syntony.cli import lab
from syntony.errors import ConfigError, RemoteError
from syntony.lab.doctor import (
    LabRequirement,
    RequirementLevel,
    conclusion,
    examine,
    exit_code,
)
from syntony.lab.faults import KINDS


def test_help_imports_no_group() -> None:
    code = (
        "import sys; from syntony.cli import run; run(['--help']);"
        "print([m for m in sys.modules if m.startswith(('syntony.lab', 'numpy', 'grpc', 'rich.'))])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.rstrip().endswith("[]")
    assert all(name in said.stdout for name in cli.GROUPS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["syntony"] == __version__
    assert cli.run(["--version"]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_can_be_given_with_its_options(kind: str) -> None:
    assert re.search(rf"[\s:]{kind}[,.]", lab.fault.help or "")
    options = {option for each in lab.fault.params for option in each.opts}
    assert {f"--{option}" for option in KINDS[kind].options} <= options


@pytest.mark.parametrize("words", [["nonsense"], ["lab", "nonsense"], ["lab", "up", "--nonsense"]])
def test_usage_errors_are_one_line_and_exit_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(("syntony: error: No such", "syntony: error: no command"))
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["h0", "--lab", "other", "--", "true"], "--lab: options go before the host"),
        (["h0"], "exec needs a command"),
        (["h0", "--"], "exec needs a command"),
    ],
)
def test_exec_says_where_options_belong(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["lab", "exec", *words]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("two\nlines"), 2, "syntony: error: two lines"),
        (RemoteError("gone"), 3, "syntony: error: gone"),
        (ZeroDivisionError("oops"), 1, "syntony: error: ZeroDivisionError: oops (a bug"),
        (KeyboardInterrupt(), 130, "syntony: interrupted"),
    ],
)
def test_every_error_is_one_line(
    error: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @click.command()
    def fails() -> None:
        raise error

    monkeypatch.setattr(cli.root, "get_command", lambda _context, _name: fails)
    assert cli.run(["version"]) == code
    said = capsys.readouterr().err.lstrip("\n")  # click ends the line of a ^C
    assert said.startswith(line)
    assert said.count("\n") == 1
    assert cli.run(["--debug", "version"]) == code
    assert ("Traceback" in capsys.readouterr().err) is not isinstance(error, KeyboardInterrupt)


def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(_name: str) -> None:
        raise ModuleNotFoundError("no", name="chdb")

    monkeypatch.setattr("importlib.import_module", absent)
    assert cli.run(["controller"]) == 2
    assert "needs chdb; install it with: pip install 'syntony[lab]'" in capsys.readouterr().err


def test_doctor_agrees_with_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    levels = {check["level"] for check in found}
    assert code == (2 if "missing" in levels else 1 if "warning" in levels else 0)
    assert all(check["remedy"] for check in found if check["level"] != "ok")
    assert {"ip", "private namespaces"} <= {check["name"] for check in found}


@pytest.mark.parametrize(
    ("levels", "code"),
    [
        ((), 0),
        ((RequirementLevel.OK,), 0),
        ((RequirementLevel.WARNING,), 1),
        ((RequirementLevel.WARNING, RequirementLevel.MISSING), 2),
    ],
)
def test_doctor_exit_codes(levels: tuple[RequirementLevel, ...], code: int) -> None:
    assert exit_code([LabRequirement(name="x", level=level, detail="") for level in levels]) == code


def test_doctor_names_every_missing_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syntony.lab.world.search_path", lambda: "/nonexistent")
    lacking = [check for check in examine() if check.level is RequirementLevel.MISSING]
    assert {"ip", "tc", "nft", "unshare", "nsenter"} <= {check.name for check in lacking}
    assert all("apt install" in check.remedy for check in lacking)


def test_doctor_ends_with_what_it_means_and_the_next_command() -> None:
    def need(name: str, level: RequirementLevel, remedy: str = "") -> LabRequirement:
        return LabRequirement(name=name, level=level, detail="", remedy=remedy)

    fine = need("ip", RequirementLevel.OK)
    assert conclusion([fine]) == "a lab can run on this machine; start one: syntony lab up --detach"
    tun = need("TUN device", RequirementLevel.WARNING, "modprobe tun")
    assert ", without: TUN device; start one" in conclusion([fine, tun])
    veth = need("veth", RequirementLevel.MISSING, "modprobe veth")
    assert conclusion([fine, tun, veth]).endswith("veth; next: modprobe veth")

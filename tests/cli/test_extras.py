"""What a command says of a Python package that is not installed, as of `syntony-tools` alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from syntony import extras
from syntony.cli import run

WORDS = [
    ["diagnose", "{folder}"],
    ["timeline", "{folder}", "--out", "{folder}/trace.json"],
    ["diff", "{folder}", "{folder}"],
    ["sla", "recorded", "{file}"],
    ["clock", "solve", "{file}"],
    ["fabric", "locate", "--paths", "{file}", "--obs", "{file}"],
]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
@pytest.mark.parametrize("packaged", [False, True])
def test_a_command_that_needs_more_says_how_it_is_installed_here(
    words: list[str],
    packaged: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "manifest.json").write_text('{"format": "syntony-bundle", "version": 1}')
    file = tmp_path / "steps.parquet"
    file.write_bytes(b"PAR1")
    if packaged:
        package = tmp_path / "syntony-tools.list"
        package.touch()
        monkeypatch.setattr(extras, "_PACKAGE", package)
        monkeypatch.setattr(sys, "prefix", extras._PREFIX)
    for module in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run([word.format(folder=tmp_path, file=file) for word in words]) == 2
    how = "apt install syntony-controller" if packaged else "pip install 'syntony[controller]'"
    reported = capsys.readouterr().err
    assert reported == f"syntony: error: this command needs pyarrow; install it with: {how}\n"


def test_no_package_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extras, "_PACKAGE", tmp_path)
    monkeypatch.setattr(sys, "prefix", extras._PREFIX)
    assert extras.install_command("matplotlib.pyplot") == "pip install 'syntony[report]'"

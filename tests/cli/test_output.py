"""What is printed is what was said: a colon is no emoji, a bracket no colour."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path

import pytest
from rich.table import Table

import syntony
from syntony.cli import output
from syntony.cli._console import OutputConsole
from syntony.view import lazy_rich


def test_foreign_text_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    output.messages.print("root:x:0:0", markup=False)
    output.console.print("h0:warning:1", markup=False)
    shown = capsys.readouterr()
    assert shown.err == "root:x:0:0\n"
    assert shown.out == "h0:warning:1\n"


@pytest.mark.parametrize("columns", ["", "40", "300"])
def test_a_table_in_a_pipe_is_never_cut_or_wrapped(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    words = [f"h{n}/rail{n % 8}-{chance.randrange(10**9)}" for n in range(chance.randrange(9, 60))]
    table = Table(box=None, show_header=False)
    for number, _ in enumerate(words):
        table.add_column(no_wrap=number % 2 == 0)
    table.add_row(*words)
    output.console.print(table)
    output.messages.print(" ".join(words))
    shown = capsys.readouterr()
    assert shown.out.split() == words, f"seed {seed}"
    assert len(shown.out.splitlines()) == len(shown.err.splitlines()) == 1, f"seed {seed}"


def test_a_terminal_keeps_its_width() -> None:
    out = io.StringIO()
    console = OutputConsole(file=out, force_terminal=True, width=40, _environ={})
    console.print("word " * 20)
    assert max(map(len, out.getvalue().splitlines())) <= 40


def test_a_value_too_wide_for_a_narrow_terminal_is_folded_not_cut() -> None:
    out = io.StringIO()
    table = lazy_rich.Table("drift ppb", box=None)
    table.add_column("state")
    table.add_row("+28,634.8", "SYNCHRONIZED")
    OutputConsole(file=out, force_terminal=True, width=14, _environ={}).print(table)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert "…" not in shown
    assert sorted("".join(shown.split())) == sorted("driftppbstate+28,634.8SYNCHRONIZED")


def test_every_command_prints_through_the_one_console() -> None:
    """A console of its own would be 80 columns wide in a pipe."""
    sources = Path(syntony.__file__).parent.rglob("*.py")
    own = [str(file) for file in sources if re.search(r"(?<!\w)Console\(\S", file.read_text())]
    assert [Path(name).name for name in own] == []

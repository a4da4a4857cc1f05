"""Man pages and completion are made of the command tree, and cover it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.command_tree import commands

MAKER = Path(__file__).parents[2] / "deploy/packages/man_pages.py"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, MAKER, out], check=True,
                   env={**os.environ, "SOURCE_DATE_EPOCH": "0"})  # fmt: skip
    return out


def test_every_command_has_its_page_and_options(pages: Path) -> None:
    wanted = {}
    for context in commands(hidden=False):
        wanted[context.command_path.replace(" ", "-") + ".1"] = [
            option
            for parameter in context.command.get_params(context)
            if isinstance(parameter, click.Option) and not parameter.hidden
            for option in parameter.opts
        ]
    assert {page.name for page in pages.iterdir()} == set(wanted)
    assert len(wanted) > 100
    for name, options in wanted.items():
        text = (pages / name).read_text().replace("\\-", "-")
        assert '"1970-01-01"' in text
        assert not [option for option in options if option not in text], name


@pytest.mark.skipif(
    shutil.which("groff") is None,
    reason="needs groff (Debian: groff): man pages are NOT checked by it",
)
def test_groff_has_nothing_to_say(pages: Path) -> None:
    done = subprocess.run(
        ["groff", "-k", "-man", "-Tutf8", "-ww", "-z", *sorted(pages.iterdir())],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not [line for line in done.stderr.splitlines() if "can't break" not in line][:5]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("syntony doc", "doctor"), ("syntony lab fa", "fault"), ("syntony doctor --fo", "--for")],
)
def test_the_shell_completes_commands_and_options(words: str, wanted: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "syntony"], capture_output=True, text=True, check=False,
        env={**os.environ, "_SYNTONY_COMPLETE": "bash_complete", "COMP_WORDS": words,
             "COMP_CWORD": str(len(words.split()) - 1)},
    )  # fmt: skip
    assert wanted in re.findall(r",(\S+)", done.stdout)

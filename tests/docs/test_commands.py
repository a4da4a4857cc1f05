"""Every `syntony` command in the documentation exists, with the options it is shown with."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from syntony.cli import root

TOP = Path(__file__).parents[2]
PAGES = sorted(
    [*TOP.glob("*.md"), *(TOP / "docs").glob("*.md")]
    + [page for room in ("how-to", "reference") for page in (TOP / "docs" / room).glob("*.md")]
)
_CODE = re.compile(r"^```\w*\n(.*?)^```|(?<!`)`([^`\n]+)`(?!`)", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"(?:^(?:\$ )?|[|;&(`] ?|-- )syntony ([^|;&>()#`\n]*)", re.MULTILINE)
_TYPED = re.compile(r"(?:^ *(?:\$ )?|[|;&(] ?|-- )syntony (.*)", re.MULTILINE)
_CONFLICT = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)


def commands(text: str) -> list[str]:
    """What follows `syntony ` in code, to the end of that command; not the reasons of drains."""
    blocks = [(block or inline).replace("\\\n", " ") for block, inline in _CODE.findall(text)]
    lines = [found.strip() for block in blocks for found in _COMMAND.findall(block)]
    return [line for line in lines if ": …" not in line]


def typed(text: str) -> list[str]:
    """What follows `syntony ` in blocks, to the end of the line; without what `…` stands for."""
    blocks = [block.replace("\\\n", " ") for block, _ in _CODE.findall(text)]
    return [line for block in blocks for line in _TYPED.findall(block) if "…" not in line]


def unknown(line: str) -> str | None:
    """The first command or option of a line that Syntony does not have; a flag with a value too."""
    context = click.Context(root, info_name="syntony")
    options = _options(context)
    for word in line.split():
        if word in ("--", "…", "..."):
            return None
        command = context.command
        if word.startswith("--"):
            name, given, _ = word.partition("=")
            if name not in options or (given and options[name].is_flag):
                return word
        elif isinstance(command, click.Group) and re.fullmatch(r"[a-z-]+", word):
            child = command.get_command(context, word)
            if child is None:
                return word
            context = click.Context(child, info_name=word, parent=context)
            options |= _options(context)
    return None


def refused(line: str) -> str | None:
    """What is wrong with a typed command, which may be followed by others or a comment: a command,
    argument, option or choice. Not that a file is missing."""
    shell = shlex.shlex(line.replace("EPOCH", "1"), posix=True, punctuation_chars=True)
    shell.whitespace_split = True
    words = list(shell)
    end = next((at for at, word in enumerate(words) if set(word) <= set("|;&()<>")), len(words))
    try:
        root.main(words[:end], standalone_mode=False)
    except click.exceptions.Exit:  # of --help and --version
        return None
    except click.ClickException as error:
        said = error.format_message()
        return None if "does not exist" in said else said
    return None


def _options(context: click.Context) -> dict[str, click.Option]:
    made = context.command.get_params(context)
    return {
        name: option
        for option in made
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_commands_exist(page: Path) -> None:
    found = {line: unknown(line) for line in commands(page.read_text(encoding="utf-8"))}
    assert not {line: word for line, word in found.items() if word}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_typed_commands_are_accepted(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.Command, "invoke", lambda _command, _context: None)
    found = {line: refused(line) for line in typed(page.read_text(encoding="utf-8"))}
    assert not {line: said for line, said in found.items() if said}


def test_a_refused_command_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.Command, "invoke", lambda _command, _context: None)
    text = (
        "```sh\nsyntony probe history h0/rail0 # to what?\nx | syntony traffic mode never && y\n"
        "for seed in 1 2; do\n  syntony sim run --seed x\ndone\nsyntony audit run … --md\n"
        "syntony links history h0/rail0 > a.txt\nsyntony diagnose ./bundle\n```\n`syntony lab upp`"
    )
    said = [refused(line) for line in typed(text)]
    assert [each is not None for each in said] == [True, True, True, False, False]


def test_a_wrong_command_is_noticed() -> None:
    text = (
        "Use `syntony lab upp`.\n```sh\nsyntony lab up \\\n  --hots 4 # four\n"
        "x && syntony run -- y --z\nT=$(syntony enrol api tokn viewer me)\n"
        "syntony audit run --nccl=x\nsyntony lab up --hosts=4\n```\n"
    )
    found = [unknown(line) for line in commands(text)]
    assert found == ["upp", "--hots", None, "tokn", "--nccl=x", None]


def test_no_page_has_conflict_markers() -> None:
    pages = [*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md")]
    assert not [page.name for page in pages if _CONFLICT.search(page.read_text(encoding="utf-8"))]

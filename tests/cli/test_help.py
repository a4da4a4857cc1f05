"""Every option says what it is, and one idea has one spelling everywhere."""

from __future__ import annotations

import re

import click
import pytest
from tests.command_tree import commands

from syntony.cli import run

_FRAGMENT = re.compile(r"(Of|And|Between|As of|For|\[)\b|\[")


EVERY = list(commands(hidden=False))


@pytest.mark.parametrize("context", EVERY, ids=lambda context: context.command_path)
def test_every_option_says_what_it_is(context: click.Context) -> None:
    """A noun or a verb, not the rest of a sentence that its name begins."""
    for option in context.command.get_params(context):
        if isinstance(option, click.Option) and not option.hidden:
            text = option.help or ""
            assert len(text) > len("Seed."), option.opts
            assert not _FRAGMENT.match(text), (option.opts, text)


@pytest.mark.parametrize("words", [[], ["lab"], ["clock"], ["links"], ["lab", "drill"]])
def test_a_group_without_a_command_prints_its_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is laid out, and not as one line of an error."""
    assert run(words) == 2
    reported = capsys.readouterr().err
    assert reported.startswith(f"Usage: {' '.join(['syntony', *words])}")
    assert "\nCommands:\n  " in reported


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["clokc"], "no command 'clokc'; did you mean 'clock'? (see: syntony --help)"),
        (["audit", "rnu"], "no command 'rnu'; did you mean 'run'? (see: syntony audit --help)"),
        (["links", "lst"], "no command 'lst'; did you mean 'list'? (see: syntony links --help)"),
        (["sim", "zzz"], "no command 'zzz' (see: syntony sim --help)"),
        (["audit", "--rnu"], "No such option '--rnu'. (see: syntony audit --help)"),
    ],
)
def test_a_mistyped_command(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where commands are imported on use."""
    assert run(words) == 2
    assert capsys.readouterr().err == f"syntony: error: {says}\n"


@pytest.mark.parametrize(
    "context",
    [each for each in EVERY if isinstance(each.command, click.Group)],
    ids=lambda context: context.command_path,
)
def test_the_help_of_a_group_is_never_shortened(context: click.Context) -> None:
    narrow = click.Context(context.command, info_name=context.info_name, terminal_width=60)
    assert "..." not in context.command.get_help(narrow).partition("Commands:")[2]


@pytest.mark.parametrize(
    "spellings", [("--window", "--since"), ("--comment", "--why"), ("--interval", "--every")]
)
def test_one_idea_has_one_spelling_everywhere(spellings: tuple[str, str]) -> None:
    """Both words of a pair work wherever one does, but for an option that means another thing."""
    other = {"clock solve", "audit", "kubernetes node"}
    for context in EVERY:
        path = context.command_path.removeprefix("syntony ")
        for option in context.command.get_params(context):
            found = set(spellings) & set(option.opts)
            if found and path not in other and option.name != "comment":
                assert found == set(spellings), (path, option.opts)

"""What options offer can be said, and their defaults are among it."""

from __future__ import annotations

import click
from tests.command_tree import commands

from syntony.cli import root


def test_each_choice_is_taken_as_it_is_written() -> None:
    context = click.Context(root)
    seen = 0
    for each in commands():
        for parameter in each.command.params:
            if isinstance(parameter.type, click.Choice):
                words = [str(choice) for choice in parameter.type.choices]
                for word in words:
                    assert parameter.type.convert(word, parameter, context) == word
                default = parameter.get_default(context)
                assert default is None or not isinstance(default, str) or default in words
                seen += 1
    assert seen > 10

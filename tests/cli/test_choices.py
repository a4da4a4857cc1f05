"""What options offer can be said, and their defaults are among it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from syntony.cli import root


def commands(group: click.Command, context: click.Context) -> Iterator[click.Command]:
    """Every command below."""
    if not isinstance(group, click.Group):
        yield group
        return
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield from commands(found, context)


def test_each_choice_is_taken_as_it_is_written() -> None:
    context = click.Context(root)
    seen = 0
    for each in commands(root, context):
        for parameter in each.params:
            if isinstance(parameter.type, click.Choice):
                words = [str(choice) for choice in parameter.type.choices]
                for word in words:
                    assert parameter.type.convert(word, parameter, context) == word
                default = parameter.get_default(context)
                assert default is None or not isinstance(default, str) or default in words
                seen += 1
    assert seen > 10

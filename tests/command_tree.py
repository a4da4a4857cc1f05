"""The commands of `syntony`, for tests of each of them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from syntony.cli import root


def commands(
    context: click.Context | None = None, *, hidden: bool = True
) -> Iterator[click.Context]:
    """All groups and commands, depth first.

    Args:
        context: of the first one; None: of `syntony`.
        hidden: also those that help does not list.
    """
    context = context or click.Context(root, info_name="syntony")
    yield context
    group = context.command
    for name in group.list_commands(context) if isinstance(group, click.Group) else ():
        child = group.get_command(context, name) if isinstance(group, click.Group) else None
        assert child is not None
        if hidden or not child.hidden:
            below = click.Context(child, info_name=name, parent=context)
            yield from commands(below, hidden=hidden)

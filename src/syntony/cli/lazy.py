"""Command groups: their help has whole lines, and their commands are imported on use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

_WHOLE = 1_000
"""Characters of a command's line in its group's help: never shortened, wrapped instead."""


class HelpGroup(click.Group):
    """A group whose help shows the first line of each command's help in full."""

    def format_commands(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        lines = [(name, self.line(name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, line in lines if line is not None])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """click's own suggestion knows only commands that are imported."""
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        from syntony.model.names import did_you_mean

        near = did_you_mean(name, self.list_commands(ctx))
        raise click.UsageError(f"no command {name!r}{near}", ctx)

    def line(self, name: str) -> str | None:
        """What a command does; None if it is hidden."""
        command = self.commands[name]
        return None if command.hidden else command.get_short_help_str(_WHOLE)


class LazyGroup(HelpGroup):
    """A group whose commands are given as ``MODULE:ATTRIBUTE`` below `syntony.cli`.

    Args:
        lazy: command to where it is, and its line in the help of this group, which is the first
            line of its own help.
    """

    def __init__(
        self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.lazy])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        loaded = importlib.import_module(f"syntony.cli.{module}")
        command: click.Command = getattr(loaded, attribute)
        return command

    def line(self, name: str) -> str | None:
        return self.lazy[name][1] if name in self.lazy else super().line(name)

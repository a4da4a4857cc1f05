"""Command groups that import their commands on use, to keep `--help` fast."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping


class LazyGroup(click.Group):
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = [
            name
            for name in self.list_commands(ctx)
            if name in self.lazy or not self.commands[name].hidden
        ]
        room = formatter.width - 6 - max(map(len, names))
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._line(name, room)) for name in names])

    def _line(self, name: str, room: int) -> str:
        stand_in = click.Command(name, help=self.lazy[name][1]) if name in self.lazy else None
        return (stand_in or self.commands[name]).get_short_help_str(room)

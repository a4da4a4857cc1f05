"""Data goes to stdout, messages to stderr, colour only to terminals.

Rich is loaded when something is first printed with it: `--help` and `--json` need none of it.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from syntony.model import MS, S, format_ns

if TYPE_CHECKING:
    from rich.status import Status

    from syntony.cli._console import OutputConsole


class Printer:
    """One of the program's two outputs; what Rich's own classes need is its `rich`."""

    def __init__(self, *, stderr: bool) -> None:
        self._stderr = stderr

    @cached_property
    def rich(self) -> OutputConsole:
        from syntony.cli._console import OutputConsole

        return OutputConsole(stderr=self._stderr, highlight=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as Rich's `Console.print` does, with its options."""
        self.rich.print(*objects, **options)

    def status(self, text: str) -> Status:
        """Show what is being done until the context ends."""
        return self.rich.status(text)

    @property
    def file(self) -> TextIO:
        return sys.stderr if self._stderr else sys.stdout

    @property
    def is_terminal(self) -> bool:
        return self.rich.is_terminal

    @property
    def width(self) -> int:
        return self.rich.width


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
comment_option = click.option(
    "--comment", default="", show_default=False, help="Why, for the audit log."
)
why_option = click.option(
    "--comment", "--why", "why", default="", show_default=False, help="Why, for the audit log."
)
log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    help="Lowest level that is logged.",
)
console = Printer(stderr=False)
messages = Printer(stderr=True)


def print_json(data: Any) -> None:
    """One JSON document on stdout; records become objects."""
    console.file.write(json.dumps(data, indent=2, default=msgspec.to_builtins) + "\n")


def shown_ns(value_ns: float | None) -> str:
    """A duration for people; empty if unknown."""
    return "" if value_ns is None else format_ns(value_ns)


def civil_time(at_ns: int) -> str:
    """UTC to the second; empty for 0."""
    return f"{dt.datetime.fromtimestamp(at_ns / S, dt.UTC):%Y-%m-%d %H:%M:%S}" if at_ns else ""


def civil_time_ms(at_ns: int) -> str:
    """UTC to the millisecond, cut off."""
    return f"{civil_time(at_ns // S * S)}.{at_ns // MS % 1000:03d}"

"""Write a man page for each command, from the command tree.

    python deploy/packages/man_pages.py DIRECTORY

`syntony lab up` becomes `syntony-lab-up.1`, as git's are. Not click-man: it sees no lazily loaded
groups and escapes nothing. The date is SOURCE_DATE_EPOCH's, if that is set.
"""

from __future__ import annotations

import datetime as dt
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from syntony import __version__
from syntony.cli import root


def commands(context: click.Context) -> Iterator[click.Context]:
    """The command of `context` and, depth first, all that are not hidden below it."""
    yield context
    for name, child in _children(context):
        yield from commands(click.Context(child, info_name=name, parent=context))


def _children(context: click.Context) -> list[tuple[str, click.Command]]:
    group = context.command
    if not isinstance(group, click.Group):
        return []
    found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return [(name, child) for name, child in found if child is not None and not child.hidden]


def _escaped(text: str) -> str:
    """Text as roff takes it literally: no line begins with a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("\b", "")
    return "\n".join(
        f"\\&{line}" if line.startswith((".", "'")) else line for line in text.split("\n")
    )


def _paragraphs(text: str) -> list[str]:
    """Help text; blocks that click is told not to wrap, and indented ones, keep their lines."""
    lines = []
    for block in inspect.cleandoc(text.replace("\f", "")).split("\n\n"):
        literal = "\b" in block or any(line.startswith(" ") for line in block.split("\n"))
        body = _escaped(block).strip("\n")
        lines += [".PP", ".nf", body, ".fi"] if literal else [".PP", body]
    return lines


def _name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _options(context: click.Context) -> list[str]:
    records = [
        parameter.get_help_record(context) for parameter in context.command.get_params(context)
    ]
    lines = [".SH OPTIONS"]
    for switches, text in filter(None, records):
        lines += [".TP", f"\\fB{_escaped(switches)}\\fR", _escaped(text)]
    return lines


def _commands(context: click.Context) -> list[str]:
    children = _children(context)
    lines = [".SH COMMANDS"] if children else []
    for name, child in children:
        page = f"\\fB{_escaped(_name(context))}\\-{_escaped(name)}\\fR(1)"
        lines += [".TP", page, _escaped(child.get_short_help_str(200))]
    return lines


def page(context: click.Context, date: dt.date) -> str:
    """The man page of one command, in roff's `man` macros."""
    command = context.command
    name, usage = _name(context), " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH "{name.upper()}" "1" "{date}" "Syntony {__version__}" "Syntony"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(command.get_short_help_str(200))}",
        ".SH SYNOPSIS",
        f"\\fB{_escaped(context.command_path)}\\fR {_escaped(usage)}",
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
        *(_paragraphs(command.epilog) if command.epilog else []),
        *_options(context),
        *_commands(context),
        ".SH SEE ALSO",
        f"\\fB{_escaped(_name(context.parent) if context.parent else 'systemd')}\\fR(1)",
    ]
    return "\n".join(lines) + "\n"


def main(directory: str) -> None:
    """Write all pages below `directory`, which is made if it is missing."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    now = dt.datetime.now(dt.UTC)
    date = (dt.datetime.fromtimestamp(int(seconds), dt.UTC) if seconds else now).date()
    out = Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    for context in commands(click.Context(root, info_name="syntony")):
        (out / f"{_name(context)}.1").write_text(page(context, date), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

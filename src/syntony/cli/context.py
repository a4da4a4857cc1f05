"""`syntony context`: selects the fleet that commands use by default."""

from __future__ import annotations

import click

from syntony.cli import contexts
from syntony.cli.lazy import HelpGroup
from syntony.cli.output import console, json_option, messages, print_json
from syntony.errors import UsageError
from syntony.view.tables import plain_table


@click.group(cls=HelpGroup)
def command() -> None:
    """Fleets to which `syntony login` has logged in, and the one in use.

    \b
    Example:
      syntony context use production
    """


@command.command(name="list")
@json_option
def listing(as_json: bool) -> None:
    """List contexts; tokens are not shown.

    \b
    Example:
      syntony context list
    """
    known = contexts.load()
    if as_json:
        print_json(
            [
                {"name": name, "url": each.url, "current": name == known.current}
                for name, each in sorted(known.contexts.items())
            ]
        )
        return
    table = plain_table("", "context", "controller")
    for name, each in sorted(known.contexts.items()):
        table.add_row("*" if name == known.current else "", name, each.url)
    console.print(table if table.row_count else "no contexts; make one: syntony login URL")


@command.command()
@click.argument("name", required=False, default="")
@click.option("--none", "unset", is_flag=True, help="Use no context: commands use the lab again.")
def use(name: str, unset: bool) -> None:
    """Use context NAME where neither --lab nor --controller is given.

    \b
    Example:
      syntony context use production
    """
    if unset == bool(name):
        raise UsageError("give the name of a context, or --none")
    contexts.save(contexts.load().with_current(name))
    messages.print(f"commands speak to {name}" if name else "no context is in use")


@command.command()
@click.argument("name")
def remove(name: str) -> None:
    """Forget context NAME and its token. The controller still accepts the token.

    \b
    Example:
      syntony context remove production
    """
    if not name:
        raise UsageError("give the name of a context (see: syntony context list)")
    known = contexts.load().with_current(name)
    rest = {other: each for other, each in known.contexts.items() if other != name}
    used = contexts.load().current
    contexts.save(contexts.Contexts(current="" if used == name else used, contexts=rest))
    messages.print(f"context {name} is forgotten; revoke its token: syntony enrol api revoke")

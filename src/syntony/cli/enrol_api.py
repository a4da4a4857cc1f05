"""`syntony enrol api`: tokens for the HTTP API."""

from __future__ import annotations

import click
import msgspec

from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.lazy import HelpGroup
from syntony.cli.output import civil_time, comment_option, console, messages, print_json
from syntony.io.user_name import user_name
from syntony.model import parse_duration_ns
from syntony.view.tables import plain_table
from syntony.wire.access_tokens import (
    AccessTokenCommand,
    AccessTokensQuery,
    AccessTokenView,
    RevokeAccessCommand,
)


@click.group(cls=HelpGroup)
def command() -> None:
    """Tokens for the HTTP API and the console: make, list, revoke.

    \b
    Example:
      syntony enrol api token viewer dashboards --valid 30d
      syntony enrol api revoke 3 --comment "dashboards moved"
    """


@command.command()
@click.argument("role", type=click.Choice(["viewer", "operator"]))
@click.argument("name")
@click.option("--valid", default="24h", metavar="TIME", help="Validity of the token.")
@click.option("--once", is_flag=True, help="Log in one browser, once; valid for a day at most.")
@comment_option
@fleet_options
def token(
    *,
    target: FleetTarget,
    role: str,
    name: str,
    valid: str,
    once: bool,
    comment: str,
    as_json: bool,
) -> None:
    """Make an API token of ROLE for NAME, a person or a program.

    The token is printed once and not stored.

    \b
    Example:
      syntony enrol api token viewer dashboards --valid 30d
    """
    order = AccessTokenCommand(
        role=role, name=name, valid_ns=parse_duration_ns(valid), once=once, by=user_name(),
        comment=comment,
    )  # fmt: skip
    made = ask(target, order)
    if as_json:
        print_json(made)
        return
    click.echo(made.token)
    messages.print(f"access token {made.number}, good until {civil_time(made.expires_ns)} UTC")


@command.command(name="list")
@click.option("--all", "everything", is_flag=True, help="Also show expired, used and revoked ones.")
@fleet_options
def listing(target: FleetTarget, everything: bool, as_json: bool) -> None:
    """List tokens and browsers' sessions.

    \b
    Example:
      syntony enrol api list
    """
    found = ask(target, AccessTokensQuery())
    if as_json:
        print_json(
            [
                msgspec.to_builtins(each) | {"state": _state(each, found.now_ns)}
                for each in found.tokens
            ]
        )
        return
    table = plain_table("number", "kind", "role", "name", "state", "expires (UTC)", "made by")
    for each in found.tokens:
        state = _state(each, found.now_ns)
        if everything or state == "good":
            table.add_row(
                str(each.number), each.kind, each.role, each.name, state,
                civil_time(each.expires_ns), each.issuer,
            )  # fmt: skip
    console.print(table if table.row_count else "no tokens")


@command.command()
@click.argument("number", type=click.IntRange(1))
@comment_option
@fleet_options
def revoke(target: FleetTarget, number: int, comment: str, as_json: bool) -> None:
    """Revoke token or session NUMBER, and every session made with it.

    \b
    Example:
      syntony enrol api revoke 3 --comment "laptop lost"
    """
    order = RevokeAccessCommand(number=number, by=user_name(), comment=comment)
    revoked = ask(target, order)
    if as_json:
        print_json({"numbers": revoked.numbers})
        return
    messages.print(f"revoked: {', '.join(map(str, revoked.numbers)) or 'it was not good any more'}")


def _state(each: AccessTokenView, now_ns: int) -> str:
    if each.revoked_ns:
        return "revoked"
    if each.expires_ns <= now_ns:
        return "expired"
    return "used" if each.kind == "login" and each.used_ns else "good"

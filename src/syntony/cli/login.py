"""`syntony login`: keep the address of a controller and a token for it."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

import click

from syntony.cli import contexts
from syntony.cli.output import messages
from syntony.errors import UsageError


@click.command()
@click.argument("url")
@click.option("--name", default="", help="Name of the context. [default: the host's name]")
@click.option("--ca", default="", type=click.Path(), help="The fleet's CA certificate, PEM file.")
@click.option(
    "--cert", default="", type=click.Path(), help="Client certificate, in place of a token."
)
@click.option("--key", default="", type=click.Path(), help="Its private key.")
def command(url: str, name: str, ca: str, cert: str, key: str) -> None:
    """Log in to the API of a controller at URL, and use it from now on.

    The token, from `syntony enrol api token`, is asked for, or read from a pipe. It is kept in
    ~/.config/syntony/contexts.json, which only you can read.

    \b
    Example:
      syntony login https://syntony.example:8445 --ca ca.crt
    """
    from syntony.client import Client

    token = ""
    if not cert:
        token = click.prompt("token", hide_input=True, err=True) if sys.stdin.isatty() else ""
        token = (token or sys.stdin.readline()).strip()
        if not token:
            raise UsageError("give a token on standard input, or --cert and --key")
    context = contexts.Context(
        url=url.rstrip("/"), token=token, ca=_full(ca), cert=_full(cert), key=_full(key)
    )
    with Client(context.url, access=context.access) as client:
        session = client.session()
    name = name or urlsplit(context.url).hostname or context.url
    known = contexts.load()
    contexts.save(contexts.Contexts(current=name, contexts={**known.contexts, name: context}))
    messages.print(f"logged in as {session.name} ({session.role}); context {name} is in use")


def _full(path: str) -> str:
    return str(Path(path).resolve()) if path else ""

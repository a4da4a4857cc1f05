"""`syntony login`: stores the address of a controller and a token for it."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from syntony.cli import contexts
from syntony.cli.output import messages
from syntony.errors import UsageError
from syntony.input_files import MAX_SECRET_BYTES
from syntony.model import S

if TYPE_CHECKING:
    from syntony.client import Client

PROVIDER_TIMEOUT_NS = 30 * S
"""The controller asks the identity provider, for 20 s at most."""
SLOWER_S = 5
"""RFC 8628 section 3.5."""

_file_option = partial(click.option, default="", show_default=False, type=click.Path())


@click.command()
@click.argument("url")
@click.option(
    "--name", default="", show_default=False, help="Name of the context. [default: the host's name]"
)
@_file_option("--ca", help="The fleet's CA certificate, PEM file.")
@_file_option("--cert", help="Client certificate, in place of a token.")
@_file_option("--key", help="Its private key.")
@click.option("--sso", is_flag=True, help="At the identity provider, in a browser anywhere.")
def command(url: str, name: str, ca: str, cert: str, key: str, *, sso: bool) -> None:
    """Log in to the API of a controller at URL, and use it from now on.

    The token, from `syntony enrol api token`, is asked for, or read from a pipe. With --sso you log
    in with your company's account instead: the command prints an address and a code for a browser
    on any machine. The token is kept in ~/.config/syntony/contexts.json, which only you can read.

    \b
    Example:
      syntony login https://syntony.example:8445 --ca ca.crt
    """
    from syntony.client import Access, Client

    token = ""
    Client(url.rstrip("/"), ca=ca).close()  # a wrong URL or CA file before the token is asked for
    if sso:
        if cert:
            raise UsageError("give --sso, or --cert and --key")
        access = Access(ca=ca)
        with Client(url.rstrip("/"), access=access, timeout_ns=PROVIDER_TIMEOUT_NS) as client:
            token = _by_device(client)
    elif not cert:
        token = click.prompt("token", hide_input=True, err=True) if sys.stdin.isatty() else ""
        token = (token or sys.stdin.readline(MAX_SECRET_BYTES)).strip()
        if not token:
            raise UsageError(
                "give a token on standard input (an operator makes one: syntony enrol api token), "
                "--sso, or --cert and --key"
            )
    context = contexts.Context(
        url=url.rstrip("/"), token=token, ca=_full(ca), cert=_full(cert), key=_full(key)
    )
    with Client(context.url, access=context.access) as client:
        session = client.session()
    name = name or urlsplit(context.url).hostname or context.url
    known = contexts.load()
    contexts.save(contexts.Contexts(current=name, contexts={**known.contexts, name: context}))
    messages.print(f"logged in as {session.name} ({session.role}); context {name} is in use")


def _by_device(client: Client) -> str:
    """Wait until the user has logged in in a browser; return the token."""
    begun = client.begin_device_login()
    messages.print(
        f"open {begun.verification_uri_complete or begun.verification_uri} in a browser and enter "
        f"or confirm the code {begun.user_code}"
    )
    interval_s, left_s = max(1, begun.interval_s), begun.expires_in_s
    while left_s > 0:
        time.sleep(interval_s)
        left_s -= interval_s
        found = client.device_token(begun.device_code)
        if found.token:
            return found.token
        interval_s += SLOWER_S if found.slow_down else 0
    raise UsageError(f"the login was not finished within {begun.expires_in_s} s; begin again")


def _full(path: str) -> str:
    return str(Path(path).absolute()) if path else ""

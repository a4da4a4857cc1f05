"""Which fleet a command speaks to: a lab on this machine, or a controller by address."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import click

from syntony.agent.config import TlsFiles
from syntony.cli.output import messages
from syntony.errors import RemoteError, UsageError
from syntony.model import MS, S
from syntony.wire.query import A, Query

STARTING_NS = 45 * S
"""A lab younger than this may not have measured anything yet: on a slow machine, agents start in
ten seconds and clocks are found in ten more."""
_RETRY_NS = 250 * MS
_CONTROLLER_HELP = "A controller; needs the certificate. On its own host: unix:PATH of its socket."


class FleetTarget(NamedTuple):
    """Where to ask: a gRPC target and, for remote ones, our certificate."""

    address: str
    tls: TlsFiles | None
    patience_ns: int = 0
    """How long the fleet may still be starting."""
    lab: str | None = None
    """The lab's name, where it is one: only there the truth is known."""


def certificate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--ca``, ``--cert`` and ``--key``."""
    for name, meaning in (
        ("--key", "Our private key, PEM."),
        ("--cert", "Our certificate, PEM."),
        ("--ca", "CA certificate of the fleet, PEM."),
    ):
        command = click.option(name, type=click.Path(), help=meaning)(command)
    return command


def fleet_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--lab``, ``--controller`` with its certificate, and ``--json``.

    The command gets `target` (a `FleetTarget`) and `as_json`.
    """

    @click.option("--lab", metavar="NAME", help="A lab on this machine; the only one by default.")
    @click.option("--controller", metavar="HOST:PORT", help=_CONTROLLER_HELP)
    @certificate_options
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @wraps(command)
    def wrapper(
        *args: Any,
        lab: str | None,
        controller: str | None,
        ca: str | None,
        cert: str | None,
        key: str | None,
        **kwargs: Any,
    ) -> Any:
        target = fleet_target(lab, controller, (ca, cert, key))
        return command(*args, target=target, **kwargs)

    return wrapper


def fleet_target(
    lab: str | None, controller: str | None, tls: tuple[str | None, str | None, str | None]
) -> FleetTarget:
    """Whom the options name.

    Args:
        lab: a lab's name; the only one if None and no controller is named.
        controller: ``HOST:PORT``, or ``unix:PATH`` of a controller's local socket.
        tls: files of the CA, our certificate and our key.

    Raises:
        UsageError: both, or a controller without a certificate.
    """
    if controller is None:
        return _lab(lab)
    if lab is not None:
        raise UsageError("give --lab or --controller, not both")
    if controller.startswith("unix:"):
        return FleetTarget(controller, None)
    ca, cert, key = tls
    if not (ca and cert and key):
        raise UsageError("--controller needs --ca, --cert and --key: the fleet speaks TLS only")
    return FleetTarget(controller, TlsFiles(ca=ca, cert=cert, key=key))


def user() -> str:
    """Who gives an order, for the audit log."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def ask(
    target: FleetTarget,
    query: Query[A],
    *,
    until: Callable[[A], bool] = bool,
    timeout_ns: int = 10 * S,
) -> A:
    """The controller's answer.

    A lab that has just come up is given its time: while it is young, no answer, and an answer that
    is not yet what `until` waits for, are asked again.

    Raises:
        RemoteError: no answer, or one that says why not.
    """
    from syntony.controller.client import ask as ask_once

    deadline_ns = time.monotonic_ns() + target.patience_ns
    reported = False
    while True:
        late = time.monotonic_ns() >= deadline_ns
        try:
            answer = ask_once(target.address, query, tls=target.tls, timeout_ns=timeout_ns)
            if late or until(answer):
                return answer
        except RemoteError:
            if late:
                raise
        if not reported:
            messages.print("the lab has just come up; waiting for what it measures")
            reported = True
        time.sleep(_RETRY_NS / S)


def _lab(name: str | None) -> FleetTarget:
    from syntony.lab.client import open_lab

    lab = open_lab(name)
    if not lab.file().agents:
        raise UsageError(f"lab {lab.name} was started with --no-agents: nothing measures there")
    patience_ns = max(0, STARTING_NS - lab.status().age_ns)
    return FleetTarget(f"unix:{lab.controller_socket}", None, patience_ns, lab.name)

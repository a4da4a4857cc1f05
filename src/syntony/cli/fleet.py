"""Finds the fleet that a command uses, a lab on this machine or a controller by address, and
queries it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from syntony.cli import contexts
from syntony.cli.output import json_option, messages
from syntony.errors import (
    RefusalError,
    RemoteError,
    SyntonyError,
    UnansweredError,
    UsageError,
)
from syntony.model import MS, S
from syntony.model.names import parse_endpoint
from syntony.model.tls_files import TlsFiles
from syntony.wire.query import A, Query
from syntony.wire.rest import is_question

if TYPE_CHECKING:
    from syntony.client import Access

STARTING_NS = 45 * S
"""A lab younger than this may not have measurements yet: on a slow machine, agents start within ten
seconds and clocks converge within ten more."""
_RETRY_NS = 250 * MS
_CONTROLLER_HELP = (
    "A controller: https://HOST:PORT of its API, HOST:PORT with a certificate, or unix:PATH."
)
_CONTROLLERS = "controller"
"""What the names of a lab's controllers begin with."""
CONTROLLER_VARIABLE, TOKEN_VARIABLE = "SYNTONY_CONTROLLER", "SYNTONY_TOKEN"
_WAITING = "syntony.cli.fleet.waiting"
"""Key in the context of a command that has said that it waits."""
_VARIABLES = ("SYNTONY_CA", "SYNTONY_CERT", "SYNTONY_KEY")
_API = ("https://", "http://")


class FleetTarget(NamedTuple):
    """The address of a controller: a gRPC target and, for remote ones, our certificate; or an API's
    URL."""

    address: str
    tls: TlsFiles | None
    startup_timeout_ns: int = 0
    """How long the fleet may still be starting."""
    lab: str | None = None
    """The lab's name, if it is a lab: only labs have known true clocks."""
    access: Access | None = None
    """What to authenticate with at the URL `address`; None: `address` is a gRPC target."""


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

    def named(*args: Any, target: Callable[[], FleetTarget], **kwargs: Any) -> Any:
        return command(*args, target=target(), **kwargs)

    return fleet_options_if_needed(wraps(command)(named))


def window_option(
    default: str, *, name: str = "window", text: str = "How far back to look."
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option for a length of time that ends now: ``--window`` and ``--since`` are the same. The
    one that is shown first, `name`, is the command's parameter."""
    other = {"window": "since", "since": "window"}[name]
    return click.option(f"--{name}", f"--{other}", name, default=default, metavar="TIME", help=text)


def fleet_options_if_needed(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that may do without a fleet: `target` is a function that finds it."""

    @click.option("--lab", metavar="NAME", help="A lab on this machine; the only one by default.")
    @click.option("--controller", metavar="HOST:PORT", help=_CONTROLLER_HELP)
    @certificate_options
    @json_option
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
        target = partial(fleet_target, lab, controller, (ca, cert, key))
        return command(*args, target=target, **kwargs)

    return wrapper


def fleet_target(
    lab: str | None, controller: str | None, tls: tuple[str | None, str | None, str | None]
) -> FleetTarget:
    """The controller that the options name.

    Args:
        lab: a lab's name; the only one if None and no controller is named.
        controller: ``HOST:PORT``, or ``unix:PATH`` of a controller's local socket.
        tls: files of the CA, our certificate and our key.

    Raises:
        UsageError: both, an address that is none, or a controller without a certificate.

    Without either, the controller comes from the environment (`CONTROLLER_VARIABLE`), then from the
    context in use (`syntony context use`), then it is the only lab.
    """
    if controller is None:
        controller = _named_first()
    if controller == "":
        raise UsageError("--controller is empty; give HOST:PORT, unix:PATH or https://HOST:PORT")
    if lab is not None:
        if controller is not None:
            raise UsageError("give --lab or --controller, not both")
        return _lab(lab)
    controller = controller or os.environ.get(CONTROLLER_VARIABLE)
    if controller is None:
        used = contexts.load().used()
        return _lab(None) if used is None else _api(used)
    if controller.startswith("unix:"):
        if controller == "unix:":
            raise UsageError("unix: needs the path of a controller's local socket")
        return FleetTarget(controller, None)
    ca, cert, key = (
        given or os.environ.get(name) for given, name in zip(tls, _VARIABLES, strict=True)
    )
    if controller.startswith(_API):
        url = controller.rstrip("/")
        known = contexts.load().of_url(url) or contexts.Context(url=url)
        token = os.environ.get(TOKEN_VARIABLE) or known.token
        ca, cert, key = ca or known.ca, cert or known.cert, key or known.key
        return _api(contexts.Context(url=url, token=token, ca=ca, cert=cert, key=key))
    parse_endpoint(controller)
    if not (ca and cert and key):
        raise UsageError(
            "--controller HOST:PORT needs --ca, --cert and --key; for the API write https://HOST:PORT"
        )
    return FleetTarget(controller, TlsFiles(ca=ca, cert=cert, key=key))


def _named_first() -> str | None:
    """The controller given before the command."""
    context = click.get_current_context(silent=True)
    found = context.find_root().params.get("controller") if context else None
    return found if isinstance(found, str) else None


def _api(context: contexts.Context) -> FleetTarget:
    if not (context.token or context.cert):
        raise UsageError(f"there is no token for {context.url}; run: syntony login {context.url}")
    return FleetTarget(context.url, None, access=context.access)


def ask(
    target: FleetTarget,
    query: Query[A],
    *,
    until: Callable[[A], bool] = lambda _: True,
    retry_refusal: bool = False,
    timeout_ns: int = 10 * S,
) -> A:
    """Send a query or an order to the controller and return its answer.

    While a lab is young, it is repeated if there is no answer, `until` is not yet true for it, or
    a query is refused, which may be because nothing has been measured yet. An order that the
    controller refuses is not repeated, nor is one that it may have carried out.

    Args:
        retry_refusal: also repeat an order that is refused: what it names may still come.

    Raises:
        RemoteError: no answer, or a refusal.
    """
    deadline_ns = time.monotonic_ns() + target.startup_timeout_ns
    while True:
        late = time.monotonic_ns() >= deadline_ns
        try:
            answer = _ask_once(target, query, timeout_ns)
            if late or until(answer):
                return answer
        except RemoteError as error:
            ordered = not is_question(type(query))
            if ordered and isinstance(error, UnansweredError):
                raise UnansweredError(
                    f"{error}. The order may have been carried out: "
                    "`syntony changes` shows it; check before you repeat it"
                ) from error
            refused = ordered and isinstance(error, RefusalError)
            if crash := "" if isinstance(error, RefusalError) else _crash(target):
                raise RemoteError(f"{error}; {crash}") from error
            if late or (refused and not retry_refusal):
                raise
        _say_waiting()
        time.sleep(_RETRY_NS / S)


def _say_waiting() -> None:
    """Say once in a command, however often it asks, why there is no answer yet."""
    context = click.get_current_context(silent=True)
    said = {} if context is None else context.meta
    if not said.get(_WAITING):
        messages.print("the lab has just come up; waiting for what it measures")
        said[_WAITING] = True


def _crash(target: FleetTarget) -> str:
    """Why a lab's controllers do not stay up; empty: they do, or it is no lab."""
    if target.lab is None:
        return ""
    from syntony.lab.client import open_lab

    try:
        return "; ".join(open_lab(target.lab).crash_reports(_CONTROLLERS))
    except SyntonyError:  # the lab has ended
        return ""


def lab_hosts(target: FleetTarget) -> frozenset[str]:
    """All hosts of the lab, attached or not; none if it is no lab."""
    if target.lab is None:
        return frozenset()
    from syntony.lab.client import open_lab

    return frozenset(open_lab(target.lab).status().hosts)


def _ask_once(target: FleetTarget, query: Query[A], timeout_ns: int) -> A:
    try:
        if target.access is not None:
            from syntony.client import Client

            with Client(target.address, access=target.access, timeout_ns=timeout_ns) as client:
                return client.ask(query)
        from syntony.controller.client import ask as ask_once

        return ask_once(target.address, query, tls=target.tls, timeout_ns=timeout_ns)
    except OverflowError as error:
        raise UsageError("a number is too large; a message holds 64 bits") from error


def _lab(name: str | None) -> FleetTarget:
    from syntony.lab.client import open_lab
    from syntony.lab.state import running

    if name is None and not running():
        raise UsageError(
            "no controller is named and no lab is running; log in to a fleet: syntony login URL, "
            "give --controller, or start a lab: syntony lab up --detach"
        )
    lab = open_lab(name)
    if not lab.file().agents:
        raise UsageError(f"lab {lab.name} was started with --no-agents and measures nothing")
    startup_timeout_ns = max(0, STARTING_NS - lab.status().age_ns)
    return FleetTarget(f"unix:{lab.controller_socket}", None, startup_timeout_ns, lab.name)

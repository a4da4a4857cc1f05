"""Which fleet a command speaks to: a lab on this machine, or a controller by address."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click

from syntony.agent.config import TlsFiles
from syntony.errors import UsageError
from syntony.wire.messages import Answer, Query

_A = TypeVar("_A", bound=Answer)


class FleetTarget(NamedTuple):
    """Where to ask: a gRPC target and, for remote ones, our certificate."""

    address: str
    tls: TlsFiles | None


def fleet_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--lab``, ``--controller`` with its certificate, and ``--json``.

    The command gets `target` (a `FleetTarget`) and `as_json`.
    """

    @click.option("--lab", metavar="NAME", help="A lab on this machine; the only one by default.")
    @click.option("--controller", metavar="HOST:PORT", help="A controller; needs the certificate.")
    @click.option("--ca", type=click.Path(), help="CA certificate of the fleet, PEM.")
    @click.option("--cert", type=click.Path(), help="Our certificate, PEM.")
    @click.option("--key", type=click.Path(), help="Our private key, PEM.")
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
        if controller is None:
            target = _lab(lab)
        elif lab is not None:
            raise UsageError("give --lab or --controller, not both")
        elif not (ca and cert and key):
            raise UsageError("--controller needs --ca, --cert and --key: the fleet speaks TLS only")
        else:
            target = FleetTarget(controller, TlsFiles(ca=ca, cert=cert, key=key))
        return command(*args, target=target, **kwargs)

    return wrapper


def ask(target: FleetTarget, query: Query, kind: type[_A]) -> _A:
    """The controller's answer, which must be a `kind`.

    Raises:
        RemoteError: no answer, or one that says why not.
    """
    from syntony.controller.client import ask_for

    return ask_for(target.address, query, kind, tls=target.tls)


def _lab(name: str | None) -> FleetTarget:
    from syntony.lab.client import open_lab

    return FleetTarget(f"unix:{open_lab(name).controller_socket}", None)

"""Identifies the caller of a request by its certificate; the allow-list of requests as a table for
the docs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from syntony.errors import UsageError
from syntony.wire.control import Issuer
from syntony.wire.roles import Identity, Role
from syntony.wire.x509 import Certificate, read_certificate

LOCAL = "local"
"""Origin of requests over the local socket: the file system decides who may open it."""
_MAX_ISSUER = 200


class Caller(NamedTuple):
    """The sender of one request."""

    identity: Identity
    origin: str
    """Its address in gRPC's notation, or `LOCAL`."""
    certificate: Certificate | None = None
    """None: the request came over the local socket."""
    pem: bytes = b""
    """The certificate as it was presented."""
    via: str = ""
    """The gateway that forwarded it; empty: none."""

    def issuer(self, by: str) -> Issuer:
        """For the audit log. Raises `UsageError`: neither certificate nor command contains a
        name."""
        who = " ".join(f"{self.identity.name} {by}".split())[:_MAX_ISSUER]
        if not who:
            raise UsageError("an order needs the name of its issuer: --by NAME")
        return Issuer(who, self.origin)


def caller(context: Any) -> Caller:
    """The caller, from a call's TLS session. Raises `WireError`: an invalid certificate."""
    peer = str(context.peer())
    if peer.startswith("unix:"):
        return Caller(Identity(Role.OPERATOR, ""), LOCAL)
    auth: Mapping[str, list[bytes]] = context.auth_context()
    return presented((auth.get("x509_pem_cert") or [b""])[0], peer)


def presented(pem: bytes, peer: str, via: str = "") -> Caller:
    """The owner of a presented certificate. Raises `WireError`: it is invalid."""
    certificate = read_certificate(pem)
    return Caller(certificate.identity, peer, certificate, pem, via)

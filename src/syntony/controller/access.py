"""Who makes a request, from the certificate; and who may make which, as a table for the docs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from syntony.controller.dispatch import QUESTIONS
from syntony.errors import UsageError
from syntony.wire.control import Issuer
from syntony.wire.roles import Identity, Role
from syntony.wire.x509 import Certificate, read_certificate

LOCAL = "local"
"""Origin of what came over the local socket: who may open it is the file system's matter."""
_MAX_ISSUER = 200


class Caller(NamedTuple):
    """The other end of one request."""

    identity: Identity
    origin: str
    """Its address as gRPC words it, or `LOCAL`."""
    certificate: Certificate | None = None
    """None: it came over the local socket."""
    pem: bytes = b""
    """The same as it was shown."""
    via: str = ""
    """The gateway that has passed it on; empty: none."""

    def issuer(self, by: str) -> Issuer:
        """For the audit log. Raises `UsageError`: neither certificate nor command names anybody."""
        who = " ".join(f"{self.identity.name} {by}".split())[:_MAX_ISSUER]
        if not who:
            raise UsageError("an order needs the name of who gives it: --by NAME")
        return Issuer(who, self.origin)


def caller(context: Any) -> Caller:
    """Who asks, from a call's TLS session. Raises `WireError`: an unusable certificate."""
    peer = str(context.peer())
    if peer.startswith("unix:"):
        return Caller(Identity(Role.OPERATOR, ""), LOCAL)
    auth: Mapping[str, list[bytes]] = context.auth_context()
    return presented((auth.get("x509_pem_cert") or [b""])[0], peer)


def presented(pem: bytes, peer: str, via: str = "") -> Caller:
    """Who has shown a certificate. Raises `WireError`: it is unusable."""
    certificate = read_certificate(pem)
    return Caller(certificate.identity, peer, certificate, pem, via)


def allow_list() -> str:
    """The allow-list as a Markdown table, for the docs."""
    lines = ["| Request | " + " | ".join(Role) + " |", "| --- |" + " --- |" * len(Role)]
    attach = ["yes" if role is Role.AGENT else "" for role in Role]
    lines.append("| attach, as the certificate's host | " + " | ".join(attach) + " |")
    relay = ["yes" if role is Role.GATEWAY else "" for role in Role]
    lines.append("| relay agents and their requests, as a gateway | " + " | ".join(relay) + " |")
    lines.append("| join, with a token and no certificate |" + "  |" * len(Role))
    for name, roles in sorted((q.__name__, known.roles) for q, known in QUESTIONS.items()):
        cells = ["yes" if role in roles else "" for role in Role]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"

"""Roles of a fleet's certificates: a URI in the subject alternative name, ``syntony://ROLE/NAME``."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from syntony.errors import WireError
from syntony.model.names import is_name

_SCHEME = "syntony://"


class Role(enum.StrEnum):
    """Role of the holder of a certificate."""

    AGENT = "agent"
    """Attaches as the host that the certificate names."""
    CONTROLLER = "controller"
    """Serves agents and operators; gives no orders to other controllers."""
    GATEWAY = "gateway"
    """Accepts and authenticates agents on behalf of a controller."""
    OPERATOR = "operator"
    """May read, and give orders."""
    VIEWER = "viewer"
    """May read."""
    SCRAPER = "scraper"
    """May only fetch ``/metrics``."""


class Identity(NamedTuple):
    """The identity in a certificate."""

    role: Role
    name: str

    @property
    def uri(self) -> str:
        """The URI in the certificate."""
        return f"{_SCHEME}{self.role}/{self.name}"


def identity(common_name: str, uris: Iterable[str]) -> Identity:
    """Read the identity from a certificate's names. Raises `WireError`: no role, several roles, an
    unknown role, or a name other than the common name."""
    ours = [uri for uri in uris if uri.startswith(_SCHEME)]
    if not ours:
        raise WireError(
            f"the certificate of {common_name[:80]!r} has no role: it needs the URI "
            f"{_SCHEME}ROLE/NAME as a subject alternative name"
        )
    role, _, name = ours[0].removeprefix(_SCHEME).partition("/")
    known = role in set(Role) and is_name(name)
    if len(ours) > 1 or not known or name != common_name:
        reported = ", ".join(ours)[:200]
        raise WireError(
            f"the certificate of {common_name[:80]!r} has no single valid role: {reported}"
        )
    return Identity(Role(role), name)

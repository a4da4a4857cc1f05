"""Requests to make, list and revoke tokens of the HTTP API."""

from __future__ import annotations

import msgspec

from syntony.wire.query import Query


class AccessTokenCommand(Query["AccessTokenMade"], frozen=True, kw_only=True, tag="access-token"):
    """Make a token for the HTTP API."""

    role: str
    """``viewer`` or ``operator``."""
    name: str
    """Name of its user, a person or program, for the audit log."""
    valid_ns: int
    """Validity from now."""
    once: bool = False
    """Whether it is only for one browser's session."""
    by: str
    comment: str = ""


class AccessTokenMade(msgspec.Struct, frozen=True, kw_only=True, tag="access-token"):
    """The token: shown once, stored as a digest."""

    token: str
    number: int
    """Number of the token, for the list and for its revocation."""
    expires_ns: int
    """Civil time."""


class AccessTokensQuery(Query["AccessTokens"], frozen=True, kw_only=True, tag="access-tokens"):
    """Tokens of the HTTP API and the browsers' sessions made with them."""


class AccessTokenView(msgspec.Struct, frozen=True, kw_only=True):
    """One token or session; instants are civil time, 0: it did not happen."""

    number: int
    kind: str
    """``token``, ``login`` (good for one session) or ``session``."""
    role: str
    name: str
    issuer: str
    """Who made it; for a session, the client's address."""
    made_ns: int
    expires_ns: int
    used_ns: int
    """For a ``login``: start of its session."""
    revoked_ns: int


class AccessTokens(msgspec.Struct, frozen=True, kw_only=True, tag="access-tokens"):
    now_ns: int
    """Civil time of the controller."""
    tokens: tuple[AccessTokenView, ...]


class RevokeAccessCommand(Query["AccessRevoked"], frozen=True, kw_only=True, tag="revoke-access"):
    """Refuse a token and every session that was made with it, or one session, from now on."""

    number: int
    by: str
    comment: str = ""


class AccessRevoked(msgspec.Struct, frozen=True, kw_only=True, tag="access-revoked"):
    numbers: tuple[int, ...]
    """The token, and its sessions that were still valid."""

"""Tokens and browser sessions of the HTTP API. Some methods wait for the disk; thread-safe.

Tokens have 256 random bits; only their SHA-256 is stored. Each request is checked in memory.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import NamedTuple

from syntony.errors import UsageError
from syntony.model import DAY_NS, HOUR_NS, S
from syntony.model.names import is_name
from syntony.state import ControlState
from syntony.state.access_tokens import AccessTokenStore, ApiSecret, SecretKind
from syntony.wire.access_tokens import (
    AccessRevoked,
    AccessTokenCommand,
    AccessTokenMade,
    AccessTokens,
    RevokeAccessCommand,
)
from syntony.wire.control import Issuer
from syntony.wire.gateways import AccessNews
from syntony.wire.roles import Identity, Role

TOKEN_BYTES = 32
ROLES = (Role.VIEWER, Role.OPERATOR)
MAX_TOKEN_NS = 366 * DAY_NS
MAX_LOGIN_NS = DAY_NS
"""Validity of a token for one session, which is used soon."""
SESSION_NS = 12 * HOUR_NS
"""A working day; a session never outlives a token that is valid for several."""
_TOKEN, _SESSION = "syntony-api-", "syntony-session-"


class BrowserSession(NamedTuple):
    secret: str
    access: ApiSecret


class AccessLookup:
    """Tokens and sessions by digest, from any source.

    Args:
        known: existing ones.
        civil_now: ns since 1970, UTC.
    """

    def __init__(self, known: dict[str, ApiSecret], civil_now: Callable[[], int]) -> None:
        self._known = known
        self._now = civil_now

    def find(self, secret: str) -> ApiSecret:
        """The token or session of a secret. Does not block.

        Raises:
            UsageError: unknown, expired, revoked or used; the message says what to do.
        """
        access = self._known.get(_digest(secret))
        if access is None:
            raise UsageError("the token is not known here; make one: syntony enrol api token")
        what = "session" if access.kind == SecretKind.SESSION else "token"
        again = "make a new one (syntony enrol api token) or log in again (syntony login --sso)"
        todo = "log in again" if what == "session" else again
        if access.revoked_ns:
            raise UsageError(f"the {what} has been revoked; {todo}")
        if access.expires_ns <= self._now():
            raise UsageError(f"the {what} has expired; {todo}")
        if access.kind == SecretKind.LOGIN and access.used_ns:
            raise UsageError("the login token has been used; each is good for one session")
        return access

    def is_valid(self, access: ApiSecret) -> bool:
        """Whether it is still valid. Does not block."""
        known = self._known.get(access.digest)
        return known is not None and not known.revoked_ns and known.expires_ns > self._now()


class ReplicatedAccess(AccessLookup):
    """Tokens and sessions as last received from a leader; a gateway without a leader keeps using
    them."""

    def __init__(self, civil_now: Callable[[], int]) -> None:
        super().__init__({}, civil_now)

    def take(self, message: AccessNews) -> None:
        """Called on the gateway's event loop; others read meanwhile."""
        known = {} if message.first else dict(self._known)
        for digest in message.gone:
            known.pop(digest, None)
        for each in message.known:
            known[each.digest] = ApiSecret(
                each.digest, each.number, each.kind, each.parent, each.role, each.name, "", 0,
                each.expires_ns,
            )  # fmt: skip
        self._known = known


class AccessControl(AccessLookup):
    """Issues, checks and revokes tokens and browser sessions of the HTTP API.

    One per controller.

    Args:
        state: control state.
        civil_now: ns since 1970, UTC.

    Raises:
        StateError: tokens cannot be read.
    """

    def __init__(self, state: ControlState, civil_now: Callable[[], int]) -> None:
        self._store = AccessTokenStore(state)
        super().__init__(self._store.load(), civil_now)

    def live(self) -> dict[str, ApiSecret]:
        """By digest, those that are valid now and used for requests. Does not block."""
        return {
            digest: access
            for digest, access in self._known.items()
            if access.kind != SecretKind.LOGIN and self.is_valid(access)
        }

    def make(self, command: AccessTokenCommand, issuer: Issuer, at_ns: int) -> AccessTokenMade:
        """Make a token. Blocks.

        Raises:
            UsageError: the command is invalid, or there are too many.
            StateError: it is not recorded.
        """
        _check(command)
        secret = _TOKEN + secrets.token_hex(TOKEN_BYTES)
        kind = SecretKind.LOGIN if command.once else SecretKind.TOKEN
        token = self._new(secret, kind, command.role, command.name, command.valid_ns)
        stored = self._store.add(
            token._replace(issuer=issuer.who), issuer=issuer, at_ns=at_ns, comment=command.comment
        )
        self.refresh()
        return AccessTokenMade(token=secret, number=stored.number, expires_ns=stored.expires_ns)

    def admit_first(self, digest: str, name: str) -> None:
        """Store the login token with which a controller was started, unless it is known. Blocks.
        Raises `StateError`."""
        token = self._new("", SecretKind.LOGIN, Role.OPERATOR, name, MAX_LOGIN_NS)
        issuer = Issuer(name, "configuration")
        self._store.add(
            token._replace(digest=digest, issuer=name), issuer=issuer, at_ns=self._now(), comment=""
        )
        self.refresh()

    def begin_session(self, secret: str, origin: str, at_ns: int) -> BrowserSession:
        """Exchange a token for a session. Blocks.

        Raises:
            UsageError: the token is not valid.
            StateError: it is not recorded.
        """
        token = self.find(secret)
        if token.kind == SecretKind.SESSION:
            raise UsageError("a session makes no sessions; give a token")
        secret, session = self._new_session(token.role, token.name)
        once = token.kind == SecretKind.LOGIN
        if not once:
            session = session._replace(expires_ns=min(session.expires_ns, token.expires_ns))
        stored = self._store.begin_session(
            session._replace(parent=token.number, issuer=origin),
            issuer=Issuer(token.name, origin), at_ns=at_ns, once=once,
        )  # fmt: skip
        self.refresh()
        return BrowserSession(secret, stored)

    def begin_person_session(
        self, who: Identity, origin: str, at_ns: int, comment: str
    ) -> BrowserSession:
        """Begin a session of a person whom an identity provider authenticated. Blocks.

        Args:
            comment: for the audit log: the name from the provider.

        Raises:
            UsageError: there are too many.
            StateError: it is not recorded.
        """
        secret, session = self._new_session(who.role, who.name)
        stored = self._store.begin_person_session(
            session._replace(issuer=origin), issuer=Issuer(who.name, origin), at_ns=at_ns,
            comment=comment,
        )  # fmt: skip
        self.refresh()
        return BrowserSession(secret, stored)

    def revoke(self, command: RevokeAccessCommand, issuer: Issuer, at_ns: int) -> AccessRevoked:
        """Refuse a token and its sessions from now on. Blocks. Raises `UsageError`,
        `StateError`."""
        numbers = self._store.revoke(
            command.number, issuer=issuer, at_ns=at_ns, now_ns=self._now(), comment=command.comment
        )
        self.refresh()
        return AccessRevoked(numbers=numbers)

    def listing(self) -> AccessTokens:
        """All that are stored. Blocks. Raises `StateError`."""
        self.refresh()
        tokens = tuple(each.view() for each in self._known.values())
        return AccessTokens(now_ns=self._now(), tokens=tokens)

    def refresh(self) -> None:
        """Read changes by other controllers with the same control state. Blocks. Raises
        `StateError`."""
        self._known = self._store.load()

    def _new_session(self, role: str, name: str) -> tuple[str, ApiSecret]:
        secret = _SESSION + secrets.token_hex(TOKEN_BYTES)
        return secret, self._new(secret, SecretKind.SESSION, role, name, SESSION_NS)

    def _new(self, secret: str, kind: SecretKind, role: str, name: str, valid_ns: int) -> ApiSecret:
        now_ns = self._now()
        return ApiSecret(_digest(secret), 0, kind, 0, role, name, "", now_ns, now_ns + valid_ns)


def csrf_token(session_secret: str) -> str:
    """The header value that a session's modifying requests need. It does not reveal the secret,
    which scripts of the page never see."""
    return hashlib.sha256(f"csrf {session_secret}".encode()).hexdigest()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _check(command: AccessTokenCommand) -> None:
    if command.role not in ROLES:
        raise UsageError(f"{command.role!r} cannot use the API; roles: {', '.join(ROLES)}")
    if not is_name(command.name):
        raise UsageError(f"{command.name!r} cannot be a name")
    most_ns = MAX_LOGIN_NS if command.once else MAX_TOKEN_NS
    if not S <= command.valid_ns <= most_ns:
        raise UsageError(f"a token like this is valid for 1 s to {most_ns // HOUR_NS} h")

"""Tokens of the HTTP API and sessions made with them, by digest. Instants are civil time."""

from __future__ import annotations

import enum
from typing import NamedTuple

from syntony.errors import UsageError
from syntony.model import DAY_NS
from syntony.state.control import ControlState, log_change
from syntony.state.database import DatabaseConnection, take_number
from syntony.wire.access_tokens import AccessTokenView
from syntony.wire.control import Issuer

MAX_LIVE = 10_000
"""Most tokens and sessions valid at one time: a loop of logins must not fill the disk."""
MAX_SESSIONS = 64
"""Most sessions of one token or person; one more ends the oldest."""
KEEP_NS = 30 * DAY_NS
"""How long they are listed after they expire."""
_COLUMNS = (
    "digest, number, kind, parent, role, name, issuer, made_ns, expires_ns, used_ns, revoked_ns"
)


class SecretKind(enum.StrEnum):
    """What a secret may be used for."""

    TOKEN = "token"  # noqa: S105 - a kind
    LOGIN = "login"
    """To begin one session, once."""
    SESSION = "session"


class ApiSecret(NamedTuple):
    """A token or session; see `AccessTokenView` for what the fields mean."""

    digest: str
    number: int
    kind: str
    parent: int
    """Number of the token that a session was made with; 0: a token, or the session of a person whom
    an identity provider vouched for."""
    role: str
    name: str
    issuer: str
    made_ns: int
    expires_ns: int
    used_ns: int = 0
    revoked_ns: int = 0

    def view(self) -> AccessTokenView:
        """The entry of the list."""
        values = self._asdict()
        return AccessTokenView(**{name: values[name] for name in AccessTokenView.__struct_fields__})


class AccessTokenStore:
    """Thread-safe."""

    def __init__(self, state: ControlState) -> None:
        self._state = state

    def load(self) -> dict[str, ApiSecret]:
        """All of them by digest, including revoked ones. Raises `StateError`."""
        rows = self._state.read(f"SELECT {_COLUMNS} FROM access_token ORDER BY number")
        return {row[0]: ApiSecret(*row) for row in rows}

    def add(self, token: ApiSecret, *, issuer: Issuer, at_ns: int, comment: str) -> ApiSecret:
        """Store a token, with a new number. One with a known digest is left unchanged.

        Args:
            at_ns: fleet time, for the audit log.

        Raises:
            UsageError: there are `MAX_LIVE`.
            StateError: it is not recorded.
        """
        with self._state.transaction() as database:
            known = database.execute(
                f"SELECT {_COLUMNS} FROM access_token WHERE digest = ?", (token.digest,)
            ).fetchone()
            if known is not None:
                return ApiSecret(*known)
            kept = _insert(database, token)
            change = ("access token", "", f"{kept.number}: {kept.role} {kept.name}", comment)
            log_change(database, at_ns, issuer, change)
        return kept

    def begin_session(
        self, session: ApiSecret, *, issuer: Issuer, at_ns: int, once: bool
    ) -> ApiSecret:
        """Store a session of the token whose number is its parent.

        Args:
            once: the token is valid for one session only.

        Raises:
            UsageError: it has been used or revoked meanwhile, or there are `MAX_LIVE`.
            StateError: it is not recorded.
        """
        with self._state.transaction() as database:
            used = " AND used_ns = 0" if once else ""
            marked = database.execute(
                "UPDATE access_token SET used_ns = ? WHERE number = ? AND revoked_ns = 0" + used,
                (session.made_ns, session.parent),
            )
            if marked.rowcount != 1:
                raise UsageError("the token has been used or revoked; ask for a new one")
            return _keep_session(database, session, issuer, at_ns, "")

    def begin_person_session(
        self, session: ApiSecret, *, issuer: Issuer, at_ns: int, comment: str
    ) -> ApiSecret:
        """Store a session of a person who logged in at an identity provider; its parent is 0.

        Raises:
            UsageError: there are `MAX_LIVE`.
            StateError: it is not recorded.
        """
        with self._state.transaction() as database:
            return _keep_session(database, session, issuer, at_ns, comment)

    def revoke(
        self, number: int, *, issuer: Issuer, at_ns: int, now_ns: int, comment: str
    ) -> tuple[int, ...]:
        """Revoke a token and its sessions; returns their numbers.

        Raises:
            UsageError: there is no such number.
            StateError: it is not recorded.
        """
        with self._state.transaction() as database:
            row = database.execute(
                "SELECT kind, role, name FROM access_token WHERE number = ?", (number,)
            ).fetchone()
            if row is None:
                raise UsageError(f"there is no access token {number}; see: syntony enrol api list")
            revoked = database.execute(
                "UPDATE access_token SET revoked_ns = ? WHERE (number = ? OR parent = ?) "
                "AND revoked_ns = 0 AND expires_ns > ? RETURNING number",
                (now_ns, number, number, now_ns),
            ).fetchall()
            kind, role, name = row
            what = "session" if kind == SecretKind.SESSION else "access token"
            log_change(database, at_ns, issuer, (what, f"{number}: {role} {name}", "", comment))
        return tuple(sorted(row[0] for row in revoked))


def _keep_session(
    database: DatabaseConnection, session: ApiSecret, issuer: Issuer, at_ns: int, comment: str
) -> ApiSecret:
    _end_oldest(database, session)
    kept = _insert(database, session)
    change = ("session", "", f"{kept.number}: {kept.role} {kept.name}", comment)
    log_change(database, at_ns, issuer, change)
    return kept


def _insert(database: DatabaseConnection, token: ApiSecret) -> ApiSecret:
    now_ns = token.made_ns
    database.execute("DELETE FROM access_token WHERE expires_ns <= ?", (now_ns - KEEP_NS,))
    database.execute(
        "DELETE FROM access_token WHERE kind = ? AND (expires_ns <= ? OR revoked_ns > 0)",
        (SecretKind.SESSION, now_ns),
    )
    (live,) = database.execute(
        "SELECT COUNT(*) FROM access_token WHERE expires_ns > ? AND revoked_ns = 0", (now_ns,)
    ).fetchone()
    if live >= MAX_LIVE:
        raise UsageError(f"{live} access tokens and sessions are good already; revoke some")
    kept = token._replace(number=take_number(database, "access token"))
    marks = ", ".join("?" * len(kept))
    database.execute(f"INSERT INTO access_token ({_COLUMNS}) VALUES ({marks})", tuple(kept))
    return kept


def _end_oldest(database: DatabaseConnection, session: ApiSecret) -> None:
    """Make room for one more session of its token, or of its person."""
    rows = database.execute(
        "SELECT number FROM access_token WHERE kind = ? AND parent = ? AND name = ? "
        "AND revoked_ns = 0 AND expires_ns > ? ORDER BY number DESC",
        (session.kind, session.parent, session.name, session.made_ns),
    ).fetchall()
    for (number,) in rows[MAX_SESSIONS - 1 :]:
        database.execute(
            "UPDATE access_token SET revoked_ns = ? WHERE number = ?", (session.made_ns, number)
        )

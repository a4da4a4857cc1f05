"""Join tokens, issued certificates and revocations. Instants are civil time, as certificates' are.

A certificate that another authority of the fleet issued is recorded when it is first used, so that
it can be listed and revoked like any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from syntony.errors import UsageError
from syntony.model.names import did_you_mean
from syntony.state.control import ControlState, log_change
from syntony.state.database import DatabaseConnection
from syntony.wire.control import Issuer
from syntony.wire.enrol import CertificateView, Revocations, TokenView
from syntony.wire.roles import Identity

MAX_LIVE = 16
"""Certificates of one identity that may be valid at once: renewal needs two; a loop of requests
must not fill the disk."""
MAX_TOKENS = 10_000
"""Join tokens that can still be used."""
_SERIAL = re.compile("[0-9a-f]{24,40}")
"""A serial number: X.509 allows 20 bytes, authorities use 12 at least."""
KEEP_NS = 30 * 86_400 * 1_000_000_000
"""How long certificates are listed after they expire; revoked ones are always listed."""


class Token(NamedTuple):
    """The rights of a join token."""

    role: str
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    lifetime_ns: int
    expires_ns: int
    issuer: str


class Record(NamedTuple):
    """A certificate to store."""

    identity: Identity
    serial: str
    issued_ns: int
    expires_ns: int
    origin: str


class IdentityStore:
    """Thread-safe."""

    def __init__(self, state: ControlState) -> None:
        self._state = state

    def add_token(
        self, digest: str, token: Token, *, issuer: Issuer, at_ns: int, now_ns: int, comment: str
    ) -> None:
        """Store a token's digest.

        Args:
            at_ns: fleet time, for the audit log.
            now_ns: civil time.

        Raises:
            UsageError: there are `MAX_TOKENS` unused ones.
            StateError: it is not recorded.
        """
        with self._state.transaction() as database:
            database.execute(
                "DELETE FROM join_token WHERE used_ns > 0 OR expires_ns <= ?", (now_ns,)
            )
            (waiting,) = database.execute("SELECT COUNT(*) FROM join_token").fetchone()
            if waiting >= MAX_TOKENS:
                raise UsageError(f"{waiting} join tokens wait already; use them or let them expire")
            database.execute(
                "INSERT INTO join_token (digest, role, names, addresses, lifetime_ns, expires_ns, "
                "issuer) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    digest, token.role, " ".join(token.names), " ".join(token.addresses),
                    token.lifetime_ns, token.expires_ns, token.issuer,
                ),
            )  # fmt: skip
            names = ", ".join(token.names)
            change = ("join token", "", f"{token.role} {names}", comment)
            log_change(database, at_ns, issuer, change)

    def token(self, digest: str, now_ns: int) -> Token:
        """The token with a digest.

        Raises:
            UsageError: there is none, it was used, or it has expired.
            StateError: it cannot be read.
        """
        row = next(
            iter(
                self._state.read(
                    "SELECT role, names, addresses, lifetime_ns, expires_ns, issuer, used_ns "
                    "FROM join_token WHERE digest = ?",
                    digest,
                )
            ),
            None,
        )
        if row is None:
            raise UsageError("the join token is not known here; ask for a new one")
        if row[6]:
            raise UsageError("the join token has been used; each is good for one certificate")
        if row[4] <= now_ns:
            raise UsageError("the join token has expired; ask for a new one")
        return Token(row[0], _words(row[1]), _words(row[2]), row[3], row[4], row[5])

    def redeem(
        self, digest: str, record: Record, *, issuer: Issuer, at_ns: int, now_ns: int
    ) -> None:
        """Mark a token as used and store its certificate, in one transaction.

        Raises:
            UsageError: the token has been used, or the identity has `MAX_LIVE` certificates.
            StateError: it is not recorded; the certificate must not be handed out.
        """
        with self._state.transaction() as database:
            used = database.execute(
                "UPDATE join_token SET used_ns = ? WHERE digest = ? AND used_ns = 0",
                (now_ns, digest),
            )
            if used.rowcount != 1:
                raise UsageError("the join token has been used; each is good for one certificate")
            self._keep(database, record, now_ns)
            role, name = record.identity
            change = ("certificate", "", f"{role} {name} serial {record.serial}", "joined")
            log_change(database, at_ns, issuer, change)

    def renew(self, record: Record, presented: str, now_ns: int) -> None:
        """Store a renewed certificate of the same identity.

        Args:
            presented: serial number of the certificate that it replaces.

        Raises:
            UsageError: that one has been revoked, or the identity has `MAX_LIVE` certificates.
            StateError: it is not recorded; the certificate must not be handed out.
        """
        with self._state.transaction() as database:
            known = database.execute(
                "SELECT revoked_ns FROM certificate WHERE serial = ?", (presented,)
            ).fetchone()
            revoked = (
                known
                if known is not None
                else database.execute(
                    "SELECT at_ns FROM revoked_name WHERE name = ?", (record.identity.name,)
                ).fetchone()
            )
            if revoked is not None and revoked[0]:
                raise UsageError(f"the certificate of {record.identity.name!r} has been revoked")
            self._keep(database, record, now_ns)

    def record_use(self, seen: Mapping[Record, int]) -> None:
        """Record last uses. Unknown certificates are added, as revoked if their name has been
        revoked meanwhile. Raises `StateError`."""
        with self._state.transaction() as database:
            for r, at_ns in seen.items():
                database.execute(
                    "INSERT INTO certificate (serial, role, name, issued_ns, expires_ns, origin, "
                    "seen_ns, revoked_ns) VALUES (?, ?, ?, ?, ?, ?, ?, "
                    "COALESCE((SELECT at_ns FROM revoked_name WHERE name = ?), 0)) "
                    "ON CONFLICT (serial) DO UPDATE SET "
                    "seen_ns = CASE WHEN excluded.seen_ns > certificate.seen_ns "
                    "THEN excluded.seen_ns ELSE certificate.seen_ns END",
                    (r.serial, *r.identity, r.issued_ns, r.expires_ns, r.origin, at_ns,
                     r.identity.name),
                )  # fmt: skip

    def revoke(
        self, what: str, *, issuer: Issuer, at_ns: int, now_ns: int, comment: str, unseen: bool
    ) -> tuple[str, ...]:
        """Revoke the certificate with this serial number, or every certificate of this name.

        Returns:
            The serial numbers newly revoked by this call.

        Raises:
            StateError: it is not recorded; nothing is revoked.
            UsageError: no such certificate is known, and not `unseen`; nothing is revoked.
        """
        with self._state.transaction() as database:
            column, value = _serial_or_name(database, what)
            if not unseen:
                _must_be_known(database, column, value)
            if column == "serial":
                # Issued elsewhere and never seen: kept by its number alone.
                database.execute(
                    "INSERT INTO certificate (serial, role, name, issued_ns, expires_ns, origin) "
                    "VALUES (?, '', '', 0, 0, 'elsewhere') ON CONFLICT (serial) DO NOTHING",
                    (value,),
                )
            else:
                database.execute(
                    "INSERT INTO revoked_name (name, at_ns) VALUES (?, ?) "
                    "ON CONFLICT (name) DO UPDATE SET at_ns = excluded.at_ns",
                    (value, now_ns),
                )
            revoked = database.execute(
                f"UPDATE certificate SET revoked_ns = ? WHERE {column} = ? AND revoked_ns = 0 "
                "RETURNING serial",
                (now_ns, value),
            ).fetchall()
            change = (f"certificates of {column} {value}", "valid", "revoked", comment)
            log_change(database, at_ns, issuer, change)
        return tuple(sorted(row[0] for row in revoked))

    def revocations(self, now_ns: int) -> Revocations:
        """Serial numbers and names to refuse, without expired certificates.
        Raises `StateError`."""
        names = frozenset(row[0] for row in self._state.read("SELECT name FROM revoked_name"))
        rows = self._state.read(
            "SELECT serial, revoked_ns FROM certificate WHERE (expires_ns > ? OR expires_ns = 0) "
            "AND (revoked_ns > 0 OR name IN (SELECT name FROM revoked_name))",
            now_ns,
        )
        return Revocations(
            serials=frozenset(serial for serial, revoked_ns in rows if revoked_ns),
            names=names,
            known=frozenset(serial for serial, revoked_ns in rows if not revoked_ns),
        )

    def removed(self) -> frozenset[str]:
        """Names that are revoked and have not joined again. Raises `StateError`."""
        rows = self._state.read(
            "SELECT name FROM revoked_name "
            "WHERE name NOT IN (SELECT name FROM certificate WHERE revoked_ns = 0)"
        )
        return frozenset(row[0] for row in rows)

    def certificates(self) -> tuple[CertificateView, ...]:
        """All known certificates, sorted by name. Raises `StateError`."""
        rows = self._state.read(
            "SELECT name, role, serial, issued_ns, expires_ns, revoked_ns, seen_ns, origin "
            "FROM certificate ORDER BY name, issued_ns, serial"
        )
        return tuple(
            CertificateView(
                name=row[0], role=row[1], serial=row[2], issued_ns=row[3], expires_ns=row[4],
                revoked_ns=row[5], seen_ns=row[6], origin=row[7],
            )
            for row in rows
        )  # fmt: skip

    def tokens(self, now_ns: int) -> tuple[TokenView, ...]:
        """Join tokens that can still be used. Raises `StateError`."""
        rows = self._state.read(
            "SELECT role, names, expires_ns, issuer FROM join_token "
            "WHERE used_ns = 0 AND expires_ns > ? ORDER BY expires_ns",
            now_ns,
        )
        return tuple(
            TokenView(role=row[0], names=_words(row[1]), expires_ns=row[2], issuer=row[3])
            for row in rows
        )

    def _keep(self, database: DatabaseConnection, record: Record, now_ns: int) -> None:
        role, name = record.identity
        # What is revoked stays: the clock that says it has expired may be a year ahead.
        database.execute(
            "DELETE FROM certificate WHERE expires_ns > 0 AND expires_ns <= ? AND revoked_ns = 0",
            (now_ns - KEEP_NS,),
        )
        (live,) = database.execute(
            "SELECT COUNT(*) FROM certificate WHERE role = ? AND name = ? AND revoked_ns = 0 "
            "AND expires_ns > ?",
            (role, name, now_ns),
        ).fetchone()
        if live >= MAX_LIVE:
            raise UsageError(
                f"{role} {name} has {live} certificates that are valid; revoke some, or wait until "
                "they expire"
            )
        database.execute(
            "INSERT INTO certificate (serial, role, name, issued_ns, expires_ns, origin) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (record.serial, role, name, record.issued_ns, record.expires_ns, record.origin),
        )


def _serial_or_name(database: DatabaseConnection, what: str) -> tuple[str, str]:
    """Whether `what` is a ``serial`` number or a ``name``, and its normal form."""
    serial = what.lower()
    for column, value in (("serial", serial), ("name", what)):
        sql = f"SELECT 1 FROM certificate WHERE {column} = ?"
        if database.execute(sql, (value,)).fetchone() is not None:
            return column, value
    return ("serial", serial) if _SERIAL.fullmatch(serial) else ("name", what)


def _must_be_known(database: DatabaseConnection, column: str, value: str) -> None:
    """Raises `UsageError`: no certificate has this ``serial`` number, or ``name``."""
    known = {row[0] for row in database.execute(f"SELECT {column} FROM certificate").fetchall()}
    if value not in known:
        raise UsageError(
            f"no certificate of {value!r} is known{did_you_mean(value, known)}; `syntony enrol "
            "list --all` lists those that are; --unseen revokes one that was never used here"
        )


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())

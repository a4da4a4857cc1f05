"""Join tokens, certificates and their revocation; part of `syntony.wire.messages`."""

from __future__ import annotations

import msgspec

from syntony.wire.query import Query

JOIN = "/syntony.Enrolment/Join"
"""Method of the enrolment port: `JoinRequest` up, `Issued` or `Failure` down."""
MAX_REQUEST_BYTES = 8 << 10
"""Of a certificate signing request; one for P-256 takes 0.5 KB."""
MAX_JOIN_BYTES = 2 * MAX_REQUEST_BYTES
MAX_NAMES = 64
"""Names or addresses of one token."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True, tag="join"):
    """A new member's request for its first certificate."""

    token: str
    csr: bytes
    """PEM, PKCS #10; its common name is the requested name."""


class AuthorityQuery(msgspec.Struct, frozen=True, kw_only=True, tag="authority"):
    """The CA's certificate, for a new member that has its fingerprint only."""


class Issued(msgspec.Struct, frozen=True, kw_only=True, tag="issued"):
    """A certificate, PEM; empty in the answer to `AuthorityQuery`."""

    certificate: bytes
    ca: bytes


class TokenCommand(Query["TokenMade"], frozen=True, kw_only=True, tag="token"):
    """Make a join token for one certificate."""

    role: str
    names: tuple[str, ...]
    """Names it may be used for; ``*`` and ``?`` stand for other characters."""
    addresses: tuple[str, ...] = ()
    """IP addresses and DNS names of the certificate."""
    valid_ns: int
    """Validity of the token from now."""
    lifetime_ns: int = 0
    """Lifetime of certificates, also of renewed ones; 0: as configured at the controller."""
    by: str
    comment: str = ""


class TokenMade(msgspec.Struct, frozen=True, kw_only=True, tag="token"):
    """The token: shown once, stored as a digest."""

    token: str
    expires_ns: int
    """Civil time."""
    fingerprint: str
    """SHA-256 of the CA's certificate, hexadecimal."""


class IdentitiesQuery(Query["Identities"], frozen=True, kw_only=True, tag="identities"):
    """Certificates that were issued or used, and unused join tokens."""


class CertificateView(msgspec.Struct, frozen=True, kw_only=True):
    """One certificate; instants are civil time, 0: not known."""

    name: str
    role: str
    serial: str
    issued_ns: int
    expires_ns: int
    revoked_ns: int
    """0: it is not revoked."""
    seen_ns: int
    """The controller's time where its agent is attached; else the last use that it noted, at most
    a minute late."""
    origin: str
    """``join``, ``renewal``, or ``elsewhere``: issued elsewhere, and used here."""


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """One join token that can still be used."""

    role: str
    names: tuple[str, ...]
    expires_ns: int
    issuer: str


class Identities(msgspec.Struct, frozen=True, kw_only=True, tag="identities"):
    now_ns: int
    """Civil time of the controller."""
    certificates: tuple[CertificateView, ...]
    tokens: tuple[TokenView, ...]


class RevokeCommand(Query["Revoked"], frozen=True, kw_only=True, tag="revoke"):
    """Refuse certificates from now on, and close connections made with them."""

    what: str
    """A name: every certificate of it; or one certificate's serial number."""
    by: str
    comment: str = ""
    unseen: bool = False
    """Also revoke an unknown certificate: issued elsewhere, and never used here."""


class Revoked(msgspec.Struct, frozen=True, kw_only=True, tag="revoked"):
    serials: tuple[str, ...]
    """Known serial numbers of the revoked certificates."""


class Revocations(msgspec.Struct, frozen=True, kw_only=True, tag="revocations"):
    """Refused certificates; agents also apply the list to clients of their ``/metrics``."""

    serials: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    """Names that are revoked, including unknown certificates."""
    known: frozenset[str] = frozenset()
    """Serial numbers of these names that are accepted: issued after the revocation."""

    def covers(self, serial: str, name: str) -> bool:
        """Whether a certificate is revoked."""
        return serial in self.serials or (name in self.names and serial not in self.known)


class RenewQuery(Query["Issued"], frozen=True, kw_only=True, tag="renew"):
    """A new certificate for the identity, role and addresses of the one presented."""

    csr: bytes

"""Membership of the fleet: join tokens, certificates, revocation. Blocks on the disk; thread-safe.

The controller that has the CA's key issues certificates; one without it still refuses revoked ones.
Certificates and tokens use civil time, the audit log fleet time.
"""

from __future__ import annotations

import fnmatch
import hashlib
import secrets
import threading
from collections.abc import Callable, Container
from pathlib import Path

from msgspec import structs

from syntony.controller.access import LOCAL, Caller
from syntony.controller.config import MAX_LIFETIME_NS, MIN_LIFETIME_NS, EnrolmentConfig
from syntony.controller.pki import Authority, check_address, load_authority, read_request
from syntony.errors import StateError, UsageError
from syntony.model import DAY_NS, S
from syntony.model.names import is_name
from syntony.state.identities import IdentityStore, Record, Token
from syntony.wire.control import Issuer
from syntony.wire.enrol import (
    MAX_NAMES,
    Identities,
    Issued,
    JoinRequest,
    RenewQuery,
    Revocations,
    RevokeCommand,
    Revoked,
    TokenCommand,
    TokenMade,
)
from syntony.wire.roles import Identity, Role
from syntony.wire.x509 import Certificate, read_certificate

TOKEN_BYTES = 32
MAX_TOKEN_NS = 7 * DAY_NS
"""Maximum validity of a join token, which is used in an ongoing installation."""
_NOTE_INTERVAL_NS = 60 * S
"""A last use is recorded at this interval, not with every request."""


class Enrolment:
    """Issues join tokens and certificates, and revokes members.

    One per controller.

    Args:
        config: the place of the CA's key, the validity of certificates.
        identities: stores tokens, certificates and revocations.
        civil_now: ns since 1970, UTC.

    Raises:
        ConfigError: the CA cannot be used.
        StateError: revocations cannot be read.
    """

    def __init__(
        self, config: EnrolmentConfig, identities: IdentityStore, civil_now: Callable[[], int]
    ) -> None:
        self._lifetime_ns = config.lifetime_ns
        self._identities = identities
        self._now = civil_now
        self.authority: Authority | None = (
            load_authority(Path(config.authority)) if config.authority else None
        )
        self.revocations = identities.revocations(civil_now())
        """Revocations in force; replaced as a whole."""
        self.removed = identities.removed()
        """Names that were revoked and have not joined again."""
        self.refused: dict[str, str] = {}
        """Name → why its certificate was last refused, unless one was accepted since."""
        self.refusals = 0
        """Number of refused requests at the enrolment port."""
        self._uses: dict[Record, int] = {}
        self._noted: dict[str, int] = {}
        self._lock = threading.Lock()

    def admit(self, who: Caller) -> None:
        """Record that a certificate is in use. Does not block.

        Raises:
            UsageError: it has been revoked, or has expired since its connection was made.
        """
        certificate = who.certificate
        if certificate is None:
            return
        why = self.refusal(certificate)
        if why:
            self.refused[certificate.identity.name] = why
            raise UsageError(why)
        self.note(certificate)

    def note(self, certificate: Certificate) -> None:
        """Record that it is in use now. Does not block."""
        self.refused.pop(certificate.identity.name, None)
        now_ns = self._now()
        if now_ns - self._noted.get(certificate.serial, 0) >= _NOTE_INTERVAL_NS:
            self._noted[certificate.serial] = now_ns
            with self._lock:
                self._uses[_record(certificate, "elsewhere")] = now_ns

    def refusal(self, certificate: Certificate) -> str:
        """Why a certificate is refused now; empty: it is accepted. Does not block."""
        return refusal(certificate, self.revocations, self._now())

    def refresh(self) -> None:
        """Store last uses and read revocations, including those by another controller with the same
        control state. Raises `StateError`: what was not stored is stored next time."""
        now_ns = self._now()
        self._noted = {
            k: at for k, at in self._noted.items() if 0 <= now_ns - at < _NOTE_INTERVAL_NS
        }
        with self._lock:
            uses, self._uses = self._uses, {}
        try:
            if uses:
                self._identities.record_use(uses)
        except StateError:
            with self._lock:
                self._uses = uses | self._uses
            raise
        finally:  # a full database can still be read
            self._reload(now_ns)

    def _reload(self, now_ns: int) -> None:
        self.revocations = self._identities.revocations(now_ns)
        self.removed = self._identities.removed()

    def make_token(self, command: TokenCommand, issuer: Issuer, at_ns: int) -> TokenMade:
        """Make a join token; only its digest is stored.

        Raises:
            UsageError: this controller issues no certificates, or the command is invalid.
            StateError: it is not recorded.
        """
        authority, now_ns = self._issuing(), self._now()
        _check_token(command)
        token = f"syntony-{secrets.token_hex(TOKEN_BYTES)}"
        expires_ns = now_ns + command.valid_ns
        kept = Token(
            command.role, command.names, command.addresses,
            command.lifetime_ns or self._lifetime_ns, expires_ns, issuer.who,
        )  # fmt: skip
        self._identities.add_token(
            _digest(token), kept, issuer=issuer, at_ns=at_ns, now_ns=now_ns, comment=command.comment
        )
        return TokenMade(token=token, expires_ns=expires_ns, fingerprint=authority.fingerprint)

    def join(self, request: JoinRequest, origin: str, at_ns: int) -> Issued:
        """Exchange a token for a certificate.

        Raises:
            UsageError: the token or the signing request is invalid. The token stays valid, unless
                it has been used.
            StateError: it is not recorded.
        """
        authority, now_ns = self._issuing(), self._now()
        name, key = read_request(request.csr)
        digest = _digest(request.token)
        token = self._identities.token(digest, now_ns)
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in token.names):
            raise UsageError(f"the join token is for {', '.join(token.names)}, not for {name!r}")
        pem = authority.sign(
            key, Identity(Role(token.role), name), addresses=token.addresses,
            lifetime_ns=token.lifetime_ns,
        )  # fmt: skip
        record = _record(read_certificate(pem), "join")
        issuer = Issuer(f"join token of {token.issuer}", origin)
        self._identities.redeem(digest, record, issuer=issuer, at_ns=at_ns, now_ns=now_ns)
        self._reload(now_ns)
        return Issued(certificate=pem, ca=authority.pem)

    def renew(self, query: RenewQuery, who: Caller) -> Issued:
        """Issue a successor of the presented certificate: same name, role, addresses, lifetime.

        Raises:
            UsageError: there is no certificate to renew, or the signing request is invalid.
            StateError: it is not recorded.
        """
        presented = who.certificate
        if who.origin == LOCAL or presented is None:
            raise UsageError("a certificate is renewed by presenting it, not on the local socket")
        authority, now_ns = self._issuing(), self._now()
        name, key = read_request(query.csr)
        if name != presented.identity.name:
            raise UsageError(
                f"{presented.identity.name!r} cannot ask for a certificate of {name!r}"
            )
        pem = authority.sign(
            key,
            presented.identity,
            addresses=presented.addresses,
            lifetime_ns=max(MIN_LIFETIME_NS, presented.validity.lifetime_ns),
        )
        record = _record(read_certificate(pem), "renewal")
        self._identities.renew(record, presented.serial, now_ns)
        self._reload(now_ns)
        return Issued(certificate=pem, ca=authority.pem)

    def revoke(self, command: RevokeCommand, issuer: Issuer, at_ns: int) -> Revoked:
        """Refuse certificates from now on. Raises `UsageError`, `StateError`."""
        if not is_name(command.what):
            raise UsageError(f"{command.what!r} is neither a name nor a serial number")
        now_ns = self._now()
        with self._lock:
            uses, self._uses = self._uses, {}
        if uses:
            self._identities.record_use(uses)
        serials = self._identities.revoke(
            command.what, issuer=issuer, at_ns=at_ns, now_ns=now_ns, comment=command.comment,
            unseen=command.unseen,
        )  # fmt: skip
        self._reload(now_ns)
        return Revoked(serials=serials)

    def listing(self, attached: Container[str]) -> Identities:
        """Certificates and unused tokens. Raises `StateError`.

        Args:
            attached: serials in use at this moment, which count as used now.
        """
        self.refresh()
        now_ns = self._now()
        return Identities(
            now_ns=now_ns,
            certificates=tuple(
                structs.replace(each, seen_ns=now_ns) if each.serial in attached else each
                for each in self._identities.certificates()
            ),
            tokens=self._identities.tokens(now_ns),
        )

    def ca(self) -> bytes:
        """The CA's certificate, PEM. Raises `UsageError`: this controller issues none."""
        return self._issuing().pem

    def _issuing(self) -> Authority:
        if self.authority is None:
            raise UsageError(
                "this controller issues no certificates: set [enrolment] authority to the "
                "directory of the CA's certificate and key"
            )
        return self.authority


def refusal(certificate: Certificate, revocations: Revocations, civil_ns: int) -> str:
    """Why a certificate is refused; empty: it is accepted. `civil_ns`: ns since 1970, UTC."""
    name, serial = certificate.identity.name, certificate.serial
    if revocations.covers(serial, name):
        return f"the certificate of {name!r} with serial {serial} has been revoked"
    if certificate.validity.expires_ns <= civil_ns:
        return f"the certificate of {name!r} with serial {serial} has expired"
    return ""


def _check_token(command: TokenCommand) -> None:
    if command.role not in set(Role):
        raise UsageError(f"{command.role!r} is no role; roles: {', '.join(Role)}")
    if not 0 < len(command.names) <= MAX_NAMES or len(command.addresses) > MAX_NAMES:
        raise UsageError(f"a token is for 1 to {MAX_NAMES} names, {MAX_NAMES} addresses at most")
    for name in command.names:
        if not is_name(name.replace("*", "x").replace("?", "x")):
            raise UsageError(f"{name!r} cannot be a name; * and ? stand for other characters")
    for address in command.addresses:
        check_address(address)
    if not 1 * S <= command.valid_ns <= MAX_TOKEN_NS:
        raise UsageError("a join token is valid for 1 second to 7 days")
    if command.lifetime_ns and not MIN_LIFETIME_NS <= command.lifetime_ns <= MAX_LIFETIME_NS:
        raise UsageError("certificates live 10 seconds to 366 days")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _record(certificate: Certificate, origin: str) -> Record:
    validity = certificate.validity
    return Record(
        identity=certificate.identity,
        serial=certificate.serial,
        issued_ns=validity.expires_ns - validity.lifetime_ns,
        expires_ns=validity.expires_ns,
        origin=origin,
    )

"""A fleet whose members join with tokens, and the requests that they make.

Requests are made with `cryptography` directly, not with the code that agents use.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from syntony.controller.access import Caller
from syntony.controller.config import EnrolmentConfig
from syntony.controller.enrolment import Enrolment
from syntony.controller.pki import create_authority
from syntony.errors import UsageError
from syntony.model import HOUR_NS
from syntony.state import ControlState
from syntony.state.identities import IdentityStore
from syntony.wire.control import Issuer
from syntony.wire.enrol import Issued, JoinRequest, RevokeCommand, TokenCommand
from syntony.wire.roles import Identity, Role
from syntony.wire.x509 import civil_ns, read_certificate

ANN = Issuer("ann", "local")
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


class Fleet:
    """An enrolment with a clock that is set by hand, started at the real time.

    Args:
        directory: of the CA.
        where: of control state, a directory or a URL.
    """

    def __init__(self, directory: Path, where: Path | str) -> None:
        create_authority(directory / "ca")
        self.directory, self.where = directory, where
        self.now_ns = civil_ns(dt.datetime.now(dt.UTC))
        self.state = ControlState(where)
        self.identities = IdentityStore(self.state)
        self.enrolment = self.another()

    def another(self) -> Enrolment:
        """A second controller with the same control state."""
        config = EnrolmentConfig(authority=str(self.directory / "ca"), lifetime_ns=HOUR_NS)
        return Enrolment(config, self.identities, lambda: self.now_ns)

    def token(self, role: str = "agent", *names: str, **more: object) -> str:
        settings = {"valid_ns": HOUR_NS, "by": "ann"} | more
        command = TokenCommand(role=role, names=names or ("h1",), **settings)  # type: ignore[arg-type]
        return self.enrolment.make_token(command, ANN, 1).token

    def join(self, name: str = "h1", token: str | None = None) -> Caller:
        request = JoinRequest(token=token or self.token("agent", name), csr=csr(name))
        return shows(self.enrolment.join(request, "ipv4:1", 2))

    def revoke(self, what: str, *, unseen: bool = False) -> tuple[str, ...]:
        command = RevokeCommand(what=what, by="ann", unseen=unseen)
        return self.enrolment.revoke(command, ANN, 3).serials

    def accepted(self, who: Caller, enrolment: Enrolment | None = None) -> bool:
        try:
            (enrolment or self.enrolment).admit(who)
        except UsageError:
            return False
        return True


def shows(issued: Issued) -> Caller:
    """Anyone who presents this certificate."""
    certificate = read_certificate(issued.certificate)
    return Caller(certificate.identity, "ipv4:2", certificate)


def csr(name: str, key: Key | None = None, *, names: int = 1) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] * names)
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    # What an attacker would like to be given: none of it may reach the certificate.
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName("controller"), x509.UniformResourceIdentifier(
            "syntony://operator/root")]), critical=False)  # fmt: skip
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=3), critical=True)
    key = key or ec.generate_private_key(ec.SECP256R1())
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, digest).public_bytes(serialization.Encoding.PEM)


def forged(name: str) -> bytes:
    """A request for somebody else's key: signed with another one."""
    theirs, ours = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def der(key: ec.EllipticCurvePrivateKey) -> bytes:
        return key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    request = x509.load_pem_x509_csr(csr(name, ours)).public_bytes(serialization.Encoding.DER)
    assert der(ours) in request
    swapped = x509.load_der_x509_csr(request.replace(der(ours), der(theirs)))
    return swapped.public_bytes(serialization.Encoding.PEM)


def issued_elsewhere(fleet: Fleet, name: str) -> bytes:
    """With the CA's key, but not through this controller."""
    authority = create_authority(fleet.directory / "ca")
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return authority.sign(key, Identity(Role.AGENT, name), addresses=(), lifetime_ns=HOUR_NS)

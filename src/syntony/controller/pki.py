"""The fleet's certificate authority: EC P-256, one level, no intermediate authorities.

The common name of a certificate is the name of its holder: an agent's is its host's name.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from syntony.errors import ConfigError, UsageError
from syntony.input_files import MAX_SECRET_BYTES, read_bytes
from syntony.io.credentials import key_pem
from syntony.io.files import write_atomically
from syntony.model import US
from syntony.model.names import is_name
from syntony.model.tls_files import TlsFiles
from syntony.wire.enrol import MAX_REQUEST_BYTES
from syntony.wire.roles import Identity, Role
from syntony.wire.x509 import BACKDATE_NS

AUTHORITY_LIFETIME = dt.timedelta(days=3650)
_DNS_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_][A-Za-z0-9_-]*)*")
BACKDATE = dt.timedelta(microseconds=BACKDATE_NS // US)


PublicKey = ec.EllipticCurvePublicKey
MIN_KEY_BITS = 256


class Authority(NamedTuple):
    """A CA certificate and its key; issues certificates for the fleet."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def issue(
        self,
        name: str,
        role: Role,
        *,
        addresses: Sequence[str],
        lifetime_ns: int,
        directory: Path,
    ) -> TlsFiles:
        """Issue a certificate for `name` in one role.

        Args:
            name: the identity (common name); for an agent its host.
            role: what its holder may do (docs/reference/security.md).
            addresses: IP addresses and DNS names at which it is reached.
            lifetime_ns: from now; negative makes one that has expired already.
            directory: gets ``NAME.crt``, ``NAME.key`` (0600) and ``ca.crt``.

        Raises:
            UsageError: `name` is not a valid host name, or an address is none.
        """
        for address in addresses:
            check_address(address)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.sign(
            key.public_key(), Identity(role, name), addresses=addresses, lifetime_ns=lifetime_ns
        )
        directory.mkdir(parents=True, exist_ok=True)
        files = TlsFiles(
            ca=str(directory / "ca.crt"),
            cert=str(directory / f"{name}.crt"),
            key=str(directory / f"{name}.key"),
        )
        write_atomically(Path(files.ca), self.pem, 0o644)
        write_atomically(Path(files.cert), certificate, 0o644)
        write_atomically(Path(files.key), key_pem(key), 0o600)
        return files

    def sign(
        self, key: PublicKey, holder: Identity, *, addresses: Sequence[str], lifetime_ns: int
    ) -> bytes:
        """Sign a certificate, PEM, for the holder of `key`; arguments as for `issue`.

        Raises:
            UsageError: the name is not a valid host name.
        """
        if not is_name(holder.name):
            raise UsageError(f"{holder.name!r} cannot be a certificate's name; use a host's name")
        now = dt.datetime.now(dt.UTC)
        until = now + dt.timedelta(microseconds=lifetime_ns // US)
        certificate = (
            _builder(holder.name, self.certificate.subject, min(now, until) - BACKDATE, until)
            .public_key(key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(  # Python 3.13 and RFC 5280 4.2.1.1 require it
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName(_names(holder, addresses)), critical=False)
            .add_extension(x509.ExtendedKeyUsage(_usages(holder.role, addresses)), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the CA's certificate, hexadecimal."""
        return self.certificate.fingerprint(hashes.SHA256()).hex()


def read_request(csr: bytes) -> tuple[str, PublicKey]:
    """The name and the key of a PEM certificate signing request; the rest is ignored.

    Raises:
        UsageError: it is too long, not a request, has a weak key, or is not signed with its own
            key.
    """
    if len(csr) > MAX_REQUEST_BYTES:
        raise UsageError(
            f"a signing request of {len(csr)} bytes is over the limit of {MAX_REQUEST_BYTES}"
        )
    try:
        request = x509.load_pem_x509_csr(csr)
        names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        key, proven = request.public_key(), request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise UsageError(f"not a certificate signing request: {error}") from error
    if not isinstance(key, PublicKey) or key.key_size < MIN_KEY_BITS:
        raise UsageError("the signing request needs an elliptic-curve key, P-256 for example")
    if not proven:
        raise UsageError("the signing request is not signed with its own key")
    if len(names) != 1 or not is_name(str(names[0].value)):
        raise UsageError("the signing request needs one common name, the name of a host or person")
    return str(names[0].value), key


def load_authority(directory: Path) -> Authority:
    """The CA in `directory`: ``ca.crt`` and ``ca.key``. Raises `ConfigError`."""
    return _load(directory / "ca.crt", directory / "ca.key")


def _usages(role: Role, addresses: Sequence[str]) -> list[x509.ObjectIdentifier]:
    """Client or server; both only for a gateway, which dials its leader, and for an agent with an
    address: it serves ``/metrics`` there."""
    if role is Role.CONTROLLER:
        return [ExtendedKeyUsageOID.SERVER_AUTH]
    both = role is Role.GATEWAY or (role is Role.AGENT and bool(addresses))
    serves = [ExtendedKeyUsageOID.SERVER_AUTH] if both else []
    return [ExtendedKeyUsageOID.CLIENT_AUTH, *serves]


def create_authority(directory: Path) -> Authority:
    """A new CA in `directory` (``ca.crt``, ``ca.key`` 0600), or the existing one.

    Raises:
        ConfigError: only one of the two files exists, or they cannot be read.
    """
    cert_path, key_path = directory / "ca.crt", directory / "ca.key"
    found = [path for path in (cert_path, key_path) if path.exists()]
    if len(found) == 1:
        raise ConfigError(
            f"{found[0]}: not a usable authority without the other of ca.crt and ca.key; put that "
            "back or, for a new CA, which all members must join, remove this one"
        )
    if found:
        return _load(cert_path, key_path)
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Syntony fleet CA")])
    certificate = (
        _builder("Syntony fleet CA", subject, now - BACKDATE, now + AUTHORITY_LIFETIME)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_signing_only(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = Authority(certificate, key)
    try:
        write_atomically(key_path, key_pem(key), 0o600)
        write_atomically(cert_path, authority.pem, 0o644)
    except BaseException:  # one without the other is no CA, and is not replaced
        key_path.unlink(missing_ok=True)
        cert_path.unlink(missing_ok=True)
        raise
    return authority


def _load(cert_path: Path, key_path: Path) -> Authority:
    try:
        certificate = x509.load_pem_x509_certificate(read_bytes(cert_path, MAX_SECRET_BYTES))
        key = serialization.load_pem_private_key(
            read_bytes(key_path, MAX_SECRET_BYTES), password=None
        )
    except (OSError, ValueError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        raise ConfigError(
            f"{cert_path.parent}: not a usable authority: {reason}; make one: "
            f"syntony enrol authority {cert_path.parent} --address NAME"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{key_path}: not an elliptic-curve key")
    return Authority(certificate, key)


def _builder(
    name: str, issuer: x509.Name, since: dt.datetime, until: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
    )


def check_address(text: str) -> None:
    """Check an address for a certificate. Raises `UsageError`: neither an IP address nor a DNS
    name."""
    if _DNS_NAME.fullmatch(text) is None:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            raise UsageError(
                f"{text!r} is neither an IP address nor a DNS name; give it without a port"
            ) from None


def _names(holder: Identity, addresses: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [
        x509.UniformResourceIdentifier(holder.uri),
        x509.DNSName(holder.name),
    ]
    for address in addresses:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        except ValueError:
            names.append(x509.DNSName(address))
    return names


def _signing_only() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )

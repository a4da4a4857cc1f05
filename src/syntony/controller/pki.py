"""The fleet's certificate authority, for fleets that have none: EC P-256, one level, short chains.

The common name of a certificate is the identity of its holder: an agent's is its host's name.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from syntony.errors import ConfigError, UsageError
from syntony.model import US
from syntony.model.names import is_name
from syntony.wire.roles import Identity, Role

AUTHORITY_LIFETIME = dt.timedelta(days=3650)
BACKDATE = dt.timedelta(minutes=5)
"""Certificates begin this much earlier, for hosts whose clocks are a little behind."""


_SERVER, _CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
_USAGES = {
    Role.AGENT: [_CLIENT, _SERVER],  # dials the controller, serves /metrics
    Role.CONTROLLER: [_SERVER],
    Role.OPERATOR: [_CLIENT],
    Role.VIEWER: [_CLIENT],
    Role.SCRAPER: [_CLIENT],
}


class TlsPaths(NamedTuple):
    """PEM files of one identity."""

    ca: Path
    cert: Path
    key: Path


class Authority(NamedTuple):
    """A CA certificate and its key; issues what the fleet needs."""

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
    ) -> TlsPaths:
        """A certificate for `name` in one role.

        Args:
            name: the identity (common name); for an agent its host.
            role: what its holder may do (docs/reference/security.md).
            addresses: IP addresses and DNS names it is reached at.
            lifetime_ns: from now; negative makes one that has expired already.
            directory: gets ``NAME.crt``, ``NAME.key`` (0600) and ``ca.crt``.

        Raises:
            UsageError: `name` cannot name a host.
        """
        if not is_name(name):
            raise UsageError(f"{name!r} cannot be a certificate's name; use a host's name")
        key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        until = now + dt.timedelta(microseconds=lifetime_ns // US)
        certificate = (
            _builder(name, self.certificate.subject, min(now, until) - BACKDATE, until)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName(_names(name, role, addresses)), critical=False
            )
            .add_extension(
                x509.ExtendedKeyUsage(_USAGES[role]),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        directory.mkdir(parents=True, exist_ok=True)
        paths = TlsPaths(directory / "ca.crt", directory / f"{name}.crt", directory / f"{name}.key")
        _write(paths.ca, _pem(self.certificate), 0o644)
        _write(paths.cert, _pem(certificate), 0o644)
        _write(paths.key, _key_pem(key), 0o600)
        return paths


def create_authority(directory: Path) -> Authority:
    """A new CA in `directory` (``ca.crt``, ``ca.key`` 0600), or the one already there.

    Raises:
        ConfigError: only one of the two files is there, or they cannot be read.
    """
    cert_path, key_path = directory / "ca.crt", directory / "ca.key"
    if key_path.exists():
        return _load(cert_path, key_path)
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Syntony fleet CA")])
    certificate = (
        _builder("Syntony fleet CA", subject, now - BACKDATE, now + AUTHORITY_LIFETIME)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_signing_only(), critical=True)
        .sign(key, hashes.SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(key_path, _key_pem(key), 0o600)
    _write(cert_path, _pem(certificate), 0o644)
    return Authority(certificate, key)


def _load(cert_path: Path, key_path: Path) -> Authority:
    try:
        certificate = x509.load_pem_x509_certificate(cert_path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{cert_path.parent}: not a usable authority: {error}") from error
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


def _names(name: str, role: Role, addresses: Sequence[str]) -> list[x509.GeneralName]:
    uri = Identity(role, name).uri
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri), x509.DNSName(name)]
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


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replace a file as a whole, never readable by more than `mode` allows."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    fresh.rename(path)

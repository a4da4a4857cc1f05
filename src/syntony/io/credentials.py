"""A member's certificate and private key: PEM files that are replaced together.

Two files cannot be replaced in one step. The new certificate is complete on the disk, as
``CERT.next``, before the key is replaced; a reader whose key does not fit its certificate finds the
fitting one there.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from syntony.errors import MissingError
from syntony.input_files import MAX_SECRET_BYTES, read_bytes
from syntony.io.files import write_atomically
from syntony.model.tls_files import TlsFiles
from syntony.wire.x509 import civil_ns

_TRIES = 50
"""Attempts to read a matching pair of files while others are written. Renewals are much rarer, but
a reader that is preempted between the two files may miss several."""


class Credentials(NamedTuple):
    """Their contents, PEM."""

    ca: bytes
    certificate: bytes
    key: bytes


class CertificateRequest(NamedTuple):
    """A new private key, and the signing request for it, PEM."""

    key: bytes
    csr: bytes


def civil_now() -> int:
    """ns since 1970, UTC, by this host's clock: what certificates live on."""
    return civil_ns(dt.datetime.now(dt.UTC))


def load_credentials(files: TlsFiles) -> Credentials:
    """What is in force. Raises `MissingError`: unreadable, or the key is not the certificate's."""
    _, certificate, key = _pair(files)
    return Credentials(_read(files.ca), certificate, key)


def certificate_file(files: TlsFiles) -> Path:
    """The file whose certificate is of the key in force. Raises `MissingError`."""
    return _pair(files)[0]


def _pair(files: TlsFiles) -> tuple[Path, bytes, bytes]:
    """A certificate, where it is, and its key; also while somebody replaces them, or after a crash
    at it: then the key is new, and the certificate not yet in its place."""
    current = Path(files.cert)
    for _ in range(_TRIES):
        for path in (current, _next(current)):
            key = _read(files.key)
            try:
                certificate = read_bytes(path, MAX_SECRET_BYTES)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _unreadable(path, error) from error
            if fits(certificate, key):
                return path, certificate, key
    _read(current)
    raise MissingError(f"{files.key}: not the key of the certificate {current}")


def new_request(name: str) -> CertificateRequest:
    """A key made here, which never leaves this host, and the request to have it certified."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return CertificateRequest(key_pem(key), signed)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def store_credentials(files: TlsFiles, certificate: bytes, key: bytes) -> None:
    """Replace both. Raises `MissingError`: they cannot be written; those before are in force."""
    following = _next(files.cert)
    try:
        write_atomically(following, certificate, 0o644)
        write_atomically(Path(files.key), key, 0o600)
        _put_in_place(following, Path(files.cert))
    except OSError as error:
        raise MissingError(
            f"{error.filename}: cannot be written: {error.strerror}; the directory of the "
            "certificate must belong to the daemon's user"
        ) from error


def fits(certificate: bytes, key: bytes) -> bool:
    try:
        loaded = serialization.load_pem_private_key(key, password=None)
        return x509.load_pem_x509_certificate(certificate).public_key() == loaded.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        return False


def is_issued_by(certificate: bytes, ca: bytes) -> bool:
    """Whether the first of these certificates is signed by one of these CAs, directly or through
    the others. Raises `ValueError`: no certificates in PEM."""
    cas = x509.load_pem_x509_certificates(ca)
    found, *others = x509.load_pem_x509_certificates(certificate)
    while found not in cas:
        issuer = next((each for each in (*cas, *others) if _signed(found, each)), None)
        if issuer is None:
            return False
        if issuer in others:
            others.remove(issuer)
        found = issuer
    return True


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _put_in_place(following: Path, certificate: Path) -> None:
    following.rename(certificate)


def _next(certificate: str | Path) -> Path:
    path = Path(certificate)
    return path.with_name(f"{path.name}.next")


def _read(path: str | Path) -> bytes:
    try:
        return read_bytes(path, MAX_SECRET_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | Path, error: OSError) -> MissingError:
    return MissingError(f"{path}: cannot be read: {error.strerror}")

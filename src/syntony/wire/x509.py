"""Reads PEM certificates: identity of the holder, serial number, validity, addresses.

Nothing here verifies a signature: TLS does, before any of this is asked.
"""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from typing import NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from syntony.errors import WireError
from syntony.model import US, S
from syntony.wire.roles import Identity, identity

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
BACKDATE_NS = 300 * S
"""Certificates are valid from this long before they are issued, for hosts with slow clocks.
"""
_REMEMBERED = 4096
"""Number of parsed certificates cached: every peer presents the same one repeatedly."""


class Validity(NamedTuple):
    """First and last instant at which a certificate may be used, UTC."""

    not_before: dt.datetime
    not_after: dt.datetime

    @property
    def expires_ns(self) -> int:
        """The last instant, ns since 1970 of civil time."""
        return civil_ns(self.not_after)

    @property
    def lifetime_ns(self) -> int:
        """The requested lifetime, without the time by which it was backdated."""
        return self.expires_ns - civil_ns(self.not_before) - BACKDATE_NS

    @property
    def renewal_ns(self) -> int:
        """Civil time at which its holder should renew it: after two thirds of its lifetime."""
        return self.expires_ns - self.lifetime_ns // 3


class Certificate(NamedTuple):
    """The parts of a certificate that authorisation needs."""

    serial: str
    """Hexadecimal, lower case."""
    identity: Identity
    validity: Validity
    addresses: tuple[str, ...]
    """IP addresses and DNS names that its holder asked for, which may be its own name as well."""


def civil_ns(instant: dt.datetime) -> int:
    """Nanoseconds since 1970, UTC."""
    return (instant - _EPOCH) // dt.timedelta(microseconds=1) * US


@lru_cache(_REMEMBERED)
def read_certificate(pem: bytes) -> Certificate:
    """The first certificate in `pem`. Raises `WireError`: no certificate, or one without a single
    valid identity."""
    certificate = _load(pem)
    try:
        common_name, names = _subject(certificate), _names(certificate)
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise WireError(f"not a usable certificate: {error}") from error
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    dns = names.get_values_for_type(x509.DNSName)
    if common_name in dns:  # each certificate has its holder's name once, without being asked
        dns.remove(common_name)
    return Certificate(
        serial=format(certificate.serial_number, "x"),
        identity=identity(common_name, uris),
        validity=_validity(certificate),
        addresses=(*addresses, *dns),
    )


def read_validity(pem: bytes) -> Validity:
    """The validity of the first certificate in `pem`. Raises `WireError`: no certificate, or not
    one of RFC 5280's form."""
    return _validity(_load(pem))


def check_validity(pem: bytes, name: str, now: dt.datetime) -> None:
    """Check that the certificate is valid at `now` (civil time, as certificates use). Raises
    `WireError`: not a certificate, expired, or not valid yet; with `name` and what to do."""
    try:
        validity = read_validity(pem)
    except WireError as error:
        raise WireError(f"certificate {name}: {error}; issue a new one") from error
    if now > validity.not_after:
        raise WireError(
            f"certificate {name} expired on {validity.not_after:%Y-%m-%d %H:%M:%S} UTC; issue a "
            "new one (syntony enrol token, then syntony enrol join)"
        )
    if now < validity.not_before:
        raise WireError(
            f"certificate {name} is valid only from {validity.not_before:%Y-%m-%d %H:%M:%S} UTC; "
            "check this host's clock"
        )


def _load(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except (ValueError, x509.InvalidVersion) as error:
        raise WireError(f"not an X.509 certificate: {error}") from error


def _validity(certificate: x509.Certificate) -> Validity:
    try:
        return Validity(certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    except ValueError as error:
        raise WireError(f"not an X.509 certificate: {error}") from error


def _subject(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _names(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])
    return extension.value

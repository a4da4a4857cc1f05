"""The validity period of a PEM certificate, and nothing else of it.

An agent wants to say "expired" in one clear line before it dials, without loading a cryptography
library into every host's memory. This walks the DER (X.690) of an RFC 5280 certificate down to its
Validity field; it verifies nothing: TLS does.
"""

from __future__ import annotations

import binascii
import datetime as dt
import re
from typing import NamedTuple

from syntony.errors import WireError

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")
_SEQUENCE = 0x30
_VERSION = 0xA0
_UTC_TIME = 0x17
_GENERALIZED_TIME = 0x18
_FIELDS_BEFORE_VALIDITY = 3
"""serialNumber, signature, issuer (RFC 5280, 4.1), after the optional version."""


class Validity(NamedTuple):
    """First and last instant at which a certificate may be used, UTC."""

    not_before: dt.datetime
    not_after: dt.datetime


def read_validity(pem: bytes) -> Validity:
    """The validity of the first certificate in `pem`.

    Raises:
        WireError: no certificate, or not one of RFC 5280's form.
    """
    match = _PEM.search(pem)
    if match is None:
        raise WireError("no PEM certificate in it")
    try:
        der = binascii.a2b_base64(match[1])
        return _validity(der)
    except (binascii.Error, IndexError, ValueError) as error:
        raise WireError(f"not an X.509 certificate: {error}") from error


def check_validity(pem: bytes, name: str, now: dt.datetime) -> None:
    """Whether the certificate may be used at `now` (civil time: certificates live on it).

    Raises:
        WireError: not a certificate, expired, or not valid yet; with `name` and what to do.
    """
    try:
        validity = read_validity(pem)
    except WireError as error:
        raise WireError(f"certificate {name}: {error}; issue a new one") from error
    if now > validity.not_after:
        raise WireError(
            f"certificate {name} expired on {validity.not_after:%Y-%m-%d %H:%M:%S} UTC; issue a "
            "new one from the fleet's CA and put it in its place"
        )
    if now < validity.not_before:
        raise WireError(
            f"certificate {name} is valid only from {validity.not_before:%Y-%m-%d %H:%M:%S} UTC; "
            "check this host's clock"
        )


def _validity(der: bytes) -> Validity:
    certificate, _ = _element(der, _SEQUENCE)
    fields, _ = _element(certificate, _SEQUENCE)
    if fields[:1] == bytes([_VERSION]):
        _, fields = _element(fields, _VERSION)
    for _ in range(_FIELDS_BEFORE_VALIDITY):
        _, fields = _element(fields, fields[0])
    validity, _ = _element(fields, _SEQUENCE)
    not_before, rest = _element(validity, validity[0])
    not_after, _ = _element(rest, rest[0])
    return Validity(_instant(validity[0], not_before), _instant(rest[0], not_after))


def _element(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """The contents of the element at the start of `data`, and what follows it."""
    if data[0] != tag:
        raise ValueError(f"tag {data[0]:#x} where {tag:#x} belongs")
    length, start = data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start])
    if start + length > len(data):
        raise ValueError("cut short")
    return data[start : start + length], data[start + length :]


def _instant(tag: int, text: bytes) -> dt.datetime:
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        # RFC 5280, 4.1.2.5.1: two-digit years from 50 on are of the twentieth century.
        digits = ("19" if digits[:2] >= "50" else "20") + digits
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"tag {tag:#x} is not a time")
    return dt.datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=dt.UTC)

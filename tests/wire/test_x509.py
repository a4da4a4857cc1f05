"""What is read from certificates, and that damaged ones end in one error."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.controller.pki import create_authority
from syntony.errors import WireError
from syntony.model import S
from syntony.wire.roles import Role
from syntony.wire.x509 import check_validity, read_certificate, read_validity

_KEY = ec.generate_private_key(ec.SECP256R1())
_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "h1")])
_UTC = dt.UTC


def _certificate(since: dt.datetime, until: dt.datetime) -> bytes:
    built = (
        x509.CertificateBuilder()
        .subject_name(_NAME)
        .issuer_name(_NAME)
        .public_key(_KEY.public_key())
        .serial_number(1)
        .not_valid_before(since)
        .not_valid_after(until)
        .sign(_KEY, hashes.SHA256())
    )
    return built.public_bytes(Encoding.PEM)


_INSTANTS = st.integers(-599_616_000, 7_258_118_400).map(  # 1951 to 2200
    lambda seconds: dt.datetime.fromtimestamp(seconds, _UTC)
)


@settings(max_examples=50)
@given(st.tuples(_INSTANTS, _INSTANTS).map(sorted))
def test_both_kinds_of_time(period: list[dt.datetime]) -> None:
    since, until = period
    assert read_validity(_certificate(since, until)) == (since, until)


def test_a_certificate_of_ours(tmp_path: Path) -> None:
    authority = create_authority(tmp_path)
    paths = authority.issue("h1", Role.AGENT, addresses=[], lifetime_ns=60 * S, directory=tmp_path)
    pem = Path(paths.cert).read_bytes()
    reference = x509.load_pem_x509_certificate(pem)
    validity = read_validity(pem)
    assert validity.not_before == reference.not_valid_before_utc
    assert validity.not_after == reference.not_valid_after_utc
    assert validity.lifetime_ns == 60 * S
    dated_back = reference.not_valid_after_utc - reference.not_valid_before_utc
    assert dated_back == dt.timedelta(minutes=6)
    assert validity.expires_ns == reference.not_valid_after_utc.timestamp() * S
    reported = read_certificate(pem)
    assert reported.serial == f"{reference.serial_number:x}"
    assert reported.identity == (Role.AGENT, "h1")


_SINCE = dt.datetime(2030, 1, 1, tzinfo=_UTC)
_UNTIL = dt.datetime(2030, 1, 2, tzinfo=_UTC)
_SECOND = dt.timedelta(seconds=1)


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (_SINCE - _SECOND, r"x\.crt is valid only from 2030-01-01 00:00:00 UTC"),
        (_SINCE, None),
        (_UNTIL, None),
        (_UNTIL + _SECOND, r"x\.crt expired on 2030-01-02 00:00:00 UTC; issue a new one"),
    ],
)
def test_use_outside_of_validity(now: dt.datetime, reason: str | None) -> None:
    pem = _certificate(_SINCE, _UNTIL)
    expectation = pytest.raises(WireError, match=reason) if reason else contextlib.nullcontext()
    with expectation:
        check_validity(pem, "x.crt", now)


_SOUND = _certificate(_SINCE, _UNTIL)


def test_a_structure_of_other_tags_is_no_certificate() -> None:
    der = bytearray(x509.load_pem_x509_certificate(_SOUND).public_bytes(Encoding.DER))
    der[0] = 0x31  # a set, with the same in it
    body = base64.b64encode(bytes(der))
    with pytest.raises(WireError, match=r"not an X\.509 certificate"):
        read_validity(b"-----BEGIN CERTIFICATE-----" + body + b"-----END CERTIFICATE-----")


@given(st.data())
def test_damage_never_escapes(data: st.DataObject) -> None:
    pem = bytearray(_SOUND)
    for _ in range(data.draw(st.integers(1, 10))):
        pem[data.draw(st.integers(0, len(pem) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        read_validity(bytes(pem))
        read_certificate(bytes(pem))


def test_what_is_no_certificate_cannot_be_used() -> None:
    with pytest.raises(WireError, match=r"certificate x\.crt: .*; issue a new one"):
        check_validity(b"nonsense", "x.crt", _SINCE)


def test_a_date_that_is_none_is_said_to_be_none() -> None:
    """The thirteenth month."""
    der = x509.load_pem_x509_certificate(_SOUND).public_bytes(Encoding.DER)
    damaged = der.replace(b"300102000000Z", b"301302000000Z")
    assert damaged != der
    pem = b"-----BEGIN CERTIFICATE-----\n%s-----END CERTIFICATE-----\n"
    with pytest.raises(WireError, match=r"not an X\.509 certificate|not a usable"):
        read_validity(pem % base64.encodebytes(damaged))

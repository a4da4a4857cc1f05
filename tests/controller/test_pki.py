"""Certificates as TLS and as an operator will see them."""

from __future__ import annotations

import errno
import ipaddress
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from syntony.controller import pki
from syntony.controller.pki import create_authority
from syntony.errors import ConfigError, UsageError
from syntony.io.files import write_atomically
from syntony.model import S
from syntony.wire.roles import Identity, Role, identity


def test_a_certificate_names_its_holder_and_its_addresses(tmp_path: Path) -> None:
    authority = create_authority(tmp_path / "ca")
    paths = authority.issue(
        "h3",
        Role.AGENT,
        addresses=["10.0.0.1", "fd00::1", "h3.cluster"],
        lifetime_ns=60 * S,
        directory=tmp_path,
    )
    certificate = x509.load_pem_x509_certificate(Path(paths.cert).read_bytes())
    certificate.verify_directly_issued_by(authority.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"h3", "h3.cluster"}
    assert set(names.get_values_for_type(x509.IPAddress)) == {
        ipaddress.ip_address("10.0.0.1"),
        ipaddress.ip_address("fd00::1"),
    }
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    authority = create_authority(tmp_path / "ca")
    paths = authority.issue(
        "h3", Role.AGENT, addresses=[], lifetime_ns=60 * S, directory=tmp_path / "tls"
    )
    for key in (Path(paths.key), tmp_path / "ca" / "ca.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_half_an_authority_is_left_neither_by_a_full_disk_nor_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose key lies elsewhere has a CA that the whole fleet knows."""

    def full(path: Path, data: bytes, mode: int) -> None:
        if path.name == "ca.crt":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_atomically(path, data, mode)

    with monkeypatch.context() as patched:
        patched.setattr(pki, "write_atomically", full)
        with pytest.raises(OSError, match="No space left"):
            create_authority(tmp_path)
    assert not list(tmp_path.iterdir())
    create_authority(tmp_path)
    known = (tmp_path / "ca.crt").read_bytes()
    (tmp_path / "ca.key").rename(tmp_path / "offline")
    with pytest.raises(ConfigError, match="put that back"):
        create_authority(tmp_path)
    assert (tmp_path / "ca.crt").read_bytes() == known


def test_an_authority_is_kept(tmp_path: Path) -> None:
    first = create_authority(tmp_path)
    assert create_authority(tmp_path).certificate == first.certificate


def test_a_name_that_cannot_be_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be a certificate's name"):
        create_authority(tmp_path).issue(
            "../x", Role.AGENT, addresses=[], lifetime_ns=S, directory=tmp_path
        )


@pytest.mark.parametrize("missing", [True, False])
def test_a_damaged_authority_is_not_replaced(tmp_path: Path, *, missing: bool) -> None:
    create_authority(tmp_path)
    if missing:
        (tmp_path / "ca.crt").unlink()
    else:
        (tmp_path / "ca.key").write_text("nonsense")
    with pytest.raises(ConfigError, match="not a usable authority"):
        create_authority(tmp_path)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("addresses", [[], ["10.0.0.1"]])
def test_a_certificate_carries_its_role_and_serves_only_what_the_role_needs(
    tmp_path: Path, role: Role, addresses: list[str]
) -> None:
    paths = create_authority(tmp_path / "ca").issue(
        "n1", role, addresses=addresses, lifetime_ns=60 * S, directory=tmp_path
    )
    extensions = x509.load_pem_x509_certificate(Path(paths.cert).read_bytes()).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    assert identity("n1", uris) == Identity(role, "n1")
    usages = set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    serves = role in {Role.CONTROLLER, Role.GATEWAY} or (role is Role.AGENT and bool(addresses))
    assert (ExtendedKeyUsageOID.SERVER_AUTH in usages) == serves
    assert (ExtendedKeyUsageOID.CLIENT_AUTH in usages) == (role is not Role.CONTROLLER)

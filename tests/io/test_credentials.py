"""A certificate and its key are replaced together, whatever happens in between."""

from __future__ import annotations

import datetime as dt
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from syntony.controller.pki import Authority, create_authority, read_request
from syntony.errors import MissingError
from syntony.io import credentials
from syntony.io.credentials import (
    certificate_file,
    fits,
    is_issued_by,
    load_credentials,
    new_request,
    store_credentials,
)
from syntony.io.files import write_atomically
from syntony.model import S
from syntony.model.tls_files import TlsFiles
from syntony.wire.roles import Identity, Role


class Member:
    """Certificate files, and an authority to renew them."""

    def __init__(self, directory: Path) -> None:
        self.authority = create_authority(directory / "ca")
        self.files: TlsFiles = self.authority.issue(
            "h1", Role.AGENT, addresses=(), lifetime_ns=600 * S, directory=directory
        )

    def renewed(self) -> tuple[bytes, bytes]:
        key, csr = new_request("h1")
        _, public = read_request(csr)
        return self.authority.sign(
            public, Identity(Role.AGENT, "h1"), addresses=(), lifetime_ns=600 * S
        ), key


@pytest.fixture
def member(tmp_path: Path) -> Member:
    return Member(tmp_path)


def test_a_request_carries_the_name_and_proves_the_key() -> None:
    request = x509.load_pem_x509_csr(new_request("h7").csr)
    assert request.is_signature_valid
    assert request.subject.rfc4514_string() == "CN=h7"


def test_keys_stay_private(member: Member) -> None:
    store_credentials(member.files, *member.renewed())
    assert stat.S_IMODE(Path(member.files.key).stat().st_mode) == 0o600


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_crash_at_any_step_leaves_a_pair(
    member: Member, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """After so many of the two writes and the rename."""
    before = load_credentials(member.files)
    certificate, key = member.renewed()
    real, done = write_atomically, 0

    def write(path: Path, data: bytes, mode: int) -> None:
        nonlocal done
        if done == writes:
            raise OSError(28, "No space left on device", str(path))
        done += 1
        real(path, data, mode)

    def rename(self: Path, target: Path) -> None:
        raise OSError(5, "Input/output error", str(target))

    with monkeypatch.context() as broken:
        broken.setattr(credentials, "write_atomically", write)
        if writes == 2:
            # The writes' own renames must go on working.
            broken.setattr(credentials, "_put_in_place", rename)
        with pytest.raises(MissingError, match="cannot be written"):
            store_credentials(member.files, certificate, key)
    found = load_credentials(member.files)
    assert fits(found.certificate, found.key)
    assert (found.certificate == certificate) == (writes == 2)
    assert (found == before) == (writes < 2)
    assert fits(certificate_file(member.files).read_bytes(), Path(member.files.key).read_bytes())
    # The next renewal is as if nothing had been.
    store_credentials(member.files, *(newer := member.renewed()))
    assert load_credentials(member.files)[1:] == newer


def test_a_reader_beside_a_writer_never_sees_halves(member: Member) -> None:
    pairs = [member.renewed() for _ in range(8)]
    over = threading.Event()
    halves = []

    def read() -> None:
        while not over.is_set():
            found = load_credentials(member.files)
            if not fits(found.certificate, found.key):
                halves.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(10):
        for pair in pairs:
            store_credentials(member.files, *pair)
    over.set()
    reader.join()
    assert halves == []


def test_a_missing_file_is_one_line(member: Member) -> None:
    Path(member.files.cert).unlink()
    with pytest.raises(MissingError, match=r"h1\.crt: cannot be read: No such file"):
        load_credentials(member.files)


def test_a_certificate_of_a_ca_below_the_trusted_one(tmp_path: Path) -> None:
    """It is accepted only together with that CA's own certificate."""
    root = create_authority(tmp_path / "root")
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    between = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "between")]))
        .issuer_name(root.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(hours=1))
        .sign(root.key, hashes.SHA256())
    )
    member = Authority(between, key).sign(
        key.public_key(), Identity(Role.AGENT, "h1"), addresses=(), lifetime_ns=600 * S
    )
    chain = member + between.public_bytes(serialization.Encoding.PEM)
    assert is_issued_by(chain, root.pem)
    assert not is_issued_by(member, root.pem)
    assert not is_issued_by(chain, create_authority(tmp_path / "other").pem)
    assert is_issued_by(root.pem, root.pem)

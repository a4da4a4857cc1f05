"""Renewal of an agent's certificate: when, how often it tries, and what it says."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from tests.link import wait_until

from syntony.agent.renewal import Renewal, time_left_ns
from syntony.controller.pki import TlsPaths, create_authority, read_request
from syntony.errors import RemoteError
from syntony.io.credentials import fits
from syntony.model import S
from syntony.wire.enrol import Issued, RenewQuery
from syntony.wire.query import Failure
from syntony.wire.roles import Role
from syntony.wire.x509 import read_certificate


class Issuer:
    """The controller's side; answers as `moods` say, then well."""

    def __init__(self, directory: Path, lifetime_ns: int, *moods: str) -> None:
        self.authority = create_authority(directory / "ca")
        self.lifetime_ns = lifetime_ns
        self.files: TlsPaths = self.authority.issue(
            "h1", Role.AGENT, addresses=(), lifetime_ns=lifetime_ns, directory=directory
        )
        self.moods = list(moods)
        self.requested = 0

    def __call__(self, query: RenewQuery) -> Issued | Failure:
        self.requested += 1
        mood = self.moods.pop(0) if self.moods else "well"
        if mood == "away":
            raise RemoteError("not connected to the controller")
        if mood == "unwilling":
            return Failure(reason="has been revoked")
        name, key = read_request(query.csr)
        assert name == "h1"
        own = read_certificate(self.files.cert.read_bytes())
        pem = self.authority.sign(key, own.identity, addresses=(), lifetime_ns=self.lifetime_ns)
        return Issued(certificate=pem, ca=b"")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_it_renews_with_a_new_key_and_again(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path, 3 * S)
    seen = {issuer.files.key.read_bytes()}
    with Renewal(issuer.files, issuer):
        wait_until(lambda: issuer.requested >= 2)
        wait_until(lambda: issuer.files.key.read_bytes() not in seen)
    assert fits(issuer.files.cert.read_bytes(), issuer.files.key.read_bytes())


def test_it_waits_for_two_thirds_of_the_life(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path, 3600 * S)
    with Renewal(issuer.files, issuer):
        time.sleep(1.5)
    assert issuer.requested == 0
    assert 3590 * S < time_left_ns(issuer.files) <= 3600 * S


def test_a_failure_is_said_once_for_each_reason_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer(tmp_path, 2 * S, "away", "away", "unwilling", "unwilling")
    first = issuer.files.cert.read_bytes()
    with Renewal(issuer.files, issuer):
        wait_until(lambda: issuer.files.cert.read_bytes() != first)
    away, unwilling = warnings(caplog)[:2]
    assert "not renewed, retrying" in away
    assert "not connected to the controller" in away
    assert "h1.crt" in away
    assert "has been revoked" in unwilling
    assert len(warnings(caplog)) == 2


def test_a_directory_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = Issuer(tmp_path, 1 * S)
    before = issuer.files.cert.read_bytes()

    def refuse(path: Path, data: bytes, mode: int) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("syntony.io.credentials.write_atomically", refuse)
    with Renewal(issuer.files, issuer):
        wait_until(lambda: issuer.requested >= 2)
    assert "Read-only file system; the directory of the certificate must belong" in caplog.text
    assert issuer.files.cert.read_bytes() == before


def test_an_expired_one_has_nothing_left(tmp_path: Path) -> None:
    assert time_left_ns(Issuer(tmp_path, -60 * S).files) == 0
    assert time_left_ns(TlsPaths(tmp_path / "x", tmp_path / "x", tmp_path / "x")) == 0

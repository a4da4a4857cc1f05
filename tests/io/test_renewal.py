"""Renewal of a member's certificate: when, how often it tries, and what it says."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.live import eventually

from syntony.controller.pki import create_authority, read_request
from syntony.errors import RemoteError
from syntony.io.credentials import civil_now, fits
from syntony.io.renewal import MAX_WAIT_NS, MIN_WAIT_NS, Renewal, time_left_ns
from syntony.model import S
from syntony.model.tls_files import TlsFiles
from syntony.wire.enrol import Issued, RenewQuery
from syntony.wire.query import Failure
from syntony.wire.roles import Role
from syntony.wire.x509 import read_certificate


class Issuer:
    """The controller's side; answers as `moods` say, then well."""

    def __init__(self, directory: Path, lifetime_ns: int, *moods: str) -> None:
        self.authority = create_authority(directory / "ca")
        self.lifetime_ns = lifetime_ns
        self.files: TlsFiles = self.authority.issue(
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
        own = read_certificate(Path(self.files.cert).read_bytes())
        pem = self.authority.sign(key, own.identity, addresses=(), lifetime_ns=self.lifetime_ns)
        return Issued(certificate=pem, ca=b"")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_it_renews_with_a_new_key_and_again(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path, 3 * S)
    seen = {Path(issuer.files.key).read_bytes()}
    with Renewal(issuer.files, issuer):
        eventually(lambda: issuer.requested >= 2)
        eventually(lambda: Path(issuer.files.key).read_bytes() not in seen)
    assert fits(Path(issuer.files.cert).read_bytes(), Path(issuer.files.key).read_bytes())


class Clock:
    """Civil time, from now on as it is set; every step of a renewal by hand."""

    def __init__(self, issuer: Issuer) -> None:
        self.now_ns = civil_now()
        self.renewal = Renewal(issuer.files, issuer, lambda: self.now_ns)

    def step(self, after_ns: int = 0) -> int:
        """Returns how long to wait, ns."""
        self.now_ns += after_ns
        return self.renewal.step()


@pytest.mark.parametrize(
    ("age_s", "requested", "wait_ns"),
    [
        (0, 0, MAX_WAIT_NS),
        (2_300, 0, MAX_WAIT_NS),
        (2_398, 0, None),
        (2_401, 1, MIN_WAIT_NS),
        (3_599, 1, MIN_WAIT_NS),
        (9_000, 1, MIN_WAIT_NS),  # it expired while the host was suspended
    ],
)
def test_it_asks_from_two_thirds_of_the_life_on(
    tmp_path: Path, age_s: int, requested: int, wait_ns: int | None
) -> None:
    issuer = Issuer(tmp_path, 3600 * S)
    waits_ns = Clock(issuer).step(age_s * S)
    assert issuer.requested == requested
    if wait_ns is None:  # no longer than until then
        assert MIN_WAIT_NS <= waits_ns <= 2 * S
    else:
        assert waits_ns == wait_ns


def test_after_a_pause_it_asks_once_and_rests(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path, 3600 * S)
    clock = Clock(issuer)
    clock.step(3 * 3600 * S)
    issued = read_certificate(Path(issuer.files.cert).read_bytes())
    clock.now_ns = civil_now()  # the issuer's clock did not jump
    assert clock.step() == MAX_WAIT_NS
    assert issuer.requested == 1
    assert issued.validity.expires_ns > clock.now_ns


def test_it_tries_more_often_the_less_is_left(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path, 3600 * S, *["away"] * 1_000)
    clock, waits_ns = Clock(issuer), []
    clock.now_ns += 2_400 * S
    while clock.now_ns < civil_now() + 3_600 * S:
        waits_ns.append(clock.step())
        clock.now_ns += waits_ns[-1]
    assert 20 <= issuer.requested <= 120
    assert all(MIN_WAIT_NS // 2 <= each <= MAX_WAIT_NS for each in waits_ns)
    assert max(waits_ns[-5:]) <= MIN_WAIT_NS
    assert len({*waits_ns}) > 1, "a fleet would come at once"


def test_a_failure_is_said_once_for_each_reason_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer(tmp_path, 3600 * S, "away", "away", "unwilling", "unwilling", "well", "away")
    first = Path(issuer.files.cert).read_bytes()
    clock = Clock(issuer)
    for _ in range(4):
        clock.step(2_500 * S)
        assert Path(issuer.files.cert).read_bytes() == first
    clock.step()
    second = Path(issuer.files.cert).read_bytes()
    assert second != first
    assert fits(second, Path(issuer.files.key).read_bytes())
    clock.step()
    away, unwilling, again = warnings(caplog)
    assert "not renewed, retrying" in away
    assert "not connected to the controller" in away
    assert "h1.crt" in away
    assert "has been revoked" in unwilling
    assert "not connected to the controller" in again


@pytest.mark.parametrize("certificate", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----"])
def test_an_answer_that_is_no_certificate_replaces_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, certificate: bytes
) -> None:
    issuer = Issuer(tmp_path, 3600 * S)
    before = Path(issuer.files.cert).read_bytes(), Path(issuer.files.key).read_bytes()
    answer = Issued(certificate=certificate, ca=b"")
    renewal = Renewal(issuer.files, lambda _: answer, lambda: civil_now() + 3000 * S)
    renewal.step()
    assert (Path(issuer.files.cert).read_bytes(), Path(issuer.files.key).read_bytes()) == before
    assert "certificate not renewed, retrying" in caplog.text


def test_a_directory_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = Issuer(tmp_path, 3600 * S)
    before = Path(issuer.files.cert).read_bytes()

    def refuse(path: Path, data: bytes, mode: int) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("syntony.io.credentials.write_atomically", refuse)
    clock = Clock(issuer)
    assert clock.step(3000 * S) <= MAX_WAIT_NS
    clock.step()
    assert issuer.requested == 2
    (said,) = warnings(caplog)
    assert "Read-only file system; the directory of the certificate must belong" in said
    assert Path(issuer.files.cert).read_bytes() == before


def test_files_that_are_gone_are_looked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer(tmp_path, 3600 * S)
    clock, kept = Clock(issuer), Path(issuer.files.cert).read_bytes()
    Path(issuer.files.cert).unlink()
    assert clock.step(3000 * S) <= MIN_WAIT_NS
    Path(issuer.files.cert).write_bytes(kept)
    clock.step()
    assert issuer.requested == 1
    assert len(warnings(caplog)) == 1


def test_an_expired_one_has_nothing_left(tmp_path: Path) -> None:
    files = Issuer(tmp_path, 60 * S).files
    assert 50 * S < time_left_ns(files) <= 60 * S
    assert time_left_ns(files, lambda: civil_now() + 61 * S) == 0
    nowhere = str(tmp_path / "x")
    assert time_left_ns(TlsFiles(ca=nowhere, cert=nowhere, key=nowhere)) == 0

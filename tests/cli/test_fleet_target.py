"""Which fleet a command line speaks to."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.cli import run
from syntony.cli.fleet import FleetTarget, fleet_target
from syntony.errors import UsageError
from syntony.model.tls_files import TlsFiles

NO_TLS = (None, None, None)
URL = "http://127.0.0.1:1"


def test_a_local_socket_needs_no_certificate() -> None:
    target = "unix:/run/syntony-controller/controller.sock"
    assert fleet_target(None, target, NO_TLS) == FleetTarget(target, None)


def test_a_controller_elsewhere_needs_one() -> None:
    with pytest.raises(UsageError, match="--ca, --cert and --key"):
        fleet_target(None, "syntony.example:8443", NO_TLS)
    assert fleet_target(None, "syntony.example:8443", ("a", "b", "c")) == FleetTarget(
        "syntony.example:8443", TlsFiles(ca="a", cert="b", key="c")
    )


def test_without_a_controller_or_a_lab_both_are_suggested(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("TMPDIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("SYNTONY_CONTROLLER", raising=False)
    with pytest.raises(UsageError, match="give --controller, or start a lab"):
        fleet_target(None, None, NO_TLS)


def test_a_lab_and_a_controller_are_not_named_together() -> None:
    with pytest.raises(UsageError, match="not both"):
        fleet_target("lab", "unix:/run/x.sock", NO_TLS)


def test_an_empty_controller_is_not_the_only_lab() -> None:
    with pytest.raises(UsageError, match="--controller is empty"):
        fleet_target(None, "", NO_TLS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--controller", URL, "incidents", "list"), f"there is no token for {URL}"),
        (("incidents", "list", "--controller", URL), f"there is no token for {URL}"),
        (("--controller", "x:1", "incidents", "list", "--controller", URL), f"no token for {URL}"),
        (("--controller", URL, "incidents", "list", "--lab", "a"), "not both"),
        (("--controller", "", "incidents", "list"), "--controller is empty"),
        (("--controller", "x:1", "incidents", "list"), "for the API write https://HOST:PORT"),
    ],
)
def test_a_controller_may_be_named_before_the_command(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("SYNTONY_CONTROLLER", "SYNTONY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert run(words) == 2
    assert told in capsys.readouterr().err


def test_an_enrolment_port_without_a_port(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--at", "syntony.example", "--token", "x", "--ca", "ca.crt")
    assert run(["enrol", "join", "gpu001", *words]) == 2
    assert "for example syntony.example:8444" in capsys.readouterr().err

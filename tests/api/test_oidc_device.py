"""Logging in from a command line, by a browser anywhere (RFC 8628), at a real controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.issuer import sign
from tests.api.test_oidc_login import Setting, running

from syntony.api.identity import DEVICE_LOGINS_BURST
from syntony.cli import contexts, run
from syntony.client import Client
from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.model import S
from syntony.wire.control import ChangesQuery
from syntony.wire.messages import FleetQuery
from syntony.wire.rest import OIDC_DEVICE, OIDC_DEVICE_TOKEN

__all__ = ["running"]
LONG_NS = 30 * S


@pytest.fixture
def setting(running: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    """With a provider that behaves, and somebody who may look and has not logged in yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("syntony.cli.login.time.sleep", lambda _: None)
    issuer = running.issuer
    issuer.early, issuer.device, issuer.metadata = ["authorization_pending"], {}, {}
    before, issuer.person = issuer.person, issuer.person | {"groups": ["fleet-viewers"]}
    yield running
    issuer.person, issuer.make, issuer.metadata = before, sign, {}


def test_a_command_line_logs_in_and_asks(
    setting: Setting, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[int] = []
    monkeypatch.setattr("syntony.cli.login.time.sleep", slept.append)
    setting.issuer.early = ["authorization_pending", "slow_down", "authorization_pending"]
    assert run(["login", setting.api.url, "--sso", "--name", "here"]) == 0
    assert slept == [1, 1, 6, 6], "as often as the provider allows"
    said = capsys.readouterr().err
    assert f"open {setting.issuer.url}/activate" in said
    assert "WDJB-MJHT" in said
    assert "logged in as olga (viewer)" in said
    context = contexts.load().used()
    assert context is not None
    with Client(context.url, access=context.access) as client:
        client.ask(FleetQuery())
    change = ask(setting.api.local, ChangesQuery()).changes[-1]
    assert (change.who, change.after.split()[1:3]) == ("olga", ["viewer", "olga"])
    assert "OIDC subject 0815" in change.comment


def test_the_token_is_as_good_as_its_person(setting: Setting) -> None:
    setting.issuer.early = []
    with Client(setting.api.url, timeout_ns=LONG_NS) as client:
        found = client.device_token(client.begin_device_login().device_code)
    with Client(setting.api.url, token=found.token) as client:
        session = client.session()
    assert (session.role, session.name, session.csrf) == ("viewer", "olga", "")
    answer = setting.api.call("POST", "/api/v1/switch", found.token, {"stopped": True})
    assert answer.problem[:2] == (403, "denied")


@pytest.mark.parametrize(
    ("early", "changed", "line"),
    [
        (["access_denied"], {}, "refuses the login: .*access_denied"),
        (["expired_token"], {}, "refuses the login: .*expired_token"),
        ([], {"groups": ["others"]}, "olga has no role here"),
        ([], {"aud": "another"}, "the ID token is not acceptable: Audience"),
        ([], {"exp": 1}, "the ID token is not acceptable: Signature has expired"),
    ],
)
def test_who_is_refused(
    setting: Setting, early: list[str], changed: dict[str, Any], line: str
) -> None:
    setting.issuer.early = early
    setting.issuer.person = setting.issuer.person | changed
    with Client(setting.api.url, timeout_ns=LONG_NS) as client:
        begun = client.begin_device_login()
        with pytest.raises(RemoteError, match=line):
            client.device_token(begun.device_code)


def test_a_foreign_device_code_is_none(setting: Setting) -> None:
    with (
        Client(setting.api.url, timeout_ns=LONG_NS) as client,
        pytest.raises(RemoteError, match=r"invalid_grant|too many failed logins"),
    ):
        client.device_token("made up")


@pytest.mark.parametrize(
    ("device", "line"),
    [
        ({"verification_uri": "http://evil.example/"}, "an address that is not https"),
        ({"verification_uri_complete": "javascript:x"}, "an address that is not https"),
        ({"user_code": "\x1b[2J"}, "a code that cannot be shown"),
        ({"expires_in": "soon"}, "sends an unusable answer"),
    ],
)
def test_what_is_not_shown_to_a_person(setting: Setting, device: dict[str, Any], line: str) -> None:
    setting.issuer.device = device
    found = setting.api.call("POST", OIDC_DEVICE, body={})
    assert found.problem[:2] == (502, "identity-provider")
    assert line in found.problem[2]


def test_requests_that_make_no_sense(setting: Setting) -> None:
    assert setting.api.call("POST", OIDC_DEVICE_TOKEN, body={"x": 1}).problem[0] == 400
    assert setting.api.call("POST", OIDC_DEVICE_TOKEN, body=b"x" * 300_000).problem[0] == 413


def test_a_login_that_nobody_finishes_ends(
    setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    setting.issuer.device = {"expires_in": 3}
    setting.issuer.early = ["authorization_pending"] * 9
    assert run(["login", setting.api.url, "--sso"]) != 0
    assert "was not finished within 3 s" in capsys.readouterr().err
    assert contexts.load().current == ""
    assert run(["login", setting.api.url, "--sso", "--cert", "x"]) != 0
    assert "give --sso, or --cert and --key" in capsys.readouterr().err


def test_logins_by_device_are_bounded(setting: Setting) -> None:
    """The provider is asked for each: nobody may make this controller flood it. The last of this
    module: no more can begin."""
    found = [setting.api.call("POST", OIDC_DEVICE, body={}) for _ in range(DEVICE_LOGINS_BURST + 2)]
    assert 429 in {each.status for each in found}

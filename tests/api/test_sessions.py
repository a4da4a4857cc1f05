"""Who the API lets in: tokens, browsers' sessions, certificates; over loopback and over TLS."""

from __future__ import annotations

import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.conftest import ApiController, Response
from tests.live import eventually

from syntony.client import Access, Client
from syntony.controller.client import ask
from syntony.errors import RemoteError, UsageError
from syntony.model import S
from syntony.wire.access_tokens import AccessTokenCommand, AccessTokensQuery, RevokeAccessCommand
from syntony.wire.control import ChangesQuery
from syntony.wire.messages import FleetQuery
from syntony.wire.rest import (
    CSRF,
    EVENTS,
    OIDC,
    OIDC_CALLBACK,
    OIDC_LOGIN,
    PREFIX,
    SESSION,
)
from syntony.wire.roles import Role

FLEET, SWITCH = f"{PREFIX}/fleet", f"{PREFIX}/switch"


def log_in(api: ApiController, token: str) -> tuple[str, Response]:
    """The cookie of a new session, and the response."""
    found = api.call("POST", SESSION, body={"token": token})
    cookie = found.headers.get("set-cookie", "")
    return cookie.partition(";")[0], found


def with_cookie(api: ApiController, method: str, path: str, cookie: str, **more: Any) -> Response:
    headers = {"Cookie": cookie} | more.pop("headers", {})
    return api.call(method, path, headers=headers, **more)


def number_of(api: ApiController, name: str, kind: str = "token") -> int:
    listed = ask(api.local, AccessTokensQuery()).tokens
    return next(each.number for each in reversed(listed) if (each.name, each.kind) == (name, kind))


def test_a_session_orders_with_its_csrf_token_only(api: ApiController) -> None:
    cookie, found = log_in(api, api.token("operator", "olga"))
    assert found.status == 200
    rules = found.headers["set-cookie"]
    assert "HttpOnly" in rules
    assert "SameSite=strict" in rules
    assert "Secure" not in rules, "a browser would not send it over http"
    view = found.json
    assert (view["role"], view["name"]) == ("operator", "olga")
    assert with_cookie(api, "GET", SESSION, cookie).json == view
    assert with_cookie(api, "GET", FLEET, cookie).status == 200
    stop = {"stopped": True}
    for headers in ({}, {CSRF: ""}, {CSRF: "0" * 64}, {CSRF: cookie.partition("=")[2]}):
        refused = with_cookie(api, "POST", SWITCH, cookie, body=stop, headers=headers)
        assert refused.problem[:2] == (403, "csrf")
    assert with_cookie(api, "DELETE", SESSION, cookie).problem[:2] == (403, "csrf")
    csrf = {CSRF: view["csrf"]}
    assert with_cookie(api, "POST", SWITCH, cookie, body=stop, headers=csrf).status == 200
    assert with_cookie(api, "DELETE", SESSION, cookie, headers=csrf).status == 204
    assert with_cookie(api, "GET", FLEET, cookie).problem[:2] == (401, "unauthenticated")
    whats = [(each.who, each.what) for each in ask(api.local, ChangesQuery()).changes]
    assert whats[-3:] == [("olga", "session"), ("olga", "failover switch"), ("olga", "session")]


def test_a_login_token_is_good_for_one_session_and_nothing_else(api: ApiController) -> None:
    token = api.token("viewer", "once", once=True)
    assert api.call("GET", FLEET, token).problem[:2] == (401, "unauthenticated")
    cookie, _ = log_in(api, token)
    _, again = log_in(api, token)
    assert "has been used" in again.problem[2]
    assert with_cookie(api, "GET", FLEET, cookie).status == 200
    secret = cookie.partition("=")[2]
    assert api.call("GET", FLEET, secret).problem[0] == 401, "a session is no bearer token"
    assert log_in(api, secret)[1].problem[0] == 401, "nor makes others"


def test_a_revoked_token_ends_its_sessions_at_once(api: ApiController) -> None:
    token = api.token("viewer", "leaver")
    cookie, _ = log_in(api, token)
    revoked = ask(api.local, RevokeAccessCommand(number=number_of(api, "leaver"), by="test"))
    assert len(revoked.numbers) == 2
    assert "has been revoked" in api.call("GET", FLEET, token).problem[2]
    assert with_cookie(api, "GET", FLEET, cookie).problem[0] == 401
    with pytest.raises(RemoteError, match="there is no access token 999"):
        ask(api.local, RevokeAccessCommand(number=999, by="test"))


def test_an_expired_token_says_so(api: ApiController) -> None:
    token = api.token("viewer", "brief", valid_ns=S)
    eventually(lambda: api.call("GET", FLEET, token).status == 401)
    assert "has expired" in api.call("GET", FLEET, token).problem[2]


def test_tokens_are_kept_as_digests_and_survive_a_restart(tmp_path: Path) -> None:
    api = ApiController(tmp_path)
    api.start()
    try:
        token = api.token("viewer", "kept")
        cookie, _ = log_in(api, token)
        api.end(signal.SIGKILL)
        files = [path for path in (tmp_path / "state").iterdir() if path.is_file()]
        assert files
        kept = b"".join(path.read_bytes() for path in files)
        assert token.encode() not in kept
        assert cookie.partition("=")[2].encode() not in kept
        api.start()
        assert api.call("GET", FLEET, token).status == 200
        assert with_cookie(api, "GET", FLEET, cookie).status == 200
        # Failures are answered in full only so often; who is known gets in all the same.
        found = [api.call("GET", FLEET, "wrong").status for _ in range(40)]
        assert found[:5] == [401] * 5
        assert 429 in found
        assert api.call("GET", FLEET, token).status == 200
    finally:
        api.end(signal.SIGKILL)


@pytest.mark.parametrize("header", ["Basic dXNlcg==", "Bearer", "Bearer  ", "bearer ü", ""])
def test_other_authorisation_is_none(api: ApiController, header: str) -> None:
    headers = {"Authorization": header.encode("utf-8").decode("latin-1")}
    found = api.call("GET", FLEET, headers=headers)
    assert found.status in {401, 429}
    if found.status == 401:
        assert found.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"role": "agent"}, "'agent' cannot use the API"),
        ({"name": "two words"}, "cannot be a name"),
        ({"valid_ns": 400 * 86_400 * S}, "valid for 1 s to 8784 h"),
        ({"valid_ns": 2 * 86_400 * S, "once": True}, "valid for 1 s to 24 h"),
        ({"valid_ns": 0}, "valid for 1 s"),
    ],
)
def test_tokens_that_cannot_be_made(api: ApiController, fields: dict[str, Any], line: str) -> None:
    command: dict[str, Any] = {
        "role": "viewer",
        "name": "x",
        "valid_ns": 60 * S,
        "by": "test",
    } | fields
    with pytest.raises(RemoteError, match=line):
        ask(api.local, AccessTokenCommand(**command))


def test_a_stream_tells_what_happens_resumes_and_ends_with_its_token(api: ApiController) -> None:
    token, operator = api.token("viewer", "watcher"), api.token("operator", "olga")
    api.call("POST", SWITCH, operator, {"stopped": False, "why": "first"})
    with Client(api.url, token=token) as client:
        stream = client.events()
        first = {event.topic: event for event in (next(stream) for _ in range(4))}
        assert set(first) == {"incidents", "fleet", "switch", "jobs"}
        assert first["switch"].data["stopped"] is False
        last_id = max(first.values(), key=lambda event: int(event.id.partition("-")[2])).id
        api.call("POST", SWITCH, operator, {"stopped": True, "why": "second"})
        told = next(event for event in stream if event.topic == "switch")
        assert (told.data["stopped"], told.data["by"]) == (True, "olga")
        stream.close()
        again = client.events(last_id)
        assert next(event for event in again if event.topic == "switch") == told
        ask(api.local, RevokeAccessCommand(number=number_of(api, "watcher"), by="test"))
        api.call("POST", SWITCH, operator, {"stopped": False, "why": "third"})
        assert not [event for event in again if event.topic == "switch"]
        eventually(lambda: "has been revoked" in refusal(client))


def refusal(client: Client) -> str:
    """Why a stream is refused: for a while, because other tests have failed to log in too often."""
    with pytest.raises(RemoteError) as refused:
        next(client.events())
    return str(refused.value)


def test_without_an_identity_provider_nobody_logs_in_by_one(api: ApiController) -> None:
    assert api.call("GET", OIDC).json == {"offered": False, "label": ""}
    for path in (OIDC_LOGIN, f"{OIDC_CALLBACK}?code=x&state=y"):
        found = api.call("GET", path)
        assert (found.status, found.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "set-cookie" not in found.headers
        assert b"Not logged in" in found.data
        assert b"no identity provider" in found.data
    with Client(api.url) as client, pytest.raises(UsageError, match="has no identity provider"):
        client.begin_device_login()


# --- over TLS ---


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiController]:
    controller = ApiController(tmp_path_factory.mktemp("remote"), "0.0.0.0")  # noqa: S104
    controller.start()
    try:
        yield controller
    finally:
        controller.end(signal.SIGKILL)


def trusting(api: ApiController) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(api.tls.ca))


def test_elsewhere_it_speaks_tls_1_3_only(remote: ApiController) -> None:
    token = remote.token()
    found = remote.call("GET", FLEET, token, context=trusting(remote))
    assert found.status == 200
    old = trusting(remote)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        remote.call("GET", FLEET, token, context=old)
    cookie = remote.call("POST", SESSION, body={"token": token}, context=trusting(remote)).headers[
        "set-cookie"
    ]
    assert cookie.startswith("__Host-syntony=")
    assert "Secure" in cookie


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.AGENT, Role.SCRAPER])
def test_certificates_have_the_rights_of_their_role(remote: ApiController, role: Role) -> None:
    tls = remote.issue(f"c-{role}", role, place=role)
    access = Access(ca=tls.ca, cert=tls.cert, key=tls.key)
    with Client(remote.url, access=access) as client:
        assert client.session().role == role
        if role in {Role.VIEWER, Role.OPERATOR}:
            client.ask(FleetQuery())
        else:
            with pytest.raises(RemoteError, match="needs the role operator or viewer"):
                client.ask(FleetQuery())
            with pytest.raises(RemoteError, match="live events need the role"):
                next(client.events())


def test_nobody_else_gets_in(remote: ApiController, tmp_path: Path) -> None:
    assert remote.call("GET", FLEET, context=trusting(remote)).problem[0] == 401
    assert remote.call("GET", EVENTS, context=trusting(remote)).problem[0] == 401
    from syntony.controller.pki import create_authority

    stranger = create_authority(tmp_path).issue(
        "x", Role.OPERATOR, addresses=[], lifetime_ns=3600 * S, directory=tmp_path / "tls"
    )
    access = Access(ca=str(remote.tls.ca), cert=str(stranger.cert), key=str(stranger.key))
    with Client(remote.url, access=access) as client, pytest.raises(RemoteError):
        client.ask(FleetQuery())


@pytest.mark.parametrize(
    "url", ["http://fleet.example:80", "ftp://x", "https://", "nonsense", "http://127.0.0.1/x?y",
            "http://127.0.0.1:x"],
)  # fmt: skip
def test_urls_that_are_none_or_would_show_the_token(url: str) -> None:
    with pytest.raises(UsageError):
        Client(url, token="t")  # noqa: S106 - none

"""Logging in by an OpenID Connect provider at a real controller, as a browser does it."""

from __future__ import annotations

import http.client
import signal
import threading
import urllib.parse
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.api.conftest import ApiController, Response
from tests.api.issuer import CLIENT, SECRET, Issuer, sign
from tests.live import eventually

from syntony.controller.client import ask
from syntony.wire.access_tokens import AccessTokensQuery, RevokeAccessCommand
from syntony.wire.control import Change, ChangesQuery
from syntony.wire.rest import CSRF, OIDC, OIDC_LOGIN, OIDC_LOGOUT, PREFIX, SESSION

FLEET, SWITCH = f"{PREFIX}/fleet", f"{PREFIX}/switch"


class Setting(NamedTuple):
    """A controller and the provider that it trusts."""

    api: ApiController
    issuer: Issuer


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    directory, issuer = tmp_path_factory.mktemp("oidc"), Issuer()
    api = ApiController(directory)
    (directory / "oidc.secret").write_text(SECRET)
    with api.config.open("a") as file:
        file.write(
            f'[oidc]\nissuer = "{issuer.url}"\nurl = "{api.url}"\nclient_id = "{CLIENT}"\n'
            f'client_secret_file = "{directory / "oidc.secret"}"\nlabel = "Example SSO"\n'
            'operators = ["fleet-operators"]\nviewers = ["fleet-viewers"]\n'
        )
    api.start()
    try:
        yield Setting(api, issuer)
    finally:
        api.end(signal.SIGKILL)
        issuer.end()


@pytest.fixture
def setting(running: Setting) -> Iterator[Setting]:
    """With a provider that behaves, and somebody who may operate."""
    before = dict(running.issuer.person)
    yield running
    running.issuer.person, running.issuer.make = before, sign
    running.issuer.tokens = None


def begin(setting: Setting) -> tuple[str, str]:
    """The cookie that a browser gets, and where the provider sends it back to."""
    found = setting.api.call("GET", OIDC_LOGIN)
    assert found.status == 303, found
    cookie = found.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie, "a strict one would not come back from another site"
    return cookie.partition(";")[0], path_of(setting.issuer.consent(found.headers["location"]))


def path_of(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return f"{parts.path}?{parts.query}"


def end(setting: Setting, cookie: str, path: str) -> Response:
    return setting.api.call("GET", path, headers={"Cookie": cookie})


def with_query(path: str, **changes: str | None) -> str:
    """The path with other parameters; None: without that one."""
    parts = urllib.parse.urlsplit(path)
    query = dict(urllib.parse.parse_qsl(parts.query)) | changes
    kept = {name: value for name, value in query.items() if value is not None}
    return f"{parts.path}?{urllib.parse.urlencode(kept)}"


def session_cookie(api: ApiController, path: str, cookie: str) -> str:
    """Of a login that is good: that of the session, once that of the login is taken away."""
    connection = http.client.HTTPConnection("127.0.0.1", api.api_port, timeout=600)
    connection.request("GET", path, headers={"Cookie": cookie})
    found = connection.getresponse()
    found.read()
    cookies = found.headers.get_all("set-cookie") or []
    connection.close()
    assert (found.status, found.headers["location"]) == (303, "/"), found
    gone, session = sorted(cookies, key=lambda each: "strict" in each)
    assert gone.startswith(f'{cookie.partition("=")[0]}=""')
    assert "SameSite=strict" in session
    assert "HttpOnly" in session
    return session.partition(";")[0]


def refusal(found: Response, status: int) -> str:
    """The page of a refused login, which begins no session."""
    assert found.status == status, found
    assert found.headers["content-type"].startswith("text/html")
    assert "set-cookie" not in found.headers
    assert "Not logged in" in found.data.decode()
    return found.data.decode()


def changes(api: ApiController) -> list[Change]:
    return list(ask(api.local, ChangesQuery()).changes)


def test_an_operator_logs_in_and_the_audit_log_says_who(setting: Setting) -> None:
    api = setting.api
    assert api.call("GET", OIDC).json == {"offered": True, "label": "Example SSO"}
    cookie, path = begin(setting)
    session = session_cookie(api, path, cookie)
    view = api.call("GET", SESSION, headers={"Cookie": session}).json
    assert (view["role"], view["name"]) == ("operator", "olga")
    headers = {"Cookie": session, CSRF: view["csrf"]}
    assert api.call("POST", SWITCH, body={"stopped": True}, headers=headers).status == 200
    begun, stopped = changes(api)[-2:]
    number = ask(api.local, AccessTokensQuery()).tokens[-1].number
    assert (begun.who, begun.what, begun.after) == ("olga", "session", f"{number}: operator olga")
    assert begun.comment == f"OIDC subject 0815 of {setting.issuer.url}"
    assert (stopped.who, stopped.what) == ("olga", "failover switch")
    assert stopped.origin.endswith(f", OIDC session {number}")
    ask(api.local, RevokeAccessCommand(number=number, by="test"))
    assert api.call("GET", FLEET, headers={"Cookie": session}).problem[0] == 401


def test_who_logs_out_is_sent_to_log_out_at_the_provider(setting: Setting) -> None:
    api = setting.api
    cookie, path = begin(setting)
    headers = {"Cookie": session_cookie(api, path, cookie)}
    view = api.call("GET", SESSION, headers=headers).json
    assert view["by_provider"]
    assert api.call("DELETE", SESSION, headers=headers | {CSRF: view["csrf"]}).status == 204
    found = api.call("GET", OIDC_LOGOUT)
    assert found.status == 303
    place, _, query = found.headers["location"].partition("?")
    assert place == f"{setting.issuer.url}/end-session"
    back = {"client_id": CLIENT, "post_logout_redirect_uri": f"{api.url}/"}
    assert dict(urllib.parse.parse_qsl(query)) == back
    by_token = api.call("POST", SESSION, body={"token": api.token()})
    headers = {"Cookie": by_token.headers["set-cookie"].partition(";")[0]}
    assert not api.call("GET", SESSION, headers=headers).json["by_provider"]


def test_a_viewer_looks_only(setting: Setting) -> None:
    setting.issuer.person |= {"preferred_username": "victor", "groups": ["fleet-viewers"]}
    cookie, path = begin(setting)
    session = session_cookie(setting.api, path, cookie)
    view = setting.api.call("GET", SESSION, headers={"Cookie": session}).json
    assert (view["role"], view["name"]) == ("viewer", "victor")
    headers = {"Cookie": session, CSRF: view["csrf"]}
    found = setting.api.call("POST", SWITCH, body={"stopped": False}, headers=headers)
    assert found.problem[:2] == (403, "denied")


def test_who_has_no_role_gets_no_session(setting: Setting) -> None:
    setting.issuer.person |= {"preferred_username": "mallory", "groups": ["interns"]}
    before = len(changes(setting.api))
    assert "mallory has no role here" in refusal(end(setting, *begin(setting)), 403)
    assert len(changes(setting.api)) == before


def test_a_hostile_name_stays_text(setting: Setting) -> None:
    setting.issuer.person["preferred_username"] = "<script>alert(1)</script>"
    page = refusal(end(setting, *begin(setting)), 403)
    assert "&lt;script&gt;" in page
    assert "<script" not in page


def test_a_token_that_is_not_acceptable_begins_no_session(setting: Setting) -> None:
    setting.issuer.make = lambda claims: sign(claims | {"nonce": "guessed"})
    assert "of another login" in refusal(end(setting, *begin(setting)), 401)


def test_a_login_ends_in_the_browser_that_began_it_once(setting: Setting) -> None:
    cookie, path = begin(setting)
    other, _ = begin(setting)
    assert "has begun no login" in refusal(setting.api.call("GET", path), 401)
    assert "began last (state)" in refusal(end(setting, other, path), 401)
    session_cookie(setting.api, path, cookie)
    assert "refuses the login" in refusal(end(setting, cookie, path), 401), "a code is used once"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"state": None}, "(state)"),
        ({"state": "ü"}, "(state)"),
        ({"iss": "https://evil.example"}, "(iss)"),
        ({"code": None}, "sent no code"),
        ({"error": "access_denied", "error_description": "<img src=x>"}, "&lt;img src=x&gt;"),
    ],
)
def test_what_comes_back_must_fit(
    setting: Setting, given: dict[str, str | None], line: str
) -> None:
    cookie, path = begin(setting)
    found = end(setting, cookie, with_query(path, **given))
    if found.status != 429:  # ten failures of one address, then one in five seconds
        assert line in refusal(found, 401)


def test_a_provider_that_hangs_harms_nobody_who_has_a_token(setting: Setting) -> None:
    logins = [begin(setting) for _ in range(5)]
    setting.issuer.hang.clear()
    before = len(setting.issuer.asked)
    found: list[Response] = []
    waiting = [
        threading.Thread(target=lambda each=each: found.append(end(setting, *each)))
        for each in logins
    ]
    try:
        for thread in waiting:
            thread.start()
        eventually(lambda: len(setting.issuer.asked) >= before + 4)
        token = setting.api.token("viewer", "v")
        cookie = setting.api.call("POST", SESSION, body={"token": token}).headers["set-cookie"]
        assert "syntony" in cookie
        assert setting.api.call("GET", FLEET, token).status == 200
    finally:
        setting.issuer.hang.set()
        for thread in waiting:
            thread.join()
    assert {each.status for each in found} <= {303, 502}, "those that waited too long are told"


def test_a_provider_that_answers_nonsense_is_told(setting: Setting) -> None:
    login = begin(setting)
    setting.issuer.tokens = {"id_token": 7}
    page = refusal(end(setting, *login), 502)
    assert f"the identity provider {setting.issuer.url} sends an unusable answer" in page
    assert setting.api.call("GET", FLEET, setting.api.token()).status == 200

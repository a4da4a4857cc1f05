"""Contexts: which fleet is meant when no option says so, and the file they are kept in."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from syntony.cli import contexts, run
from syntony.cli.contexts import Context, Contexts
from syntony.cli.fleet import fleet_target
from syntony.client import Access, Client
from syntony.errors import ConfigError, RemoteError, UsageError

NO_TLS = (None, None, None)
URL, OTHER = "https://fleet.example:8445", "https://other.example:8445"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("CONTROLLER", "TOKEN", "CA", "CERT", "KEY"):
        monkeypatch.delenv(f"SYNTONY_{name}", raising=False)
    return tmp_path


def known(current: str = "") -> None:
    one = Context(url=URL, token="t1", ca="/ca")  # noqa: S106 - none
    contexts.save(Contexts(current=current, contexts={"one": one}))


def test_the_context_in_use_is_meant_where_no_option_says_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known("one")
    target = fleet_target(None, None, NO_TLS)
    assert (target.address, target.access) == (URL, Access("t1", "/ca"))
    monkeypatch.setenv("SYNTONY_CONTROLLER", "unix:/x.sock")
    assert fleet_target(None, None, NO_TLS).address == "unix:/x.sock"
    given = fleet_target(None, "unix:/y.sock", NO_TLS)
    assert (given.address, given.access) == ("unix:/y.sock", None)


def test_a_url_takes_its_contexts_token_or_the_environments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known()
    assert fleet_target(None, URL + "/", NO_TLS).access == Access("t1", "/ca")
    with pytest.raises(UsageError, match=f"no token for {OTHER}; run: syntony login {OTHER}"):
        fleet_target(None, OTHER, NO_TLS)
    monkeypatch.setenv("SYNTONY_TOKEN", "t2")
    monkeypatch.setenv("SYNTONY_CA", "/env")
    assert fleet_target(None, OTHER, NO_TLS).access == Access("t2", "/env")
    assert fleet_target(None, URL, ("/opt", None, None)).access == Access("t2", "/opt")


def test_a_certificate_needs_no_token() -> None:
    target = fleet_target(None, OTHER, ("/ca", "/cert", "/key"))
    assert target.access == Access("", "/ca", "/cert", "/key")


def test_the_file_is_its_owners_alone(home: Path) -> None:
    known("one")
    path = contexts.place()
    assert path.is_relative_to(home)
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_damaged_file_is_named() -> None:
    known()
    contexts.place().write_text("{")
    with pytest.raises(ConfigError, match=r"contexts\.json: .*remove it and log in again"):
        fleet_target(None, None, NO_TLS)


def test_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    known()
    assert run(["context", "use", "one"]) == 0
    assert contexts.load().current == "one"
    assert run(["context", "list"]) == 0
    listed = capsys.readouterr().out
    assert URL in listed
    assert "t1" not in listed
    assert run(["context", "use", "two"]) == 2
    assert "there is no context 'two'; known: one" in capsys.readouterr().err
    assert run(["context", "use"]) == 2
    assert run(["context", "use", "--none"]) == 0
    assert contexts.load().current == ""
    assert run(["context", "remove", "one"]) == 0
    assert contexts.load() == Contexts()
    assert run(["context", "list"]) == 0
    assert "make one: syntony login" in capsys.readouterr().out


def test_logging_in_where_nobody_is_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    known("one")
    monkeypatch.setattr("sys.stdin", io.StringIO("token\n"))
    assert run(["login", "http://127.0.0.1:1"]) == 3
    assert "no controller answers at http://127.0.0.1:1" in capsys.readouterr().err
    assert contexts.load().current == "one"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["localhost:8445"], "'localhost:8445' is not the URL of a controller"),
        (["https://localhost:8445", "--ca", "/nowhere/ca.crt"], "/nowhere/ca.crt: cannot be used"),
    ],
)
def test_a_wrong_url_or_file_is_named_before_the_token_is_asked_for(
    words: list[str],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import io

    typed = io.StringIO("token\n")
    monkeypatch.setattr("sys.stdin", typed)
    assert run(["login", *words]) == 2
    assert why in capsys.readouterr().err
    assert typed.tell() == 0


def test_https_to_a_port_that_speaks_http_is_called_that() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.timeout = 10
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        url = f"127.0.0.1:{server.server_port}"
        with Client(f"https://{url}") as client, pytest.raises(RemoteError) as refused:
            client.session()
        serving.join()
    assert str(refused.value) == (
        f"https://{url}: https:// to a port that speaks http; use http://{url}"
    )

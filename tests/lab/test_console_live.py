"""A lab's API and console, asked from outside its namespaces."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from pathlib import Path

import pytest
from tests.live import eventually, live, syntony

from syntony.cli import contexts
from syntony.client import Client
from syntony.errors import RemoteError
from syntony.wire.control import ControllerQuery
from syntony.wire.rest import SESSION

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("able")]
NAME = "console-live"
SMALL = ("--hosts", "2", "--rails", "1", "--leaves", "1", "--spines", "1")


def log_in(url: str) -> int:
    """Status of exchanging the token in a printed URL for a session."""
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)", url)
    assert found is not None, url
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=600)
    body = json.dumps({"token": found[2]})
    connection.request("POST", SESSION, body, {"Content-Type": "application/json"})
    with contextlib.closing(connection):
        return connection.getresponse().status


def test_the_console_is_there_from_outside_and_over_a_restart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with live(NAME, *SMALL, agents=True) as lab:
        link = syntony("lab", "console", "--lab", NAME).stdout.strip()
        assert [log_in(link), log_in(link)] == [200, 401]
        assert (
            f"console: {link.partition('#')[0]}" in syntony("lab", "status", "--lab", NAME).stdout
        )
        url = link.partition("/#")[0]
        token = syntony("enrol", "api", "token", "viewer", "eve", "--lab", NAME).stdout.strip()
        contexts.save(
            contexts.Contexts(current="it", contexts={"it": contexts.Context(url=url, token=token)})
        )
        listed = syntony("incidents", "list", "--json")
        assert "incidents" in json.loads(listed.stdout), listed.stderr
        refused = syntony("failover", "stop", "--why", "x")
        assert refused.returncode == 3
        assert "needs the role operator" in refused.stderr
        with Client(url, token=token, timeout_ns=60_000_000_000) as client:
            before = client.ask(ControllerQuery()).epoch
            lab.inject("controller-kill", "", for_ns=500_000_000)

            def answers() -> bool:
                try:
                    return client.ask(ControllerQuery()).epoch > before
                except RemoteError:
                    return False

            eventually(answers, "the next controller serves the same port", within_s=240)

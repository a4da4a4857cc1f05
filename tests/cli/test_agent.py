import json

import pytest
from tests.live import syntony

from syntony.cli import run


def test_check_names_everything_it_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["agent", "check", "lo", "--json"])
    found = {row["name"]: row["ok"] for row in json.loads(capsys.readouterr().out)}
    assert found["lo: kernel stamps"] is True
    assert {"user namespaces", "CAP_NET_ADMIN", "MPTCP"} <= set(found)
    expected = 1 if False in found.values() else 3 if None in found.values() else 0
    assert code == expected


def test_check_refuses_an_unknown_nic(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["agent", "check", "nope0"]) == 2
    assert "no interface 'nope0' here; this host has" in capsys.readouterr().err


def test_an_unknown_log_level_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["agent", "--log-level", "loud"]) == 2
    assert "'loud' is not one of 'debug', 'info'" in capsys.readouterr().err


def test_a_missing_configuration_is_one_line() -> None:
    done = syntony("agent", "--config", "/nowhere/agent.toml")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "syntony: error: /nowhere/agent.toml: cannot be read: No such file"
    )

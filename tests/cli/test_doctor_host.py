"""`syntony doctor --for …`: the first step that is not done, and the command for it."""

from __future__ import annotations

import getpass
import json
import os
import socket
from pathlib import Path

import pytest
from tests.live import syntony

from syntony.cli import doctor_host, run

AGENT = """\
host = "gpu001"
controller = "127.0.0.1:1"
spool_dir = "{place}/spool"
[tls]
ca = "{place}/ca/ca.crt"
cert = "{place}/tls/gpu001.crt"
key = "{place}/tls/gpu001.key"
[[nics]]
name = "{nic}"
rail = 0
"""
CONTROLLER = """\
listen = "127.0.0.1:8443"
tls_ca = "{place}/ca/tls/ca.crt"
tls_cert = "{place}/ca/tls/controller.crt"
tls_key = "{place}/ca/tls/controller.key"
local_socket = "{place}/controller.sock"
[enrolment]
listen = "127.0.0.1:8444"
authority = "{place}/ca"
"""


def asked(role: str, file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str, int]:
    """Steps that are done, the next command, and the exit code."""
    code = run(["doctor", "--for", role, "--config", str(file), "--json"])
    said = capsys.readouterr()
    done = [check["name"] for check in json.loads(said.out) if check["level"] == "ok"]
    return done, said.err.strip(), code


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_host, "USER", getpass.getuser())


def test_a_host_without_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, hint, code = asked("agent", tmp_path / "agent.toml", capsys)
    assert (done, code) == ([], 2)
    assert hint.startswith("next: apt install syntony-agent")


def test_each_step_of_an_agent_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(AGENT.format(place=tmp_path, nic="nope0"))
    done, hint, code = asked("agent", file, capsys)
    assert (done, code) == (["configuration"], 2)
    assert "edit" in hint

    file.write_text(AGENT.format(place=tmp_path / "missing", nic="lo"))
    done, hint, _ = asked("agent", file, capsys)
    assert done[-1] == "user"
    assert "install -d -m 700" in hint

    file.write_text(AGENT.format(place=tmp_path, nic="lo"))
    done, hint, _ = asked("agent", file, capsys)
    assert done[-1] == "directory"
    assert "enrol join gpu001 --at 127.0.0.1:8444" in hint
    assert "syntony enrol token agent gpu001" in hint


def test_an_agent_that_cannot_reach_its_controller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a real certificate: the authority's own, for want of another without a controller."""
    made = syntony("enrol", "authority", str(tmp_path / "ca"), "--address", "localhost")
    assert made.returncode == 0, made.stderr
    tls = tmp_path / "tls"
    tls.mkdir()
    for end in ("crt", "key"):
        (tls / f"gpu001.{end}").write_bytes((tmp_path / f"ca/tls/controller.{end}").read_bytes())
    file = tmp_path / "agent.toml"
    file.write_text(AGENT.format(place=tmp_path, nic="lo"))
    done, hint, code = asked("agent", file, capsys)
    assert done[-1] == "certificate"
    assert "open TCP to 127.0.0.1:1" in hint
    assert code == 2


def test_a_controller_needs_an_authority_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_host, "HOME", tmp_path)
    file = tmp_path / "controller.toml"
    file.write_text(CONTROLLER.format(place=tmp_path))
    done, hint, _ = asked("controller", file, capsys)
    assert done[-1] == "directory"
    assert f"enrol authority {tmp_path}/ca --address" in hint
    assert syntony("enrol", "authority", str(tmp_path / "ca"), "--address", "h").returncode == 0
    done, hint, code = asked("controller", file, capsys)
    assert done[-1] == "certificate"
    assert "syntony-controller" in hint
    assert code == 2


def test_somebody_elses_directory_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "agent.toml"
    # /proc/1 is root's; for root itself a directory is given away.
    other = Path("/proc/1")
    if os.geteuid() == 0:
        other = tmp_path / "other"
        other.mkdir()
        os.chown(other, 65534, 65534)
    text = AGENT.format(place=tmp_path, nic="lo")
    file.write_text(text.replace(f"{tmp_path}/spool", f"{other}/spool"))
    done, hint, _ = asked("agent", file, capsys)
    assert done[-1] == "user"
    assert "install -d" in hint


def test_one_controller_of_several_is_enough() -> None:
    """A standby does not answer; where none does, each is named."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        up = f"127.0.0.1:{server.getsockname()[1]}"
        assert doctor_host._reached(("127.0.0.1:1", up)) == up
        with pytest.raises(doctor_host.StepNotDoneError, match=r"127.0.0.1:1: .*; nonsense: "):
            doctor_host._reached(("127.0.0.1:1", "nonsense"))

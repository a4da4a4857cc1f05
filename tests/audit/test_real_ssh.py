"""Audits over the system's ssh to a real sshd: hosts that answer, refuse, hang, or say half."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.audit import sshd

from syntony.cli import run
from syntony.io.audit.ssh import ssh_words
from syntony.io.audit.survey import SurveyOptions, ssh_argv, survey
from syntony.model import S
from syntony.model.names import host_of

pytestmark = pytest.mark.skipif(
    sshd.SSHD is None or sshd.KEYGEN is None,
    reason="needs sshd (Debian: openssh-server): audits over SSH are NOT tested with a real server",
)
REFUSED = {
    "stranger": "Permission denied (publickey)",
    "changed": "Host key verification failed",
    "closed": "Connection refused",
    "python-less": "python3: not found",
    "chatty": "it said 'Willkommen'; does a login script",
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with sshd.running(tmp_path_factory.mktemp("sshd")) as path:
        yield path


@pytest.fixture(autouse=True)
def kept_runs_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_every_host_is_told_by_itself(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Port, key and known hosts come from the configuration; who fails holds up nobody."""
    alive = ["plain", "german", *(["half"] if os.geteuid() == 0 else [])]
    words = ["audit", "run", f"--ssh-config={config}", "--hosts", ",".join([*alive, *REFUSED]),
             "--check", "sw.os", "--check", "fe.iface", "--check", "mem.total", "--json",
             ]  # fmt: skip
    assert run(words) == 2
    found = json.loads(capsys.readouterr().out)
    dead = {each["subject"]: each["evidence"] for each in found if each["check"] == "node.reach"}
    assert dead.keys() == REFUSED.keys()
    for host, why in REFUSED.items():
        assert why in dead[host]
        assert len(dead[host].splitlines()) == 1
    said = {
        host: sorted((e["check"], e["got"]) for e in found if host_of(e["subject"]) == host)
        for host in alive
    }
    # The same machine in another language and with fewer rights: these checks read what all may.
    assert len(said["plain"]) >= 3
    assert all(each == said["plain"] for each in said.values()), said


@pytest.mark.skipif(
    os.geteuid() != 0,
    reason="needs root, to give rights up: audits over SSH as another user are NOT tested",
)
def test_half_permissions_are_unknown_and_never_a_pass(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "run", f"--ssh-config={config}", "--check", "mem.dimms", "--json"]
    run([*words, "--hosts", "half"])
    (said,) = json.loads(capsys.readouterr().out)
    assert said["subject"] == "half"
    assert said["status"] in {"unknown", "skip"}
    assert said["evidence"]


def test_a_host_that_hangs_costs_its_deadline(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "run", f"--ssh-config={config}", "--hosts", "hangs", "--deadline", "2s"]
    assert run([*words, "--check", "sw.os", "--json"]) == 2
    (said,) = json.loads(capsys.readouterr().out)
    assert (said["subject"], said["check"]) == ("hangs", "node.reach")
    assert said["evidence"] == "no answer over ssh in 2 s"


def test_a_survey_goes_on_without_who_cannot_take_part(config: Path) -> None:
    hosts = ("plain", "german", "stranger", "closed", "chatty")
    argv = ssh_argv(ssh_words(config=str(config)))
    seen = survey(hosts, argv, ["*"], SurveyOptions(ports=1))
    # Both hosts are this machine, and one program can have the port: the other says so.
    assert {"stranger", "closed", "chatty"} <= seen.silent.keys()
    assert "Permission denied" in seen.silent["stranger"]
    assert "Connection refused" in seen.silent["closed"]
    assert seen.silent["chatty"] == "invalid answer 'Willkommen'"
    gone = {"plain", "german"} & seen.silent.keys()
    assert len(gone) == 1
    assert "Address already in use" in seen.silent[gone.pop()]
    late = survey(("hangs",), argv, ["*"], SurveyOptions(deadline_ns=2 * S))
    assert late.silent == {"hangs": "no answer in time"}


def test_bandwidth_over_ssh(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both are this machine, by another name and in another language."""
    words = ["audit", "bandwidth", f"--ssh-config={config}", "--seconds", "1", "--streams", "2"]
    assert run([*words, "--hosts", "plain,german", "--at-least", "0.001", "--json"]) == 0
    (reported,) = json.loads(capsys.readouterr().out)
    assert (reported["check"], reported["status"]) == ("fe.bw", "pass")
    assert "Gb/s" in reported["got"]
    assert run([*words, "--hosts", "plain,closed", "--json"]) == 3
    (reported,) = json.loads(capsys.readouterr().out)
    assert reported["status"] == "unknown"
    assert "closed: " in reported["evidence"]

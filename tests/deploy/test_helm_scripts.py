"""Scripts of the Helm chart, run with their configuration: a controller prepares itself, an agent
joins."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.chart import CASES, one, rendered

from syntony.agent.config import AgentConfig
from syntony.config import load_config
from syntony.controller.config import ControllerConfig
from syntony.controller.pki import create_authority


def script(values: dict[str, Any], kind: str, name: str, file: str, place: Path) -> Path:
    """A script of the chart and its configuration, their paths below `place`."""
    found = one(rendered(values), kind, name)
    data: dict[str, str] = found.get("data") or found["stringData"]
    for path in (
        "config",
        "etc/syntony",
        "var/lib/syntony-ca",
        "var/lib/syntony",
        "authority",
        "tokens",
    ):
        (place / path).mkdir(parents=True, exist_ok=True)
    for key, text in data.items():
        moved = re.sub(
            r"(?<![\w.@])/(config|etc/syntony|var/lib|authority|tokens)\b", rf"{place}/\1", text
        )
        (place / "config" / key).write_text(moved if key.endswith(".sh") else text)
    return place / "config" / file


@pytest.mark.parametrize("case", ["minimal", "full"])
def test_a_controller_prepares_itself(case: str, tmp_path: Path) -> None:
    """Configuration that the controller accepts, and a certificate of its own under all names."""
    prepare = script(CASES[case], "Secret", "syntony-controller", "prepare.sh", tmp_path)
    create_authority(tmp_path / "authority")
    done = subprocess.run(
        ["sh", prepare], capture_output=True, text=True, check=False,
        env={
            **os.environ, "POD_NAME": "syntony-controller-1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    config = load_config(tmp_path / "etc/syntony/controller.toml", ControllerConfig)
    assert config.standby == (case == "full")
    assert config.tls_cert == "/var/lib/syntony-ca/tls/syntony-controller-1.crt"
    tls = tmp_path / "var/lib/syntony-ca/tls"
    own = tls / "syntony-controller-1.crt"
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", own],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    hosts = re.findall(r"DNS:([^,\s]+)", shown)
    assert "syntony-controller-1.syntony-controller.fleet.svc" in hosts
    assert "syntony-console.fleet.svc" in hosts
    assert ("syntony.example" in hosts) == (case == "full")
    assert (tls / "syntony-controller-1.key").stat().st_mode & 0o077 == 0
    agents = one(rendered(CASES[case]), "ConfigMap", "syntony-agent")["data"]["agent.toml"]
    dialled = tomllib.loads(agents)["controller"]
    for address in dialled:
        assert address.replace("controller-0.", "controller-1.").removesuffix(":8443") in hosts


@pytest.mark.parametrize("case", CASES)
def test_an_agent_joins_once_for_each_token(case: str, tmp_path: Path) -> None:
    """With the real `config check`; `enrol join` only writes down that it was asked."""
    join = script(CASES[case], "ConfigMap", "syntony-agent", "join.sh", tmp_path)
    stand_in = tmp_path / "bin/syntony"
    stand_in.parent.mkdir()
    real = shutil.which("syntony") or str(Path(".venv/bin/syntony").resolve())
    stand_in.write_text(
        f'#!/bin/sh\n[ "$1" = enrol ] || exec {real} "$@"\n'
        f'echo "$* $(cat)" >>{tmp_path}/asked\nexit $(cat {tmp_path}/answer)\n'
    )
    stand_in.chmod(0o755)
    answer, asked = tmp_path / "answer", tmp_path / "asked"
    answer.write_text("0")
    asked.touch()
    token = tmp_path / "tokens/gpu001"
    path = f"{stand_in.parent}:{os.environ['PATH']}"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", join], capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": path, "NODE_NAME": "gpu001"},
        )  # fmt: skip

    without = run()
    assert without.returncode == 1
    assert "syntony enrol token agent gpu001" in without.stderr
    token.write_text("one")
    answer.write_text("3")
    assert run().returncode == 3  # the controller did not answer: tried again
    answer.write_text("0")
    assert run().returncode == 0
    assert run().returncode == 0
    token.write_text("two")
    assert run().returncode == 0
    lines = asked.read_text().splitlines()
    assert [line.split()[-1] for line in lines] == ["one", "one", "two"]
    at = "syntony.example:8444" if case == "elsewhere" else "syntony-enrol.fleet.svc:8444"
    assert all(line.startswith(f"enrol join gpu001 --at {at} ") for line in lines)
    token.unlink()
    (tmp_path / "var/lib/syntony/tls").mkdir()
    (tmp_path / "var/lib/syntony/tls/gpu001.crt").write_text("x")
    assert run().returncode == 0
    config = load_config(tmp_path / "etc/syntony/agent.toml", AgentConfig)
    assert config.host == "gpu001"
    assert config.nics[0].name == "eth2"
    assert config.tls.key == "/var/lib/syntony/tls/gpu001.key"

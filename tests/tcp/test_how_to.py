"""The how-to page's ways to set the environment: each gives a program the same sockets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.tcp.conftest import Compile, Hosts

from syntony.io.interposer import tcp_library

pytestmark = pytest.mark.lab
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-a-job.md"
PLACE = "/opt/syntony/libsyntony_tcp.so"


def snippet(language: str, containing: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = (block for block in blocks if containing in block)
    assert PLACE in found
    return str(found).replace(PLACE, str(tcp_library()))


def is_multipath(hosts: Hosts, variables: dict[str, str], program: str) -> bool:
    words = ("env", "-i", *(f"{name}={value}" for name, value in variables.items()))
    assert hosts.lab.run("h0", *words, "sh", "-c", "echo $SYNTONY_JOB").strip()
    return hosts.lab.run("h0", *words, program, "show") == "mptcp\n"


def test_systemd(hosts: Hosts, compiled: Compile) -> None:
    pairs = re.findall(r"^Environment=(\w+)=(\S+)$", snippet("ini", "[Service]"), re.MULTILINE)
    assert is_multipath(hosts, dict(pairs), compiled("tcp_calls"))


def test_kubernetes(hosts: Hosts, compiled: Compile) -> None:
    pairs = re.findall(r"- name: ([A-Z_]+)\n\s+value: (\S+)\n", snippet("yaml", "containers:"))
    assert len(pairs) == 2
    assert is_multipath(hosts, dict(pairs), compiled("tcp_calls"))


def test_slurm(hosts: Hosts, compiled: Compile, tmp_path: Path) -> None:
    """Its script is run as it is; `srun` is stood in for by what shows the task's socket."""
    srun = tmp_path / "srun"
    program = compiled("tcp_calls")
    srun.write_text(f'#!/bin/sh\necho "$SYNTONY_JOB $*"\nexec {program} show\n')
    srun.chmod(0o755)
    batch = tmp_path / "batch"
    batch.write_text(snippet("sh", "#SBATCH"))
    said = hosts.lab.run(
        "h0", "env", "-i", f"PATH={tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID=4711", "sh", str(batch)
    )
    assert said == "slurm-4711 torchrun train.py\nmptcp\n"

"""Which PyTorch is used, and that what would be installed is never the CUDA build."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from syntony.cli._drill import chosen_job
from syntony.errors import MissingError
from syntony.lab.jobs import torch_build


def fake(directory: Path, name: str, code: int) -> str:
    path = directory / name
    path.write_text(f"#!/bin/sh\nexit {code}\n", encoding="ascii")
    path.chmod(0o755)
    return str(path)


def test_a_named_interpreter_is_the_only_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = fake(tmp_path, "has", 0)
    monkeypatch.setenv(torch_build.VARIABLE, has)
    assert torch_build.find_torch() == has
    monkeypatch.setenv(torch_build.VARIABLE, fake(tmp_path, "lacks", 1))
    with pytest.raises(MissingError, match=r"not in \S*lacks; install it: pip install .*\+cpu$"):
        torch_build.find_torch()
    with pytest.raises(MissingError, match=r"\+cpu; or use --job builtin$"):
        chosen_job("ddp")


def test_the_first_that_has_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(torch_build.VARIABLE, raising=False)
    monkeypatch.setattr(sys, "executable", fake(tmp_path, "ours", 1))
    has = fake(tmp_path, "python3", 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert torch_build.find_torch() == has


def test_only_the_cpu_build_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    words = torch_build.install_argv()
    assert words[-1].endswith("+cpu")
    assert words[words.index("--extra-index-url") + 1].endswith("/whl/cpu")


def test_what_is_fetched_is_said_and_a_failure_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(torch_build.VARIABLE, fake(tmp_path, "lacks", 1))
    said: list[str] = []

    def no_network(argv: list[str], **_how: object) -> subprocess.CompletedProcess[str]:
        if "install" not in argv:
            return subprocess.CompletedProcess(argv, 1, "", "")
        return subprocess.CompletedProcess(argv, 1, "", "a\nERROR: No matching distribution\n")

    monkeypatch.setattr(subprocess, "run", no_network)
    with pytest.raises(MissingError, match="cannot be installed: ERROR: No matching"):
        torch_build.fetch_torch(said.append)
    assert torch_build.REQUIREMENT in said[0]
    assert torch_build.CPU_INDEX in said[0]


def test_without_it_jobs_are_plain_sockets_and_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(torch_build.VARIABLE, fake(tmp_path, "lacks", 1))
    said: list[str] = []
    assert torch_build.torch_or_plain_sockets(said.append) == (
        "builtin", "all-reduce", sys.executable)  # fmt: skip
    assert len(said) == 1
    assert said[0].startswith("going on with plain sockets: PyTorch with gloo is not in")


def test_an_installed_one_is_used_and_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = fake(tmp_path, "has", 0)
    monkeypatch.setenv(torch_build.VARIABLE, has)
    said: list[str] = []
    torch_build.fetch_torch(said.append)
    assert torch_build.torch_or_plain_sockets(said.append) == ("gloo", "ddp", has)
    assert not said

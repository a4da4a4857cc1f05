"""`syntony run --nccl`: what it sets, and what it says where there is nothing to use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import syntony.io
from syntony.cli.run_job import command
from syntony.errors import MissingError, UsageError
from syntony.io.nccl_plugin import (
    NEXT_VARIABLE,
    PROFILER_VARIABLE,
    net_plugin,
    plugin_environment,
    profiler_environment,
    profiler_plugin,
    rdma_ports,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def plugin() -> Path:
    try:
        return net_plugin()
    except MissingError as error:
        pytest.skip(f"{error}: it is NOT tested")


def _environment(*options: str) -> dict[str, str]:
    done = CliRunner().invoke(command, [*options, "--dry-run", "--json", "--", "true"])
    assert done.exit_code == 0, done.output
    environment: dict[str, str] = json.loads(done.stdout)["environment"]
    return environment


def test_names_the_plugin_only_if_asked(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_NET_PLUGIN", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/cuda/lib")
    added = _environment("--nccl")
    assert added["NCCL_NET_PLUGIN"] == "syntony"
    assert added["LD_LIBRARY_PATH"] == f"/opt/cuda/lib:{plugin.parent}"
    assert "SYNTONY_AGENT" in added
    assert not {"NCCL_NET_PLUGIN", "LD_LIBRARY_PATH"} & set(_environment())


@pytest.fixture
def profiler() -> Path:
    try:
        return profiler_plugin()
    except MissingError as error:
        pytest.skip(f"{error}: it is NOT tested")


def test_the_profiler_goes_with_nccl_unless_switched_off(
    plugin: Path, profiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plugin.parent == profiler.parent
    for name in ("LD_LIBRARY_PATH", "NCCL_NET_PLUGIN", PROFILER_VARIABLE, NEXT_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    both, alone = _environment("--nccl"), _environment("--nccl-profiler")
    assert both[PROFILER_VARIABLE] == alone[PROFILER_VARIABLE] == profiler.name
    assert both["LD_LIBRARY_PATH"] == alone["LD_LIBRARY_PATH"] == str(profiler.parent)
    assert "NCCL_NET_PLUGIN" not in alone
    for options in (("--nccl", "--no-nccl-profiler"), ()):
        assert PROFILER_VARIABLE not in _environment(*options)


@pytest.mark.parametrize("wanted", ["inspector", "/opt/libprofiler.so"])
def test_a_profiler_that_was_wanted_is_behind_ours(profiler: Path, wanted: str) -> None:
    added = profiler_environment({PROFILER_VARIABLE: wanted})
    assert (added[PROFILER_VARIABLE], added[NEXT_VARIABLE]) == (profiler.name, wanted)
    assert NEXT_VARIABLE not in profiler_environment(added)  # a second `syntony run`
    own = {PROFILER_VARIABLE: wanted, NEXT_VARIABLE: "another"}
    assert NEXT_VARIABLE not in profiler_environment(own)
    for none in ("", "none", "NONE", "syntony"):
        assert NEXT_VARIABLE not in profiler_environment({PROFILER_VARIABLE: none})


def test_never_replaces_another_plugin(plugin: Path) -> None:
    added = plugin_environment({})
    assert plugin_environment(added) == added
    with pytest.raises(UsageError, match="aws-ofi asks for another plug-in"):
        plugin_environment({"NCCL_NET_PLUGIN": "aws-ofi"})


def test_says_what_to_do_if_it_was_not_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(syntony.io, "__path__", [str(tmp_path)])
    with pytest.raises(MissingError, match="libibverbs-dev"):
        net_plugin()
    with pytest.raises(MissingError, match=r"profiler-syntony.so .* a C compiler$"):
        profiler_plugin()


def test_lists_ports(tmp_path: Path) -> None:
    assert rdma_ports(tmp_path) == []
    for device, port in (("mlx5_1", "1"), ("mlx5_0", "1"), ("mlx5_0", "2")):
        (tmp_path / "sys/class/infiniband" / device / "ports" / port).mkdir(parents=True)
    assert rdma_ports(tmp_path) == ["mlx5_0:1", "mlx5_0:2", "mlx5_1:1"]

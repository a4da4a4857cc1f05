"""`syntony run --verbs`, and what the library is to anyone who loads it."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from syntony.cli.run_job import command
from syntony.errors import MissingError
from syntony.io import interposer

EXPORTED = {
    "ibv_open_device", "ibv_close_device", "ibv_modify_qp", "ibv_destroy_qp", "ibv_destroy_cq",
}  # fmt: skip


@pytest.fixture(scope="module")
def library() -> Path:
    try:
        return interposer.verbs_library()
    except MissingError as error:
        pytest.skip(f"{error}: jobs that use verbs are NOT tested")


def environment(*words: str, **given: str) -> dict[str, str]:
    argv = [*words, "--dry-run", "--json", "--", "true"]
    done = CliRunner().invoke(command, argv, env=given)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["environment"]  # type: ignore[no-any-return]


def test_it_is_preloaded_and_named_to_nccl(library: Path) -> None:
    given = environment("--verbs", LD_PRELOAD="/other.so")
    preloaded = given["LD_PRELOAD"].split()
    assert preloaded == [str(library), str(interposer.tcp_library()), "/other.so"]
    assert given["NCCL_IBVERBS_LIB"] == str(library)
    assert "verbs" not in json.dumps(environment())


def test_a_library_that_was_named_to_nccl_stays(library: Path) -> None:
    given = environment("--verbs", NCCL_IBVERBS_LIB="/mine.so")
    assert "NCCL_IBVERBS_LIB" not in given
    assert str(library) in given["LD_PRELOAD"]


def test_nccl_finds_every_function_in_it(library: Path) -> None:
    """By name and version, as NCCL looks: what is not ours is libibverbs'."""
    libc = ctypes.CDLL(None)
    libc.dlvsym.restype = ctypes.c_void_p
    libc.dlvsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    ours, theirs = ctypes.CDLL(str(library)), ctypes.CDLL("libibverbs.so.1")
    for name, version in (
        *((each, "IBVERBS_1.1") for each in EXPORTED),
        ("ibv_get_device_list", "IBVERBS_1.1"), ("ibv_create_qp", "IBVERBS_1.1"),
        ("ibv_reg_mr_iova2", "IBVERBS_1.8"), ("ibv_reg_dmabuf_mr", "IBVERBS_1.12"),
    ):  # fmt: skip
        found = [
            libc.dlvsym(each._handle, name.encode(), version.encode()) for each in (ours, theirs)
        ]
        assert all(found), name
        assert (found[0] != found[1]) == (name in EXPORTED), name


def test_programs_without_verbs_do_not_notice(library: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", "ls -l /proc/self/fd | grep -c syntony-qp"],
        env=os.environ | {"LD_PRELOAD": str(library), "SYNTONY_AGENT": "/nonexistent/agent"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == ("0", "")


def test_a_host_without_the_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interposer, "_VERBS_FILE", "libnone.so")
    done = CliRunner().invoke(command, ["--verbs", "--", "true"])
    assert done.exit_code != 0
    assert "libnone.so is not installed" in str(done.exception)

"""Real libraries of NCCL load the plug-in, with the newest table that they know, or fall back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.nccl.wheels import nccl_library

from syntony.errors import MissingError
from syntony.io.nccl_plugin import net_plugin, plugin_environment

ROOT = Path(__file__).parents[2]
VERSIONS = [
    ("nvidia-nccl-cu12==2.21.5", 8),
    ("nvidia-nccl-cu12==2.23.4", 8),
    ("nvidia-nccl-cu12==2.27.3", 10),
    ("nvidia-nccl-cu12==2.28.9", 11),
    ("nvidia-nccl-cu13==2.30.7", 12),
    ("nvidia-nccl-cu13==2.32.3", 12),
]
NET = ROOT / "native" / "tests" / "nccl"


@pytest.fixture(scope="module")
def plugin() -> Path:
    try:
        return net_plugin()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def fake_verbs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("verbs") / "libfake_verbs.so"
    subprocess.run(
        [
            "cc",
            "-std=c11",
            "-D_GNU_SOURCE",
            "-fvisibility=hidden",
            "-fPIC",
            "-shared",
            "-pthread",
            str(NET / "fake_verbs.c"),
            str(NET / "fake_network.c"),
            "-o",
            str(library),
        ],
        check=True,
        timeout=60,
    )
    return library


def _load(library: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("load_by_nccl.py")), str(library)],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",  # NCCL 2.21 prints a name of our empty communicator
        timeout=120,
        env=os.environ | {"NCCL_DEBUG": "INFO"} | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("requirement", "version"), VERSIONS)
def test_every_nccl_loads_it_or_falls_back(
    requirement: str, version: int, plugin: Path, fake_verbs: Path, tmp_path: Path
) -> None:
    try:
        library = nccl_library(requirement, tmp_path)
    except LookupError as error:
        pytest.skip(str(error))
    assert plugin.exists()
    verbs = plugin_environment({}) | {"SYNTONY_NCCL_IBVERBS": str(fake_verbs)}
    said = _load(library, **verbs)
    assert "NET/Syntony: device 0: fake0, 1 rail" in said
    tables = re.findall(r"Loaded net plugin Syntony \(v(\d+)\)", said)
    assert set(tables) <= {str(version)}  # NCCL before 2.24 does not say
    if version >= 10:
        assert tables
    said = _load(library, **verbs | {"SYNTONY_NCCL_IBVERBS": "/no/such/library.so"})
    assert said.count("NET/Syntony: not used, NCCL's own transport is: /no/such/library.so") == 1

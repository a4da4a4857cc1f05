"""Real libraries of NCCL load the plug-in, with the newest table that they know, or fall back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.nccl import provider
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
    return provider.build(tmp_path_factory.mktemp("verbs"))


def _load(library: Path, environment: dict[str, str], within: tuple[str, ...] = ()) -> str:
    done = subprocess.run(
        [*within, sys.executable, str(Path(__file__).with_name("load_by_nccl.py")), str(library)],
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
    said = _load(library, verbs)
    assert "NET/Syntony: device 0: fake0, 1 rail" in said
    tables = re.findall(r"Loaded net plugin Syntony \(v(\d+)\)", said)
    assert set(tables) <= {str(version)}  # NCCL before 2.24 does not say
    if version >= 10:
        assert tables
    said = _load(library, verbs | {"SYNTONY_NCCL_IBVERBS": "/no/such/library.so"})
    assert said.count("NET/Syntony: not used, NCCL's own transport is: /no/such/library.so") == 1


IN_ANOTHER_ETC = """
mount --bind "$1" /etc && mount -t tmpfs none /var/cache/ldconfig && ldconfig && shift && exec "$@"
"""


@pytest.mark.slow
@pytest.mark.parametrize("requirement", [requirement for requirement, _ in VERSIONS])
def test_files_of_a_host_are_enough_for_every_job(
    requirement: str, plugin: Path, fake_verbs: Path, tmp_path: Path
) -> None:
    """As docs/how-to/nccl.md says: the loader's list of directories, and NCCL's own file."""
    try:
        library = nccl_library(requirement, tmp_path)
    except LookupError as error:
        pytest.skip(str(error))
    etc = tmp_path / "etc"
    (etc / "ld.so.conf.d").mkdir(parents=True)
    (etc / "ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    for each in Path("/etc/ld.so.conf.d").iterdir():
        (etc / "ld.so.conf.d" / each.name).write_bytes(each.read_bytes())
    (etc / "ld.so.conf.d/syntony.conf").write_text(f"{plugin.parent}\n")
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (etc / "nccl.conf").write_text(
        f"NCCL_NET_PLUGIN=syntony\nSYNTONY_NCCL_IBVERBS={fake_verbs}\n"
        "SYNTONY_NCCL_RAILS=fake0+fake1\nNCCL_DEBUG=INFO\n"
    )
    within = ("unshare", "-Urm", "sh", "-c", IN_ANOTHER_ETC, "-", str(etc))
    said = _load(library, {}, within)
    assert "NET/Syntony: device 0: fake0+fake1, 2 rails" in said
    own = {"SYNTONY_NCCL_RAILS": "fake2+fake3"}
    said = _load(library, own, within)
    assert "NET/Syntony: device 0: fake2+fake3, 2 rails" in said, "the job's own variable wins"

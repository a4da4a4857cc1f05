"""Real libraries of NCCL load the plug-ins, with the newest table that they know, or fall back."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.nccl import profiler, provider
from tests.nccl.wheels import nccl_library

from syntony.errors import MissingError
from syntony.io.nccl_plugin import (
    NEXT_VARIABLE,
    net_plugin,
    plugin_environment,
    profiler_environment,
    profiler_plugin,
)
from syntony.workload.nccl_operations import HEADER, MAGIC

ROOT = Path(__file__).parents[2]
VERSIONS = [
    ("nvidia-nccl-cu12==2.21.5", 8),
    ("nvidia-nccl-cu12==2.23.4", 8),
    ("nvidia-nccl-cu12==2.27.3", 10),
    ("nvidia-nccl-cu12==2.28.9", 11),
    ("nvidia-nccl-cu13==2.30.7", 12),
    ("nvidia-nccl-cu13==2.32.3", 12),
]
PROFILER_VERSIONS = [
    ("nvidia-nccl-cu12==2.21.5", None),
    ("nvidia-nccl-cu12==2.24.3", 2),
    ("nvidia-nccl-cu12==2.27.3", 4),
    ("nvidia-nccl-cu12==2.28.9", 5),
    ("nvidia-nccl-cu12==2.29.7", 6),
    ("nvidia-nccl-cu13==2.30.7", 6),
    ("nvidia-nccl-cu13==2.32.3", 7),
]
NET = ROOT / "native" / "tests" / "nccl"


@pytest.fixture(scope="module")
def plugin() -> Path:
    try:
        return net_plugin()
    except MissingError as error:
        pytest.skip(f"{error}: it is NOT tested")


@pytest.fixture(scope="module")
def fake_verbs() -> Path:
    return provider.built()


def _load(
    library: Path, which: str, environment: dict[str, str], within: tuple[str, ...] = ()
) -> str:
    loader = str(Path(__file__).with_name("load_by_nccl.py"))
    done = subprocess.run(
        [*within, sys.executable, loader, str(library), which],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",  # NCCL 2.21 prints a name of our empty communicator
        timeout=600,
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
        pytest.skip(f"{error}: it is NOT tested")
    assert plugin.exists()
    verbs = plugin_environment({}) | {"SYNTONY_NCCL_IBVERBS": str(fake_verbs)}
    said = _load(library, "net", verbs)
    assert "NET/Syntony: device 0: fake0, 1 rail" in said
    tables = re.findall(r"Loaded net plugin Syntony \(v(\d+)\)", said)
    assert set(tables) <= {str(version)}  # NCCL before 2.24 does not say
    if version >= 10:
        assert tables
    said = _load(library, "net", verbs | {"SYNTONY_NCCL_IBVERBS": "/no/such/library.so"})
    assert said.count("NET/Syntony: not used, NCCL's own transport is: /no/such/library.so") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("requirement", "version"), PROFILER_VERSIONS)
def test_every_nccl_loads_the_profiler(
    requirement: str, version: int | None, tmp_path: Path
) -> None:
    """Its own loader, adapters and mask; an event of its proxy goes through ours to another one."""
    try:
        library = nccl_library(requirement, tmp_path)
        assert profiler_plugin().exists()
    except (LookupError, MissingError) as error:
        pytest.skip(f"{error}: it is NOT tested")
    log = tmp_path / "log"
    log.touch()
    # One that has the oldest table from version 4 on, where NCCL's is not of version 2.
    second = profiler.build_second(tmp_path / "second.so", 2 if version == 2 else 4)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
        agent.bind(str(tmp_path / "agent-nccl"))
        agent.listen()
        said = _load(
            library,
            "profiler",
            profiler_environment({})
            | {
                "SYNTONY_AGENT": str(tmp_path / "agent"),
                "SECOND_LOG": str(log),
                "SECOND_MASK": "32",
                NEXT_VARIABLE: str(second),
            },
        )
        if version is None:
            assert "rofiler" not in said
            return
        agent.settimeout(600)
        connection, _ = agent.accept()
        with connection:
            _, [memory], *_ = socket.recv_fds(connection, 1, 1)
    header = np.frombuffer(os.pread(memory, HEADER.itemsize, 0), HEADER)[0]
    os.close(memory)
    assert (header["magic"], header["abi"], header["begun"]) == (MAGIC, version, 0)
    assert said.count("contexts 1\nproxy event True") == 1
    tables = re.findall(r"Loaded Syntony \(v(\d+)\)", said)
    assert tables == ([str(version)] if version >= 5 else [])  # NCCL before 2.28 does not say
    if version >= 6:
        assert "Profiler event mask: 0x3e" in said
    words = [line.split() for line in log.read_text().splitlines()]
    assert [(line[0], line[1] if line[0] == "start" else "") for line in words] == [
        ("init", ""), ("start", "32"), ("record", ""), ("stop", ""), ("finalize", ""),
    ]  # fmt: skip


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
        pytest.skip(f"{error}: it is NOT tested")
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
    said = _load(library, "net", {}, within)
    assert "NET/Syntony: device 0: fake0+fake1, 2 rails" in said
    own = {"SYNTONY_NCCL_RAILS": "fake2+fake3"}
    said = _load(library, "net", own, within)
    assert "NET/Syntony: device 0: fake2+fake3, 2 rails" in said, "the job's own variable wins"

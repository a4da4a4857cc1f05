"""The native tests' fake provider of verbs, built for tests and benches in Python."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from syntony.agent.job_link import JobLink
from syntony.errors import MissingError
from syntony.io.nccl_plugin import net_plugin

SOURCES = Path(__file__).parents[2] / "native" / "tests" / "nccl"


def build_driver(directory: Path) -> Path:
    """`bench_net`, which has both ends of the plug-in over it, made in `directory`."""
    program = directory / "bench_net"
    names = ("bench_net.c", "drive.c", "faults.c", "late.c", "../../job/page.c")
    words = ["cc", "-std=c11", "-O2", "-D_GNU_SOURCE", f"-I{SOURCES / '../../job'}"]
    words += [*(str(SOURCES / name) for name in names), "-o", str(program), "-pthread", "-ldl"]
    subprocess.run(words, check=True, timeout=600)
    return program


class Machine(ctypes.Structure):
    """``struct fake_machine``: what one of its devices is."""

    _fields_ = (
        ("old_gid", ctypes.c_int),
        ("new_gid", ctypes.c_int),
        ("gid_kind", ctypes.c_int),
        ("infiniband", ctypes.c_int),
        ("stamps", ctypes.c_int),
        ("offset", ctypes.c_int64),
        ("drift_ppb", ctypes.c_int64),
        ("bits", ctypes.c_int),
        ("named_khz", ctypes.c_int64),
        ("unreadable", ctypes.c_int),
        ("few_queues", ctypes.c_int),
        ("queues_left", ctypes.c_int),
        ("no_memory", ctypes.c_int),
        ("reads_gpus", ctypes.c_int),
        ("takes_dmabuf", ctypes.c_int),
        ("refusing", ctypes.c_int),
        ("failing_polls", ctypes.c_int),
        ("closed", ctypes.c_int),
        ("unready", ctypes.c_int),
        ("speed", ctypes.c_int),
        ("width", ctypes.c_int),
        ("destroying_ns", ctypes.c_int64),
        ("failing_ns", ctypes.c_int64),
        ("unfailing", ctypes.c_int),
        ("undying", ctypes.c_int),
        ("pausing_ns", ctypes.c_int64),
        ("unanswered_ns", ctypes.c_int64),
    )


def build(directory: Path) -> Path:
    """The library, made in `directory`."""
    library = directory / "libfake_verbs.so"
    options = ["-std=c11", "-O2", "-D_GNU_SOURCE", "-fvisibility=hidden", "-fPIC", "-shared"]
    sources = [str(each) for each in sorted(SOURCES.glob("fake_*.c"))]
    words = ["cc", *options, "-pthread", *sources, "-o", str(library)]
    subprocess.run(words, check=True, timeout=600)
    return library


@cache
def built(make: Callable[[Path], Path] = build) -> Path:
    """What `make` makes, once for all tests of this process."""
    return make(Path(tempfile.mkdtemp(prefix="made")))


@contextmanager
def sending(directory: Path) -> Iterator[JobLink]:
    """The agent's socket, and a process of job ``night`` with both ends of the plug-in, which sends
    as fast as it can from 10.0.0.1 and 10.0.0.2 to 10.0.0.3 and 10.0.0.4."""
    try:
        plugin = str(net_plugin())
    except MissingError as error:
        pytest.skip(f"{error}: it is NOT tested")
    link = JobLink(directory / "agent")
    link.start()
    environ = os.environ | {
        "SYNTONY_AGENT": str(directory / "agent"),
        "SYNTONY_JOB": "night",
        "SYNTONY_NCCL_IBVERBS": str(built()),
        "SYNTONY_NCCL_SOCKET_IFNAME": "=lo",
    }
    words = [str(built(build_driver)), plugin, "12", environ["SYNTONY_NCCL_IBVERBS"]]
    words += ["262144", "8", "2000000000", "7", "cost"]
    with subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL) as process:
        try:
            yield link
            assert process.poll() is None
        finally:
            process.kill()
            link.close()
    assert link.fault is None

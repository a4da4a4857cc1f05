"""The profiler plug-in and the native programs that drive it, for tests and benches in Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

from syntony.io.nccl_plugin import profiler_plugin

NATIVE = Path(__file__).parents[2] / "native"
SOURCES = NATIVE / "tests" / "nccl_profiler"
OPTIONS = ["-std=gnu11", "-O2", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
INCLUDES = [f"-I{NATIVE / 'tests'}", f"-I{NATIVE / 'nccl' / 'profiler'}", f"-I{SOURCES}"]


def build(out: Path, *names: str) -> Path:
    """A program of these sources, without their suffix; raises `MissingError`: no plug-in."""
    profiler_plugin()
    sources = [str(SOURCES / f"{name}.c") for name in (*names, "drive")]
    words = ["cc", *OPTIONS, *INCLUDES, *sources, "-o", str(out), "-rdynamic", "-ldl", "-pthread"]
    subprocess.run(words, check=True, timeout=600)
    return out


def build_second(out: Path, version: int) -> Path:
    """Another profiler, with the table of one version, as a library."""
    words = ["cc", *OPTIONS, f"-DVERSION={version}", "-shared", "-fPIC"]
    subprocess.run([*words, str(SOURCES / "second.c"), "-o", str(out)], check=True, timeout=600)
    return out

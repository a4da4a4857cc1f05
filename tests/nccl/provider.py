"""The native tests' fake provider of verbs, built for tests and benches in Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "native" / "tests" / "nccl"


def build_driver(directory: Path) -> Path:
    """`bench_net`, which has both ends of the plug-in over it, made in `directory`."""
    program = directory / "bench_net"
    names = ("bench_net.c", "drive.c", "faults.c", "../../job/page.c")
    words = ["cc", "-std=c11", "-O2", "-D_GNU_SOURCE", f"-I{SOURCES / '../../job'}"]
    words += [*(str(SOURCES / name) for name in names), "-o", str(program), "-pthread", "-ldl"]
    subprocess.run(words, check=True, timeout=120)
    return program


def build(directory: Path) -> Path:
    """The library, made in `directory`."""
    library = directory / "libfake_verbs.so"
    options = ["-std=c11", "-O2", "-D_GNU_SOURCE", "-fvisibility=hidden", "-fPIC", "-shared"]
    sources = [str(each) for each in sorted(SOURCES.glob("fake_*.c"))]
    words = ["cc", *options, "-pthread", *sources, "-o", str(library)]
    subprocess.run(words, check=True, timeout=120)
    return library

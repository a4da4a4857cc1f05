"""Programs over providers of verbs, built here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"


def build(out: Path, *sources: Path) -> Path:
    """A program with the interposer's sources inside."""
    if not Path("/usr/include/infiniband/verbs.h").exists():
        pytest.skip(
            "needs infiniband/verbs.h (Debian: libibverbs-dev): the interposer of verbs is NOT "
            "tested"
        )
    parts = [*sources, *sorted((NATIVE / "verbs").glob("*.c")), NATIVE / "door" / "door.c"]
    flags = [
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O1",
        "-g",
        f"-I{NATIVE / 'verbs'}",
        f"-I{NATIVE / 'door'}",
        f"-I{NATIVE / 'tests'}",
    ]
    words = ["cc", *flags, *map(str, parts), "-o", str(out), "-ldl", "-lpthread", "-rdynamic"]
    subprocess.run(words, check=True)
    return out


@pytest.fixture(scope="session")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`verbs_generator`: random traffic, and what truly happened."""
    return build(tmp_path_factory.mktemp("verbs") / "gen", NATIVE / "tests/verbs/generator.c")

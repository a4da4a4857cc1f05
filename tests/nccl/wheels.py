"""NCCL's own libraries, from PyPI: 150 to 300 MB each, downloaded once, never installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHEELS = Path(os.environ.get("SYNTONY_NCCL_WHEELS", ROOT / "build" / "nccl-wheels"))
PIP = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]


def nccl_library(requirement: str, directory: Path) -> Path:
    """The library of ``nvidia-nccl-cu13==2.32.3``, unpacked below `directory`.

    Raises:
        LookupError: the wheel is not here and cannot be downloaded.
    """
    WHEELS.mkdir(parents=True, exist_ok=True)
    name, _, version = requirement.replace("-", "_").partition("==")
    if not list(WHEELS.glob(f"{name}-{version}-*.whl")):
        found = subprocess.run(
            [*PIP, "-d", str(WHEELS), requirement],
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )
        if found.returncode:
            raise LookupError(f"{requirement} cannot be downloaded: {found.stderr.strip()[-200:]}")
    [wheel] = WHEELS.glob(f"{name}-{version}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [member] = [item for item in archive.namelist() if item.endswith("libnccl.so.2")]
        return Path(archive.extract(member, directory))


def symbols(library: str) -> dict[str, int]:
    """Its symbol table, internal ones too: their offsets."""
    listing = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    fields = (line.split() for line in listing.splitlines())
    return {name: int(value, 16) for value, _, name in (f for f in fields if len(f) == 3)}

"""Files of the controller's state: whole or not at all, whatever crashes in between."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Whole or not at all, and on the disk when this returns."""
    scratch = path.with_suffix(".new")
    with scratch.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)

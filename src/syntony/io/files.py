"""Small files: read where they may be missing, written as a whole whatever crashes in between."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def text_of(path: Path, limit: int = 4096) -> str | None:
    """The beginning of a file, without white space around it; None: it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", "replace").strip()
    except OSError:
        return None


def is_denied(path: str | Path, mode: int = os.R_OK) -> bool:
    """Whether there is, or may be, such a file that this process may not use as `mode` says."""
    try:
        Path(path).stat()
    except OSError as error:
        return isinstance(error, PermissionError)
    return not os.access(path, mode)


def write_output(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write a file that a user named: as a whole, or straight into a pipe or device. Raises
    `OSError`: a file is as it was."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
    else:
        write_atomically(Path(os.path.realpath(path)), data, mode=0o666)


def write_atomically(path: Path, data: bytes | Iterable[bytes], mode: int = 0o600) -> None:
    """Replace a file as a whole, on the disk when this returns; never readable by more than `mode`
    allows. Raises `OSError`: the file is as it was."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
    except BaseException as error:
        fresh.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # of a write: the disk is full
            error.filename = str(path)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

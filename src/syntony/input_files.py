"""Reads files that somebody names: never without a bound, and never from a device."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_BYTES = 64 << 20
"""Of a file that is read whole: the topology of 100,000 cables has 20 MB in JSON."""
MAX_CONFIG_BYTES = 4 << 20
"""Of configuration, rules, objectives and specs, which are read as TOML: 4 MiB take seconds."""
MAX_SECRET_BYTES = 1 << 20
"""Of certificates, keys, tokens and passwords."""


def read_bytes(path: str | Path, most_bytes: int = MAX_BYTES) -> bytes:
    """Read a file, or a pipe that somebody writes to (``<(…)`` in a shell).

    Raises:
        OSError: it cannot be read, is longer than `most_bytes`, is a device, a socket or a
            directory, or a pipe without a writer. `strerror` says which.
    """
    status = _status(path)
    pipe = stat.S_ISFIFO(status.st_mode)
    if status.st_size > most_bytes:
        raise _too_large(path, most_bytes)
    # Opening a pipe without a writer would wait for one.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        os.set_blocking(descriptor, True)
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise _too_large(path, most_bytes)
    if pipe and not data:
        raise OSError(errno.EPIPE, "a pipe that nobody writes to", str(path))
    return data


def read_text(path: str | Path, most_bytes: int = MAX_BYTES) -> str:
    """Read a file of UTF-8 text, without a byte order mark. Raises `OSError`, as `read_bytes`, and
    if it is not such text."""
    try:
        return read_bytes(path, most_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 text, at byte {error.start}"
        raise OSError(errno.EILSEQ, reason, str(path)) from error


def check_file(path: str | Path, most_bytes: int) -> None:
    """Check a file that a library opens by its name. Raises `OSError`: it is not a regular file,
    or longer than `most_bytes`."""
    status = _status(path)
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular(path)
    if status.st_size > most_bytes:
        raise _too_large(path, most_bytes)


def _status(path: str | Path) -> os.stat_result:
    try:
        status = os.stat(path)  # noqa: PTH116 - a text may be no name at all
    except ValueError as error:
        raise OSError(errno.EINVAL, "not the name of a file", str(path)) from error
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
        raise _not_regular(path)
    return status


def _not_regular(path: str | Path) -> OSError:
    return OSError(errno.EINVAL, "not a regular file", str(path))


def _too_large(path: str | Path, most_bytes: int) -> OSError:
    size = f"{most_bytes >> 30} GiB" if most_bytes >= 1 << 30 else f"{most_bytes >> 20} MiB"
    return OSError(errno.EFBIG, f"larger than {size}", str(path))

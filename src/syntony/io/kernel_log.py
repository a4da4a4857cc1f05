"""The kernel's log as it is written, from ``/dev/kmsg``."""

from __future__ import annotations

import os
from pathlib import Path

from syntony.errors import MissingError
from syntony.io.closing import Closing

_RECORD_BYTES = 8192
_AT_ONCE = 512
"""Records taken in one call: a storm of messages must not hold up the caller."""


class KernelLog(Closing):
    """Reads what is written from now on. Raises `MissingError`: it cannot be read
    (``kernel.dmesg_restrict`` without CAP_SYSLOG)."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            text = f"{path}: {error.strerror}; grant CAP_SYSLOG, or set kernel.dmesg_restrict=0"
            raise MissingError(text) from error

    def fileno(self) -> int:
        """Readable when there is something to read."""
        return self._file

    def read(self) -> list[str]:
        """The messages since the last call, at most `_AT_ONCE`."""
        found: list[str] = []
        while len(found) < _AT_ONCE:
            try:
                record = os.read(self._file, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # EPIPE: overwritten; the next read goes on behind the gap
                continue
            if not record:
                break
            message = parse_record(record)
            if message is not None:
                found.append(message)
        return found

    def close(self) -> None:
        os.close(self._file)


def parse_record(record: bytes) -> str | None:
    """The text of a record ``"6,339,5140900,-;text\\n KEY=value…"``; None: malformed.

    Source: Documentation/ABI/testing/dev-kmsg.
    """
    head, separator, rest = record.partition(b";")
    fields = head.split(b",")
    if not separator or len(fields) < 3 or not fields[1].isdigit():
        return None
    return rest.split(b"\n", 1)[0].decode("utf-8", "replace")

"""Files with what a restarted coordinator needs from its predecessor.

A record is in its file before the rank's acknowledgement is sent, and the state of the job before
its orders are sent. After a crash at any instant the files thus contain at least what others have
been sent. Files survive only the process, not the host (nothing is synced). They are in a directory
of the job that only its user can enter.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SUM = struct.Struct(">I")
STATE = "state"
CONCLUSION = "conclusion"
ENDED, KILLED, FAILED = b"ended", b"killed", b"failed"
"""Messages of `syntony run` to a coordinator: the launcher has ended, a signal ended it, it could
not be started."""
PROLOGUE = -2
"""Used as the boundary's number of a prologue's results."""


class JobSpool:
    """The files of one job. Methods raise `OSError` (disk full)."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def keep(self, rank: int, boundary: int, record: bytes) -> None:
        """Store a record of a rank's boundary, or (`PROLOGUE`) its prologue's results."""
        self._write(f"{rank}.{boundary}", record)

    def forget(self, keys: Iterable[tuple[int, int]]) -> None:
        for rank, boundary in keys:
            (self._place / f"{rank}.{boundary}").unlink(missing_ok=True)

    def save(self, state: Any) -> None:
        self._write(STATE, pickle.dumps(state))

    def state(self) -> Any:
        """The state saved last; None: none."""
        data = self._read(STATE)
        return None if data is None else pickle.loads(data)

    def conclude(self, line: str) -> None:
        """The job's state has been kept: store the last line of `syntony run`."""
        (self._place / CONCLUSION).write_text(line)

    def records(self) -> dict[tuple[int, int], bytes]:
        """(rank, boundary) → its record; incomplete ones are left out."""
        found = {}
        for each in self._place.iterdir():
            rank, _, boundary = each.name.partition(".")
            if not rank.isdigit() or not boundary.lstrip("-").isdigit():
                continue
            data = self._read(each.name)
            if data is not None:
                found[int(rank), int(boundary)] = data
        return found

    def clear(self) -> None:
        """The ranks start again, under other numbers."""
        for each in self._place.iterdir():
            each.unlink()

    def _write(self, name: str, data: bytes) -> None:
        path = self._place / f"{name}.new"
        path.write_bytes(_SUM.pack(zlib.crc32(data)) + data)
        path.replace(self._place / name)

    def _read(self, name: str) -> bytes | None:
        try:
            data = (self._place / name).read_bytes()
        except FileNotFoundError:
            return None
        whole = len(data) >= _SUM.size and _SUM.unpack_from(data)[0] == zlib.crc32(data[4:])
        return data[4:] if whole else None

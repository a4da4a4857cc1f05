"""The agent's end of a page with NCCL's operations, which a job's process has made."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from syntony.io.files import write_atomically
from syntony.io.handed_page import HandedPage
from syntony.workload.nccl_operations import (
    PAGE_BYTES,
    VERSION,
    NcclOperation,
    NcclPageReader,
    PageProgress,
)

Known = Mapping[str, PageProgress]
"""``pid/number`` of a page to how far it was read."""


def load_progress(path: Path) -> Known:
    """How far the previous agent had read; nothing if the file is missing or broken."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, PageProgress])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def save_progress(path: Path, known: Known) -> None:
    """Save how far pages were read, for the next agent. Raises `OSError`."""
    write_atomically(path, msgspec.json.encode(known))


class NcclPage(HandedPage):
    """A page with NCCL's operations.

    Args:
        known: how far pages were read by an agent before this one.
    """

    def __init__(self, connection: socket.socket, pid: int, known: Known) -> None:
        super().__init__(connection, VERSION, PAGE_BYTES)
        self._pid, self._known = pid, known
        self._name = ""
        self._reader = NcclPageReader()

    def read(self, *, last: bool = False) -> list[NcclOperation]:
        """Operations that ended, or hang, since the last call, instants in CLOCK_MONOTONIC; none as
        long as the process has sent no page.

        Args:
            last: the process has ended. Operations that have not ended are reported, too.
        """
        if not self.is_there():
            return []
        if not self._name:
            self._name = f"{self._pid}/{self.number}"
            self._reader = NcclPageReader(self._known.get(self._name))
        before = self.bytes_at(PAGE_BYTES)
        after = self.bytes_at(PAGE_BYTES)
        return self._reader.read(before, after, time.monotonic_ns(), last=last)

    @property
    def progress(self) -> tuple[str, PageProgress] | None:
        """Its name, and how far it was read; None: not yet."""
        return (self._name, self._reader.progress) if self._name else None

    def losses(self) -> dict[str, int]:
        """`lost`: operations that were overwritten unread; `malformed`: those that cannot be used,
        and a page that is none; `left_out`: parts and steps for which the process had no room."""
        return {
            "lost": self._reader.lost,
            "malformed": self._reader.malformed + self.refused,
            "left_out": self._reader.left_out,
        }

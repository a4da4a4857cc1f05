"""The agent's end of a page with NCCL's operations, which a job's process has made."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from syntony.io.handed_page import HandedPage
from syntony.workload.nccl_operations import PAGE_BYTES, VERSION, NcclOperation, NcclPageReader

if TYPE_CHECKING:
    import socket


class NcclPage:
    """Not thread-safe.

    Args:
        connection: of the process, non-blocking.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._page = HandedPage(connection, VERSION, PAGE_BYTES)
        self._reader = NcclPageReader()

    @property
    def malformed(self) -> int:
        """Operations that could not be used, a page that is none included."""
        return self._reader.malformed + self._page.refused

    @property
    def lost(self) -> int:
        """Operations that were overwritten before they were read."""
        return self._reader.lost

    @property
    def left_out(self) -> int:
        """Parts and steps for which there was no place, by the process's word."""
        return self._reader.left_out

    def read(self) -> list[NcclOperation]:
        """What ended or hangs since the last call, instants in CLOCK_MONOTONIC; nothing as long as
        the process has sent no page."""
        if not self._page.is_there():
            return []
        before = self._page.read(PAGE_BYTES)
        after = self._page.read(PAGE_BYTES)
        return self._reader.read(before, after, time.monotonic_ns())

    def close(self) -> None:
        """Idempotent. The connection is its owner's."""
        self._page.close()

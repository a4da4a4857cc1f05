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

    def read(self, *, last: bool = False) -> list[NcclOperation]:
        """Operations that ended, or hang, since the last call, instants in CLOCK_MONOTONIC; none as
        long as the process has sent no page.

        Args:
            last: the process has ended. Operations that have not ended are reported, too.
        """
        if not self._page.is_there():
            return []
        before = self._page.read(PAGE_BYTES)
        after = self._page.read(PAGE_BYTES)
        return self._reader.read(before, after, time.monotonic_ns(), last=last)

    def losses(self) -> dict[str, int]:
        """`lost`: operations that were overwritten unread; `malformed`: those that cannot be used,
        and a page that is none; `left_out`: parts and steps for which the process had no room."""
        return {
            "lost": self._reader.lost,
            "malformed": self._reader.malformed + self._page.refused,
            "left_out": self._reader.left_out,
        }

    def close(self) -> None:
        """Idempotent. The connection is its owner's."""
        self._page.close()

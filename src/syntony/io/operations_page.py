"""The agent's end of a page with collectives and steps, which a job's process has made."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from syntony.io.handed_page import HandedPage
from syntony.traffic.operations_page import PAGE_BYTES, VERSION, NewOperations, OperationsReader

if TYPE_CHECKING:
    import socket


class OperationsPage:
    """Not thread-safe.

    Args:
        connection: of the process, non-blocking.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._page = HandedPage(connection, VERSION, PAGE_BYTES)
        self._reader = OperationsReader()

    @property
    def malformed(self) -> int:
        """Records that could not be used, a page that is none included."""
        return self._reader.malformed + self._page.refused

    def read(self) -> NewOperations | None:
        """Operations reported since the last call; None as long as the process has sent no page."""
        if not self._page.is_there():
            return None
        return self._reader.read(self._page.read, time.monotonic_ns())

    def close(self) -> None:
        """Idempotent. The connection is its owner's."""
        self._page.close()

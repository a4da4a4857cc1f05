"""The agent's end of a page with figures of queue pairs, which a job's process has made."""

from __future__ import annotations

import socket
import time

from syntony.io.handed_page import HandedPage
from syntony.traffic.queue_pair_page import (
    PAGE_BYTES,
    RINGS_BYTES,
    SLOTS_BYTES,
    VERSION,
    Owner,
    QueuePairPageReader,
    ring_offset,
)
from syntony.wire.queue_pairs import QueuePairFigures


class QueuePairPage(HandedPage):
    def __init__(self, connection: socket.socket, owner: Owner) -> None:
        super().__init__(connection, VERSION, PAGE_BYTES)
        self._reader = QueuePairPageReader(owner)

    @property
    def malformed(self) -> int:
        """Records that could not be used, a page that is none included."""
        return self._reader.malformed + self.refused

    @property
    def left_out(self) -> int:
        """Queue pairs for which there is no place, as the process reports."""
        return self._reader.left_out

    def read(self) -> list[QueuePairFigures]:
        """The process's current figures; empty as long as it has sent no page."""
        if not self.is_there():
            return []
        before = self.bytes_at(SLOTS_BYTES)
        rings = {
            slot: self.bytes_at(RINGS_BYTES, ring_offset(slot))
            for slot in self._reader.in_use(before)
        }
        after = self.bytes_at(SLOTS_BYTES)
        return self._reader.read(before, rings, after, time.monotonic_ns())

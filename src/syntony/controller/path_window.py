"""Selects the traced paths to read from the store next, without missing late ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from syntony.errors import StoreError
from syntony.model import S

AHEAD_NS = 10 * S
"""Maximum by which agents' clocks are ahead of fleet time here."""
OTHERS_LATE_NS = 10 * S
"""Maximum age of rows that another controller stores; our own inserts are reported by `stored`."""


class PathWindow:
    """The reader's position in the table of learnt paths; thread-safe.

    A row's instant is when the path was learnt. It reaches the store later: by a second on a quiet
    machine, by minutes from a spool or through a busy store; a known path is traced again only
    after ten minutes.

    Args:
        back_ns: how far back the first read goes.
    """

    def __init__(self, back_ns: int) -> None:
        self._back_ns = back_ns
        self._from_ns: int | None = None
        self._lock = threading.Lock()

    def stored(self, first_ns: int) -> None:
        """Paths learnt at `first_ns` (fleet time) or later are in the store now."""
        self._back_to(first_ns)

    @contextmanager
    def next(self, now_ns: int) -> Iterator[tuple[int, int]]:
        """The interval to read now, fleet time; the same again after a `StoreError` in the body."""
        with self._lock:
            first_ns = now_ns - self._back_ns if self._from_ns is None else self._from_ns
            self._from_ns = now_ns - OTHERS_LATE_NS
        try:
            yield first_ns, now_ns + AHEAD_NS
        except StoreError:
            self._back_to(first_ns)
            raise

    def _back_to(self, first_ns: int) -> None:
        with self._lock:
            if self._from_ns is not None:
                self._from_ns = min(self._from_ns, first_ns)

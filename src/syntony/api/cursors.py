"""Stores the remaining pages of answers. Pure, bounded; used on one event loop.

An answer is computed once and its pages are those of one instant: rows neither repeat nor get lost
while new ones arrive.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import NamedTuple

from syntony.model import S

MAX_BYTES = 128 << 20
"""Limit of all stored pages; the least recently used answer is dropped first."""
KEEP_NS = 120 * S
"""An answer is dropped this long after its last use."""


class _StoredAnswer(NamedTuple):
    key: tuple[str, ...]
    pages: list[bytes]
    size: int
    used_ns: int


class Page(NamedTuple):
    """One page, and the cursor of the next; empty: it is the last."""

    body: bytes
    next_cursor: str


class Cursors:
    def __init__(self) -> None:
        self._answers: OrderedDict[str, _StoredAnswer] = OrderedDict()
        self._size = 0

    def first(self, key: tuple[str, ...], pages: list[bytes], now_ns: int) -> Page:
        """Store the pages of an answer; return the first one.

        Args:
            key: owner and route; the pages are not returned for any other key.
        """
        if len(pages) == 1:
            return Page(pages[0], "")
        name = secrets.token_urlsafe(12)
        size = sum(map(len, pages))
        self._answers[name] = _StoredAnswer(key, pages, size, now_ns)
        self._size += size
        self._expire(now_ns)
        return Page(pages[0], f"{name}.1")

    def page(self, key: tuple[str, ...], cursor: str, now_ns: int) -> Page | None:
        """The page of a cursor; None: it is unknown or has expired."""
        self._expire(now_ns)
        name, _, number = cursor.rpartition(".")
        answer = self._answers.get(name)
        if answer is None or answer.key != key or not number.isascii() or not number.isdecimal():
            return None
        if len(number) > 9 or (at := int(number)) >= len(answer.pages):
            return None
        self._answers[name] = answer._replace(used_ns=now_ns)
        self._answers.move_to_end(name)
        more = at + 1 < len(answer.pages)
        return Page(answer.pages[at], f"{name}.{at + 1}" if more else "")

    def _expire(self, now_ns: int) -> None:
        while self._answers:
            oldest = next(iter(self._answers.values()))
            if self._size <= MAX_BYTES and now_ns - oldest.used_ns < KEEP_NS:
                return
            _, gone = self._answers.popitem(last=False)
            self._size -= gone.size

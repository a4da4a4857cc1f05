"""The rest of answers that are fetched page by page. Pure, bounded; used on one event loop.

An answer is computed once and its pages are those of one instant: rows neither repeat nor get lost
while new ones arrive.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import NamedTuple

from syntony.model import S

MAX_BYTES = 128 << 20
"""Of all pages kept; the answer that was used longest ago makes room."""
KEEP_NS = 120 * S
"""After the last page was fetched."""


class _Kept(NamedTuple):
    key: tuple[str, ...]
    pages: list[bytes]
    size: int
    used_ns: int


class Page(NamedTuple):
    """One page, and the cursor of the next; empty: it is the last."""

    body: bytes
    next_cursor: str


class Cursors:
    """Pages by cursor."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0

    def first(self, key: tuple[str, ...], pages: list[bytes], now_ns: int) -> Page:
        """Keep the pages of an answer; its first.

        Args:
            key: whose they are and of which route: nobody else gets them.
        """
        if len(pages) == 1:
            return Page(pages[0], "")
        name = secrets.token_urlsafe(12)
        size = sum(map(len, pages))
        self._kept[name] = _Kept(key, pages, size, now_ns)
        self._size += size
        self._expire(now_ns)
        return Page(pages[0], f"{name}.1")

    def page(self, key: tuple[str, ...], cursor: str, now_ns: int) -> Page | None:
        """The page of a cursor; None: there is none such, or not any more."""
        self._expire(now_ns)
        name, _, number = cursor.rpartition(".")
        kept = self._kept.get(name)
        if kept is None or kept.key != key or not number.isascii() or not number.isdecimal():
            return None
        if len(number) > 9 or (at := int(number)) >= len(kept.pages):
            return None
        self._kept[name] = kept._replace(used_ns=now_ns)
        self._kept.move_to_end(name)
        more = at + 1 < len(kept.pages)
        return Page(kept.pages[at], f"{name}.{at + 1}" if more else "")

    def _expire(self, now_ns: int) -> None:
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if self._size <= MAX_BYTES and now_ns - oldest.used_ns < KEEP_NS:
                return
            _, gone = self._kept.popitem(last=False)
            self._size -= gone.size

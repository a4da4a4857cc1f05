"""Limits the file descriptors of this process, with a share for each port.

Each connection holds one, whoever made it. Every port has a share of its own, so that a flood at
one leaves the others, and the files of the store, what they need.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections import Counter
from collections.abc import Callable
from enum import Enum

_log = logging.getLogger(__name__)

PARTS = 16


class Share(Enum):
    """Sixteenths of all descriptors that a port's connections may take; the rest is for files."""

    AGENTS = 10
    API = 2
    ENROLMENT = 1

    @property
    def connections(self) -> int:
        """The share as a number of connections, by the limit in force."""
        return max(1, limit() * self.value // PARTS)


def limit() -> int:
    """How many this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_limit() -> None:
    """Raise the limit as far as this user may: each connection needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def count_open() -> int:
    """How many are open now. Half a microsecond for each of them."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 — paths cost half as much again


_refused: Counter[Share] = Counter()


def note_refused(share: Share) -> int:
    """A connection of this port was closed, being one too many; returns how many were."""
    _refused[share] += 1
    return _refused[share]


def count_refused(share: Share) -> int:
    """Connections of this port that were one too many, since the process began."""
    return _refused[share]


class DescriptorWatch:
    """Logs when the port for agents has no connections left, which gRPC does not report."""

    def __init__(self, count: Callable[[], int] = count_open) -> None:
        self._count = count
        self._full = False

    async def watch_descriptors(self) -> None:
        """To be called every second or so, on an event loop that it does not block."""
        opened, most = await asyncio.to_thread(self._count), Share.AGENTS.connections
        full = opened >= most
        if full and not self._full:
            _log.warning(
                "open files nearly used up open=%d limit=%d reason=of connections beyond %d the "
                "further ones are closed: strangers, or more agents than the limit of open files "
                "allows", opened, limit(), most,
            )  # fmt: skip
        elif self._full and not full:
            _log.info("open files are free again open=%d limit=%d", opened, limit())
        self._full = full

"""File descriptors of this process: how many it may have, and which part of them for what.

Each connection holds one, whoever made it. Every port has a share of its own, so that a flood at
one leaves the others, and the files of the store, what they need.
"""

from __future__ import annotations

import resource
from enum import Enum
from pathlib import Path

PARTS = 16


class Share(Enum):
    """Sixteenths of all descriptors that a port's connections may take; the rest is for files."""

    AGENTS = 10
    API = 2
    ENROLMENT = 1

    @property
    def connections(self) -> int:
        """As a number, by the limit in force."""
        return max(1, limit() * self.value // PARTS)


def limit() -> int:
    """How many this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_limit() -> None:
    """As many as this user may have: each agent and each stranger needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def count_open() -> int:
    """How many are open now. Microseconds for each of them."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())

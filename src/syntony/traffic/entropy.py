"""Which source port a new subflow gets: one its fabric has not just failed on."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Collection

from syntony.traffic.policy import Policy

_REMEMBERED = 1024
"""Ports known to be bad, of all pairs; the oldest are forgotten."""


class Ports:
    """Draws ports; equal-cost paths are chosen by hashing them, so a new one is a new draw."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self._low = policy.port_low
        self._count = policy.port_high - policy.port_low + 1
        self._random = random.Random(seed)  # noqa: S311 - not a secret
        self._bad: OrderedDict[tuple[str, str, int], None] = OrderedDict()

    def draw(self, local: str, remote: str, used: Collection[int] = ()) -> int:
        """A port for a flow between two addresses, not one that is used if that can be."""
        for _ in range(8):
            port = self._low + self._random.randrange(self._count)
            if port not in used and (local, remote, port) not in self._bad:
                break
        return port

    def good(self, local: str, remote: str, port: int) -> bool:
        """Whether nothing is known against it."""
        return (local, remote, port) not in self._bad

    def avoid(self, local: str, remote: str, port: int) -> None:
        """A flow on this port got stuck, or the port is taken."""
        self._bad[local, remote, port] = None
        if len(self._bad) > _REMEMBERED:
            self._bad.popitem(last=False)

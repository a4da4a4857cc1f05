"""Choose the source port of a new subflow, avoiding ports on which flows failed. Pure."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Collection

from syntony.traffic.policy import Policy

_REMEMBERED = 1024
"""Ports known to be bad, of all pairs; the oldest are forgotten."""


class SourcePorts:
    """Draws ports. Switches hash them to choose among equal-cost paths, so a new port may mean a
    new path."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self._low = policy.port_low
        self._count = policy.port_high - policy.port_low + 1
        self._random = random.Random(seed)  # noqa: S311 - not a secret
        self._bad: OrderedDict[tuple[str, str, int], None] = OrderedDict()

    def draw(self, local: str, remote: str, used: Collection[int] = ()) -> int:
        """A port for a flow between two addresses; one in use only if no other is found."""
        for _ in range(8):
            port = self._low + self._random.randrange(self._count)
            if port not in used and (local, remote, port) not in self._bad:
                break
        return port

    def good(self, local: str, remote: str, port: int) -> bool:
        """Whether no flow is known to have failed on it."""
        return (local, remote, port) not in self._bad

    def avoid(self, local: str, remote: str, port: int) -> None:
        """Avoid a port, because a flow on it stalled or because it is taken."""
        self._bad[local, remote, port] = None
        if len(self._bad) > _REMEMBERED:
            self._bad.popitem(last=False)

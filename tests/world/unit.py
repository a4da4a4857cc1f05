"""A service of a host that its init system starts again whenever it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.world.loop import HostClock, Node

if TYPE_CHECKING:
    from tests.world.world import World


RESTART_S = 2.0


class Unit:
    """One controller's or gateway's.

    Args:
        world: that it lives in.
        name: of the process.
        pem: its certificate.
    """

    def __init__(self, world: World, name: str, pem: bytes) -> None:
        self.world = world
        self.name = name
        self.pem = pem
        self.address = f"{name}:8443"
        chance = world.chance
        self.clock = HostClock(round(chance.gauss(0, 1e9)), chance.gauss(0, 10_000))
        self.restart_s = RESTART_S
        """After its end."""
        self.node: Node | None = None
        self.running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin a life."""
        self.node = self.world.born(Node(self.name, self.clock))
        self.running = self.world.loop.spawn(self.node, self.live(self.node))

    async def live(self, node: Node) -> None:
        """One life, to its end."""
        raise NotImplementedError

    def leave_network(self) -> None:
        """Nobody is served any more; every stream ends."""
        self.world.network.services.pop(self.address, None)
        for connection in self.world.network.connections:
            if connection.server is self.node and not connection.server_gone:
                connection.server_left()

    def stop(self) -> None:
        """As SIGTERM does."""
        if self.running is not None:
            self.running.cancel()

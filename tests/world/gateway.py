"""A gateway: production's relay and ingest, around the world's network and store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

from tests.world.loop import Node
from tests.world.unit import Unit

from syntony.controller.gateway import Gateway
from syntony.controller.leader_link import Call
from syntony.controller.service import FleetService
from syntony.errors import RemoteError
from syntony.wire.gateways import RELAY, RELAY_QUERY

if TYPE_CHECKING:
    from tests.world.network import Connection

    from syntony.store import Store


class GatewayUnit(Unit):
    """One gateway's unit: it is started again whenever it ends."""

    gateway: Gateway | None = None

    async def live(self, node: Node) -> None:
        """One life, until it is killed or told to stop."""
        world = self.world
        leaders = tuple(each.address for each in world.processes)
        self.gateway = Gateway(
            leaders,
            cast("Store", world.store),
            self._dial,
            lambda: node.clock.read_ns(world.loop.true_ns),
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.gateway.run())
                await self.gateway.ready.wait()
                world.network.services[self.address] = node, FleetService(self.gateway)
        except asyncio.CancelledError:
            self.gateway.close()
            self.leave_network()
            world.end(node)

    @contextlib.asynccontextmanager
    async def _dial(self, address: str) -> AsyncIterator[Call]:
        world, node = self.world, self.node
        assert node is not None
        connection = await world.network.dial(node, address, self.pem, RELAY)
        if connection is None:
            raise RemoteError("nobody answers")
        watching = world.loop.spawn(node, connection.watch())
        try:
            yield _Call(self, address, connection)
        finally:
            watching.cancel()
            connection.leave()


class _Call:
    """See `leader_link.Call`."""

    def __init__(self, unit: GatewayUnit, address: str, connection: Connection) -> None:
        self._unit = unit
        self._address = address
        self._connection = connection

    async def write(self, data: bytes) -> None:
        if self._connection.client_gone:
            raise RemoteError("the stream has ended")
        self._connection.up.send(data)

    def answers(self) -> AsyncIterator[bytes]:
        return self._connection.answers()

    async def ask(self, data: bytes) -> list[bytes]:
        unit = self._unit
        page = await unit.world.network.ask(unit.name, self._address, unit.pem, data, RELAY_QUERY)
        if page is None:
            raise RemoteError("no answer")
        return [page]

"""Streams between processes: in order and whole until they break, late, cut and refused."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.world.loop import Loop, Node

from syntony.model import MS, S
from syntony.wire.messages import ATTACH, QUERY

if TYPE_CHECKING:
    from syntony.controller.service import FleetService

PING_NS, PONG_NS = 2_500 * MS, 2_000 * MS
"""`io.dialling`: a controller that is silent for both is given up."""
NOTICE_NS = 20 * S
"""After which a server gives a silent client up."""
CONNECT_NS = 2 * S
ANSWER_S = 10


class Called(NamedTuple):
    """Which method a client calls, as gRPC says it."""

    method: str
    invocation_metadata: tuple[Any, ...] = ()


class Peer:
    """What a server sees of one call's other end; also where it writes."""

    def __init__(self, name: str, pem: bytes, connection: Connection | None = None) -> None:
        self._name = name
        self._pem = pem
        self._connection = connection

    def peer(self) -> str:
        return f"ipv4:{self._name}:1"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_pem_cert": [self._pem]}

    async def write(self, data: bytes) -> None:
        assert self._connection is not None
        if self._connection.server_gone:
            raise ConnectionError("the stream has ended")
        self._connection.down.send(data)


class Arrivals:
    """What has arrived at one end, for one reader: `asyncio.Queue` at a third of its cost."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: deque[bytes | None] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, data: bytes | None) -> None:
        """None: the end."""
        self._waiting.append(data)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __aiter__(self) -> Arrivals:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            self._reader = self._loop.create_future()
            await self._reader
        if self._waiting[0] is None:  # it stays: whoever reads on finds the end again
            raise StopAsyncIteration
        data = self._waiting.popleft()
        assert data is not None
        return data


class Pipe:
    """One direction."""

    def __init__(self, network: Network, ends: tuple[str, str]) -> None:
        self._network = network
        self._ends = frozenset(ends)
        self._last_ns = 0
        self._held: list[bytes | None] = []
        self.arrived = Arrivals(network.loop)

    def send(self, data: bytes | None) -> None:
        """None: the end."""
        network = self._network
        if self._ends in network.cuts:
            self._held.append(data)
            network.waiting.append(self)
            return
        at_ns = max(self._last_ns + 1_000, network.loop.now_ns + network.delay_ns())
        self._last_ns = at_ns
        network.loop.call_at(at_ns / S, self.arrived.put, data, context=network.context)

    def release(self) -> None:
        """The cut is over: what was sent meanwhile is retransmitted."""
        held, self._held = self._held, []
        for data in held:
            self.send(data)


class Connection:
    """One stream between an agent or a gateway and a controller."""

    def __init__(self, network: Network, client: Node, server: Node) -> None:
        self._network = network
        self.client, self.server = client, server
        self.up = Pipe(network, (client.name, server.name))
        self.down = Pipe(network, (server.name, client.name))
        self.serving: asyncio.Task[None] | None = None
        self.client_gone = self.server_gone = False

    def requests(self) -> AsyncIterator[bytes]:
        """What arrives at the server."""
        return self.up.arrived

    def answers(self) -> AsyncIterator[bytes]:
        """What arrives at the client, until the stream ends."""
        return self.down.arrived

    def leave(self, *, unnoticed: bool = False) -> None:
        """The client's end of the stream is gone; its server learns of it, sooner or later."""
        if self.client_gone:
            return
        self.client_gone = True
        self.down.arrived.put(None)
        late = unnoticed or self._network.cut(self.client.name, self.server.name)
        after_s = (NOTICE_NS if late else self._network.delay_ns()) / S
        self._network.loop.call_later(after_s, self._end_serving, context=self._network.context)

    def _end_serving(self) -> None:
        self.server_gone = True
        if self.serving is not None and self.server.alive:
            self.serving.cancel()

    def server_left(self) -> None:
        """The server ended the stream, or died."""
        self.server_gone = True
        self.down.send(None)

    async def watch(self) -> None:
        """The client's keepalive."""
        while not self.client_gone:
            await asyncio.sleep(PING_NS / S)
            if self._dead():
                await asyncio.sleep(PONG_NS / S)
                if self._dead():
                    self.leave()

    def _dead(self) -> bool:
        return self.server.paused or self._network.cut(self.client.name, self.server.name)


class Network:
    """Who can reach whom.

    Args:
        chance: draws delays.
    """

    def __init__(self, loop: Loop, chance: Random, context: Any) -> None:
        self.loop = loop
        self.context = context
        """Of what belongs to no process."""
        self._chance = chance
        self.cuts: set[frozenset[str]] = set()
        """Pairs that cannot reach each other."""
        self.slow_ns = 0
        self.waiting: list[Pipe] = []
        self.services: dict[str, tuple[Node, FleetService]] = {}
        """Address → the controller that listens there."""
        self.connections: list[Connection] = []

    def delay_ns(self) -> int:
        draw = self._chance.random()
        return round(200_000 + 3_000_000 * draw**4 + self.slow_ns * draw)

    def cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.cuts

    @property
    def is_cut(self) -> bool:
        """Whether any two cannot reach each other."""
        return bool(self.cuts)

    def partition(self, pairs: set[frozenset[str]]) -> None:
        """Nothing passes between these any more."""
        self.cuts |= pairs

    def heal(self) -> None:
        """Everything passes, at once."""
        self.slow_ns = 0
        self.mend(set(self.cuts))

    def mend(self, pairs: set[frozenset[str]]) -> None:
        """These can reach each other again."""
        self.cuts -= pairs
        waiting, self.waiting = dict.fromkeys(self.waiting), []
        for pipe in waiting:
            pipe.release()

    async def dial(
        self, client: Node, address: str, pem: bytes, method: str = ATTACH
    ) -> Connection | None:
        """A stream to whoever listens there; None: nobody answers."""
        found = self.services.get(address)
        if found is None or not found[0].alive:
            await asyncio.sleep(self.delay_ns() / S)
            return None
        server, service = found
        if server.paused or self.cut(client.name, server.name):
            await asyncio.sleep(CONNECT_NS / S)
            return None
        connection = Connection(self, client, server)
        self.connections.append(connection)
        handler = service.handlers().service(Called(method)).stream_stream
        peer = Peer(client.name, pem, connection)
        connection.serving = self.loop.spawn(
            server, self._serve(handler(connection.requests(), peer), connection)
        )
        return connection

    @staticmethod
    async def _serve(call: Any, connection: Connection) -> None:
        try:
            await call
        except (asyncio.CancelledError, ConnectionError):
            pass
        finally:
            connection.server_left()

    async def ask(
        self, name: str, address: str, pem: bytes, data: bytes, method: str = QUERY
    ) -> bytes | None:
        """A question's first page; None: no answer within 10 s."""
        found = self.services.get(address)
        if found is None or not found[0].alive or self.cut(name, found[0].name):
            return None
        handler = found[1].handlers().service(Called(method)).unary_stream
        if found[0].paused:
            await asyncio.sleep(ANSWER_S)
            return None
        asking = self.loop.spawn(found[0], _first(handler(data, Peer(name, pem))))
        done, _ = await asyncio.wait({asking}, timeout=ANSWER_S)
        return asking.result() if done and not asking.cancelled() else None

    def died(self, node: Node) -> None:
        """Its host's kernel ends its connections."""
        for connection in self.connections:
            if connection.server is node and not connection.server_gone:
                connection.server_left()
            elif connection.client is node:
                connection.leave()
        self.connections = [each for each in self.connections if not each.client_gone]


async def _first(pages: AsyncIterator[bytes]) -> bytes | None:
    async for page in pages:
        return page
    return None

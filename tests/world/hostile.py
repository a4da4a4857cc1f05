"""A host whose certificate is good and whose agent is not."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from tests.world.loop import HostClock, Node

from syntony.errors import WireError
from syntony.mesh.fresh_losses import STEP_NS
from syntony.model import Edge
from syntony.wire.clocks import Edges
from syntony.wire.coding import encode
from syntony.wire.failover import SwitchCommand
from syntony.wire.messages import PROTOCOL, Batch, Hello, NicInfo, Refuse, decode_controller
from syntony.wire.probes import KeysHeld, LossReport, PairLosses
from syntony.wire.query import Failure, answer_type, decode_answer
from syntony.wire.tables import AGENT

if TYPE_CHECKING:
    from tests.world.network import Connection
    from tests.world.unit import Unit
    from tests.world.world import World

NAME = "mallory"


async def mallory(world: World) -> None:
    """Attaches again and again, and sends what should harm nobody else."""
    node = world.born(Node(NAME, HostClock(0, 0.0)))
    while True:
        await asyncio.sleep(world.chance.expovariate(1 / 5))
        unit = world.chance.choice(world.gateways) if world.gateways else world.leader
        if world.chance.random() < 0.5:
            unit = world.leader
        if unit is None:
            continue
        if world.chance.random() < 0.2:
            await _command(world, unit.address)
            continue
        connection = await world.network.dial(node, unit.address, world.hostile_pem)
        if connection is None:
            continue
        connection.up.send(encode(_hello(world)))
        for _ in range(world.chance.randrange(6)):
            await asyncio.sleep(world.chance.random())
            connection.up.send(_message(world))
        await _listen(world, connection)
        connection.leave()


async def is_served(world: World, unit: Unit) -> bool:
    """Whether it is taken for one of the fleet there."""
    node = world.born(Node(NAME, HostClock(0, 0.0)))
    connection = await world.network.dial(node, unit.address, world.hostile_pem)
    if connection is None:
        return False
    greeting = msgspec.structs.replace(_hello(world), host=NAME)
    connection.up.send(encode(greeting))
    try:
        async with asyncio.timeout(5):
            async for data in connection.answers():
                return not isinstance(decode_controller(data), Refuse)
    except TimeoutError:
        return True
    finally:
        connection.leave()
    return False


async def _listen(world: World, connection: Connection) -> None:
    try:
        async with asyncio.timeout(world.chance.uniform(0, 4)):
            async for data in connection.answers():
                if isinstance(decode_controller(data), Refuse):
                    return
    except (TimeoutError, WireError):
        return


async def _command(world: World, address: str) -> None:
    """An agent gives an operator's order."""
    command = SwitchCommand(stopped=False, by="order-0", why="hostile")
    data = await world.network.ask(NAME, address, world.hostile_pem, encode(command))
    if data is not None:
        answer = decode_answer(data, answer_type(SwitchCommand))
        world.ledger.hold(isinstance(answer, Failure), "an agent threw the stop switch")


def _hello(world: World) -> Hello:
    address, port = world.chance.choice(
        [("10.9.9.9", 61_000), ("not-an-ip", 61_000), ("10.9.9.9", 0), ("10.0.0.1", 61_000),
         ("224.0.0.1", 61_000)]
    )  # fmt: skip
    nic = NicInfo(
        name="rail0", rail=0, addresses=(address,), clock=world.chance.choice((NAME, "h0")),
        stamping="kernel", port=port,
    )  # fmt: skip
    return Hello(
        protocol=PROTOCOL, version="x", host=world.chance.choice((NAME, NAME, NAME, "h1")),
        nics=(nic,), stream=world.chance.choice(("a" * 32, "b" * 32)),
        backlog=world.chance.random() < 0.5, epoch=0,
    )  # fmt: skip


def _message(world: World) -> bytes:
    draw = world.chance.randrange(6)
    if draw == 0:
        return world.chance.randbytes(world.chance.randrange(100))
    if draw == 1:
        number = world.chance.choice((0, 1, 1 << 62))
        return encode(Batch(seq=number, table=AGENT.name, rows=3, dropped=0, arrow=b"junk"))
    if draw == 2:
        return encode(KeysHeld(epochs=(1, 2), sending=7))
    if draw == 3:
        return encode(_hello(world))
    if draw == 5:  # about another host
        pairs = (PairLosses(src="h1/rail0", dst="h0/rail0", lost=1_000, paths=9),)
        at_ns = world.loop.true_ns // STEP_NS * STEP_NS
        return encode(LossReport(at_ns=at_ns, pairs=pairs, prompt=("h0", "h1")))
    edges = [_edge(world, a, b) for a in ("h0", "h1", NAME) for b in ("h2", "ghost", NAME)]
    return encode(Edges(edges=tuple(edges), epochs={"h0": 99, NAME: 1}))


def _edge(world: World, a: str, b: str) -> Edge:
    made = Edge(
        a=a, b=b, ref_ns=0, theta_ns=world.chance.choice((0.0, 1e6, 1e300, math.nan)),
        drift_ppb=0.0, sigma_ns=1e-3, drift_sigma_ppb=1e-3, rtt_floor_ns=1.0, probes=1_000_000,
    )  # fmt: skip
    return msgspec.structs.replace(made, sigma_ns=world.chance.choice((1e-9, math.inf, -1.0)))


def of_others(places: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """(rule, subject) of incidents that have nothing to do with the hostile host, which comes and
    goes."""
    return sorted(each for each in places if NAME not in each[1])

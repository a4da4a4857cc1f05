"""Faults of a world, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tests.world.hostile import of_others
from tests.world.ledger import LOSES
from tests.world.orders import ask
from tests.world.unit import RESTART_S

from syntony.model import MS, S
from syntony.wire.control import ControllerQuery, ControllerStatus
from syntony.wire.spoolfile import SEGMENT_BYTES
from syntony.wire.tables import AGENT, CLOCK

if TYPE_CHECKING:
    from tests.world.loop import Node
    from tests.world.unit import Unit
    from tests.world.world import ControllerUnit, World


def _any_controller(world: World) -> ControllerUnit:
    return world.leader or world.chance.choice(world.processes)


def node_of(process: Unit) -> Node:
    assert process.node is not None
    return process.node


async def kill_controller(world: World) -> None:
    world.kill(node_of(_any_controller(world)))


async def die_within_a_transaction(world: World) -> None:
    process = _any_controller(world)
    world.server.deadly[process.name] = world.chance.randrange(12)
    await asyncio.sleep(5)
    world.server.deadly.pop(process.name, None)


async def unsure_commit(world: World) -> None:
    world.server.unsure.add(_any_controller(world).name)


async def pause_after_commit(world: World) -> None:
    """What it committed is neither told to who waits for it nor sent before it goes on."""
    name, chance = _any_controller(world).name, world.chance
    world.server.pausing[name] = chance.randrange(12), chance.uniform(0.5, 20)


async def stop_controller(world: World) -> None:
    _any_controller(world).stop()


async def pause_controller(world: World) -> None:
    await _pause(world, node_of(_any_controller(world)), world.chance.uniform(0.5, 20))


async def kill_gateway(world: World) -> None:
    world.kill(node_of(world.chance.choice(world.gateways)))


async def stop_gateway(world: World) -> None:
    world.chance.choice(world.gateways).stop()


async def pause_gateway(world: World) -> None:
    node = node_of(world.chance.choice(world.gateways))
    await _pause(world, node, world.chance.uniform(0.5, 20))


async def pause_agent(world: World) -> None:
    agent = world.chance.choice(list(world.agents.values()))
    await _pause(world, agent.node, world.chance.uniform(0.5, 20))


async def _pause(world: World, node: Node, for_s: float) -> None:
    if node.paused:
        return
    node.paused = True
    await asyncio.sleep(for_s)
    if node.paused:
        world.loop.resume(node)


async def kill_agent(world: World) -> None:
    name = world.chance.choice(list(world.agents))
    world.kill(world.agents[name].node)
    await _start(world, name)


async def lose_power(world: World) -> None:
    name = world.chance.choice(list(world.agents))
    world.snapshot(name)
    await asyncio.sleep(world.chance.uniform(0.1, 8))
    world.power_loss(name)
    await _start(world, name)


async def _start(world: World, name: str) -> None:
    await asyncio.sleep(world.chance.uniform(0.2, 15))
    if not world.agents[name].node.alive:
        world.start_agent(name)


async def flip_a_bit(world: World) -> None:
    """In a spool, while its agent is down."""
    name = world.chance.choice(list(world.agents))
    world.kill(world.agents[name].node)
    files = sorted((world.hosts[name].disk / "spool").glob("*.spool"))
    if files:
        file = world.chance.choice(files)
        data = bytearray(file.read_bytes())
        if data:
            # What waits is at the end; a file may begin with much that is acknowledged.
            head = world.chance.random() < 0.2
            first, end = (0, SEGMENT_BYTES) if head else (max(0, len(data) - 10_000), len(data))
            place = world.chance.randrange(first, min(end, len(data)))
            data[place] ^= 1 << world.chance.randrange(8)
            file.write_bytes(data)
            world.ledger.flipped(name)
    await _start(world, name)


async def partition(world: World) -> None:
    """Some agents and gateways cannot reach some controllers; perhaps a controller not the
    database."""
    pairs = {
        frozenset((client, unit.name))
        for client in (*world.hosts, *(each.name for each in world.gateways))
        for unit in (world.units if client in world.hosts else world.processes)
        if world.chance.random() < 0.5
    }
    world.network.partition(pairs)
    if world.chance.random() < 0.5:
        world.server.unreachable.add(_any_controller(world).name)
    await asyncio.sleep(world.chance.uniform(1, 20))
    world.server.unreachable.clear()
    world.network.heal()


def check_decides(world: World) -> None:
    """A new leader does, of all living agents, and they obey it."""
    leader = world.leader
    controller = leader.controller if leader is not None else None
    epoch = controller._leadership.epoch if controller is not None else 0
    planned = controller._fleet.mesh.plans if controller is not None else {}
    late = {
        name: agent.fence.highest
        for name, agent in world.agents.items()
        if agent.node.alive and (agent.fence.highest != epoch or name not in planned)
    }
    world.ledger.hold(
        not late, lambda: f"epoch {epoch} has no plan for {late}, or they do not obey it"
    )


async def cut_database(world: World) -> None:
    """The leader cannot reach the database: another one leads all agents, and it ends."""
    process = world.leader
    if process is None or world.server.unreachable:
        return
    node, alone = node_of(process), _alone(world, cut_database)
    world.server.unreachable.add(process.name)
    await asyncio.sleep(6)
    leader = world.leader
    world.ledger.hold(
        leader is not process or not alone, f"{process.name} still leads without the database"
    )
    await asyncio.sleep(3)  # a plan may wait for the hostile host
    if alone:
        check_decides(world)
    await asyncio.sleep(21)
    world.ledger.hold(
        not node.alive or not alone, f"{process.name} goes on without the database for 30 s"
    )
    world.server.unreachable.discard(process.name)


async def lose_probes(world: World) -> None:
    """Of one host's, all are lost."""
    host = world.chance.choice(list(world.hosts))
    for _ in range(world.chance.randrange(2, 20)):
        world.lossy[host] = world.loop.time()
        await asyncio.sleep(1)
    world.lossy.pop(host, None)


async def run_job(world: World) -> None:
    """No fault: its flows are reported."""
    world.job_s = world.loop.time() + world.chance.uniform(5, 40)


async def cut_host(world: World) -> None:
    """A host's network for management fails: it reaches no controller or gateway for a while, and
    other hosts all the time."""
    host = world.chance.choice(list(world.hosts))
    pairs = {frozenset((host, unit.name)) for unit in world.units}
    world.network.partition(pairs)
    await asyncio.sleep(world.chance.uniform(5, 60))
    world.network.mend(pairs)


async def cut_gateway(world: World) -> None:
    """One gateway cannot reach any controller. After a while its agents try another one: where
    nothing else happens, the leader has all of them again."""
    gateway, alone = world.chance.choice(world.gateways).name, _alone(world, cut_gateway)
    if alone and world.network.is_cut:
        return
    world.network.partition({frozenset((gateway, each.name)) for each in world.processes})
    await asyncio.sleep(45 if alone else world.chance.uniform(1, 20))
    leader = world.leader
    if alone and leader is not None:
        found = await ask(world, leader, ControllerQuery())
        world.ledger.hold(
            isinstance(found, ControllerStatus) and found.agents >= len(world.hosts),
            f"{gateway} has no leader, and its agents stay with it: {found}",
        )
    world.network.heal()


def _alone(world: World, fault: Fault) -> bool:
    """Whether nothing else happens, so that what follows can be said exactly."""
    return world.settings.only == (fault.__name__,)


async def cut_agents(world: World) -> None:
    """Some agents cannot reach one gateway."""
    gateway = world.chance.choice(world.gateways).name
    hosts = [name for name in world.hosts if world.chance.random() < 0.6]
    world.network.partition({frozenset((gateway, name)) for name in hosts})
    await asyncio.sleep(world.chance.uniform(1, 20))
    world.network.heal()


async def cut_store(world: World) -> None:
    """One controller or gateway cannot reach the store that the others reach."""
    name = world.chance.choice(world.units).name
    world.store.unreachable.add(name)
    await asyncio.sleep(world.chance.uniform(1, 20))
    world.store.unreachable.discard(name)


async def lose_gateway(world: World) -> None:
    """A gateway's host is gone for a while. Where nothing else happens, that is one page."""
    gateway = world.chance.choice(world.gateways)
    alone = _alone(world, lose_gateway)
    if not all(node_of(each).alive for each in (world.gateways if alone else (gateway,))):
        return
    gateway.restart_s = 40.0
    world.kill(node_of(gateway))
    await asyncio.sleep(36)
    gateway.restart_s = RESTART_S
    if alone:
        subject = f"gateway {gateway.name}"
        world.ledger.hold(
            ("gateway-absent", subject) in world.pager.open,
            lambda: f"{subject} is gone, and nobody was paged: {sorted(world.pager.open)}",
        )
        others = [each for each in world.pager.paged if any(h in each[1] for h in world.hosts)]
        world.ledger.hold(not others, f"{subject} is gone, and these were paged: {others}")


async def old_gateway_clock(world: World) -> None:
    """A gateway's host starts in 1970."""
    clock = world.chance.choice(world.gateways).clock
    clock.jump(-clock.read_ns(world.loop.true_ns))


async def database_away(world: World) -> None:
    world.server.down = True
    world.server.end_all()
    await asyncio.sleep(world.chance.uniform(0.2, 20))
    world.server.down = False


async def database_full(world: World) -> None:
    world.server.full = True
    await asyncio.sleep(world.chance.uniform(1, 15))
    world.server.full = False


async def database_slow(world: World) -> None:
    world.server.slow_ns = world.chance.randrange(800) * MS
    await asyncio.sleep(world.chance.uniform(1, 10))
    world.server.slow_ns = 0


async def lose_primary(world: World) -> None:
    """The database's host is lost; a replica, which has every commit, takes its place a while
    later."""
    if world.server.lost:
        return
    world.server.replicate()
    world.server.lost = True
    await asyncio.sleep(world.chance.uniform(1, 20))
    world.server.promote()


async def store_away(world: World) -> None:
    world.store.silent = world.chance.random() < 0.3
    world.store.down = True
    await asyncio.sleep(world.chance.uniform(1, 20))
    world.store.down = world.store.silent = False


async def store_hangs(world: World) -> None:
    """When it goes on, it carries out inserts that were given up, after 30 s, as well."""
    if world.store.hangs_until_ns > world.loop.now_ns:
        return
    for_s = world.chance.uniform(20, 60)
    world.store.hangs_until_ns = world.loop.now_ns + round(for_s * S)
    await asyncio.sleep(for_s)


async def store_gone(world: World) -> None:
    """For an hour, which is more than a spool holds. Where nothing else happens, agents stay, no
    host is paged, and what spools still hold is delivered in five minutes."""
    if world.store.down:
        return
    world.store.down = True
    await asyncio.sleep(3_600)
    leader, alone = world.leader, _alone(world, store_gone)
    if alone and leader is not None:
        status = await ask(world, leader, ControllerQuery())
        world.ledger.hold(
            isinstance(status, ControllerStatus) and status.agents >= len(world.hosts),
            f"the store is gone, and so are agents: {status}",
        )
        paged = of_others(world.pager.paged)
        world.ledger.hold(not paged, f"the store is gone, and these were paged: {paged}")
    world.store.down = False
    await asyncio.sleep(300)
    for name, agent in world.agents.items():
        behind = agent.spool.last_seq - agent.spool.acknowledged
        world.ledger.hold(
            behind < 10 or not alone, f"the store is back, and {name} still keeps {behind} batches"
        )


async def store_full(world: World) -> None:
    """Or read-only: inserts fail, and lookups do not."""
    world.store.full = True
    await asyncio.sleep(world.chance.uniform(1, 20))
    world.store.full = False


async def store_half_migrated(world: World) -> None:
    """It lacks a table."""
    name = world.chance.choice((AGENT.name, CLOCK.name))
    world.store.lacks.add(name)
    await asyncio.sleep(world.chance.uniform(1, 20))
    world.store.lacks.discard(name)


async def store_fails(world: World) -> None:
    world.store.fails = world.chance.uniform(0.1, 0.8)
    await asyncio.sleep(world.chance.uniform(1, 20))
    world.store.fails = 0.0


async def store_slow(world: World) -> None:
    world.store.slow_ns = world.chance.randrange(4 * S)
    await asyncio.sleep(world.chance.uniform(1, 15))
    world.store.slow_ns = 0


async def network_slow(world: World) -> None:
    world.network.slow_ns = world.chance.randrange(2 * S)
    await asyncio.sleep(world.chance.uniform(1, 15))
    world.network.slow_ns = 0


async def split_streams(world: World) -> None:
    """A balancer forgets streams: their clients connect again, mostly to others, and the servers
    take them for connected all the while."""
    for connection in world.network.connections:
        if world.chance.random() < 0.5:
            connection.leave(unnoticed=True)


async def pager_away(world: World) -> None:
    world.pager.down = world.chance.random() < 0.4
    world.pager.loses = world.chance.random()
    await asyncio.sleep(world.chance.uniform(1, 20))
    world.pager.down, world.pager.loses = False, LOSES


async def disk_full(world: World) -> None:
    name = world.chance.choice(list(world.hosts))
    world.full.add(name)
    await asyncio.sleep(world.chance.uniform(1, 20))
    world.full.discard(name)


async def clock_jump(world: World) -> None:
    name = world.chance.choice(list(world.hosts))
    world.hosts[name].clock.jump(round(world.chance.gauss(0, 100 * S)))


async def controllers_clock_jump(world: World) -> None:
    """A correction, or a clock that lost its battery."""
    process = world.chance.choice(world.units)
    far_s = world.chance.choice((100, 10_000))
    process.clock.jump(round(world.chance.gauss(0, far_s * S)))


Fault = Callable[["World"], Awaitable[None]]
FAULTS: dict[Fault, float] = {
    kill_controller: 2.0, die_within_a_transaction: 1.5, unsure_commit: 1.0, stop_controller: 1.0,
    pause_controller: 2.0, pause_after_commit: 1.0,
    pause_agent: 1.0, kill_agent: 1.5, lose_power: 1.5, flip_a_bit: 1.0,
    partition: 1.5, cut_host: 0.7, cut_database: 0.5, lose_probes: 0.7, run_job: 1.5,
    database_away: 1.0, database_full: 0.7, database_slow: 0.7, lose_primary: 0.5,
    store_away: 1.0, store_fails: 1.0, store_slow: 0.7, store_full: 0.5, store_half_migrated: 0.5,
    split_streams: 1.0, network_slow: 0.7, pager_away: 1.0, disk_full: 0.7,
    clock_jump: 0.7, controllers_clock_jump: 0.5,}  # fmt: skip
"""Each with its weight."""
GATEWAY_FAULTS: dict[Fault, float] = {
    kill_gateway: 2.0, stop_gateway: 1.0, pause_gateway: 3.0, cut_gateway: 1.5, cut_agents: 1.0,
    cut_store: 1.0, lose_gateway: 0.3, old_gateway_clock: 0.3,
}  # fmt: skip
"""… where there are gateways."""
NAMED_FAULTS: dict[Fault, float] = {store_gone: 1.0, store_hangs: 1.0}
"""… and those that happen only where they are named: the first leaves little else to see; rows are
stored twice if a controller dies during the second (0743)."""
NAMES = tuple(fault.__name__ for fault in FAULTS | GATEWAY_FAULTS | NAMED_FAULTS)

"""The course of a world: it begins, suffers, and must be well again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.world.agent import JOB_HOSTS, JOB_PORT
from tests.world.faults import (
    FAULTS,
    GATEWAY_FAULTS,
    NAMED_FAULTS,
    check_decides,
    kill_controller,
)
from tests.world.hostile import is_served, mallory, of_others
from tests.world.orders import ask, operate, place
from tests.world.rails import shared_rail_is_left
from tests.world.world import KEY_PERIOD_S, SETTLE_S

from syntony.model import S
from syntony.wire.control import ControllerQuery, ControllerStatus
from syntony.wire.incidents import IncidentsQuery
from syntony.wire.probes import KeysQuery, KeysStatus
from syntony.wire.query import Failure

if TYPE_CHECKING:
    from tests.world.world import ControllerUnit, World

ROTATION_S = 30
"""A new leader waits so long for agents before it goes on with a rotation."""
DECIDES_S = 6
"""A standby takes over within half a second, and decides without a host that does not return."""
MISSED_S = 30
"""A new leader waits so long for hosts that it has not heard of."""
LOST_S = 4
"""Reports of losses count for two seconds, and come once a second here."""
BELIEVED_S = 10
FLOWS_S, FLOWS_LATE_S, JOB_S = 20, 8, 32
"""Seconds of a job's flows that are checked, how long before, and how long the job runs."""
PAGED_S, CLEARED_S = 20, 30
"""A silence is an incident after 10 s, and over after another 10 s with reports, by rules that are
evaluated every two seconds."""


async def suffer(world: World) -> None:
    """All that happens in a world."""
    for unit in world.units:
        unit.start()
    for name in world.hosts:
        world.start_agent(name)
    if world.settings.hostile:
        world.loop.spawn(None, mallory(world))
    operator = world.loop.spawn(None, operate(world))
    world.loop.spawn(None, watch_losses(world))
    only = world.settings.only
    if not only or kill_controller.__name__ in only:
        world.loop.spawn(None, _begin_badly(world))
    await asyncio.sleep(20)
    faults = FAULTS | (GATEWAY_FAULTS if world.gateways else {})
    if only:
        faults |= NAMED_FAULTS
        faults = {fault: weight for fault, weight in faults.items() if fault.__name__ in only}
    end_s, under_way = world.loop.time() + world.settings.faults_s, []
    while world.loop.time() < end_s:
        await asyncio.sleep(world.chance.expovariate(1 / world.settings.mean_gap_s))
        fault = world.chance.choices(*zip(*faults.items(), strict=True))[0]
        world.log.say("world", fault.__name__)
        under_way.append(world.loop.spawn(None, fault(world)))
    operator.cancel()
    await asyncio.sleep(25)
    await asyncio.gather(*under_way, return_exceptions=True)
    heal(world)
    await asyncio.sleep(SETTLE_S - JOB_S)
    placing = await place(world)
    world.job_s = world.loop.time() + JOB_S
    await asyncio.sleep(JOB_S)
    if len(world.hosts) >= len(JOB_HOSTS):
        left = placing and shared_rail_is_left(world)
        world.ledger.hold(left, f"nothing is moved off a crowded rail: {placing=}")
    await check_well(world)
    await check_losses(world)
    await check_page(world)


async def _begin_badly(world: World) -> None:
    """One leader in three dies soon after it has told the first timelines."""
    if world.chance.random() < 1 / 3:
        await asyncio.sleep(world.chance.uniform(1, 12))
        world.log.say("world", "the first leader dies")
        await kill_controller(world)


def heal(world: World) -> None:
    """Nothing is broken any more."""
    world.log.say("world", "heals")
    world.network.heal()
    world.server.down = world.server.full = False
    world.server.slow_ns = 0
    world.server.unreachable.clear()
    world.server.deadly.clear()
    world.server.pausing.clear()
    world.store.down = world.store.silent = world.pager.down = False
    world.store.unreachable.clear()
    world.store.full = False
    world.store.lacks.clear()
    world.store.fails = world.store.slow_ns = 0
    world.pager.loses = 0.0
    world.full.clear()
    world.lossy.clear()
    for unit in world.units:
        if unit.node is not None and unit.node.paused:
            world.loop.resume(unit.node)
    for name, agent in world.agents.items():
        if agent.node.paused:
            world.loop.resume(agent.node)
        if not agent.node.alive:
            world.start_agent(name)


async def check_well(world: World) -> None:
    """What must hold once faults are over for `SETTLE_S`."""
    ledger, leader = world.ledger, world.leader
    ledger.hold(leader is not None, "no controller is in charge")
    wanted = ledger.acknowledged_order
    controller = leader.controller if leader is not None else None
    switch = controller._traffic.switch if controller is not None else None
    epoch = controller._leadership.epoch if controller is not None else 0
    for name, agent in world.agents.items():
        obeyed = agent.fence.highest
        ledger.hold(obeyed == epoch, f"{name} obeys epoch {obeyed}, and the leader has {epoch}")
        ledger.hold(agent.connection is not None, f"{name} has no controller")
        behind = agent.spool.last_seq - agent.spool.acknowledged
        ledger.hold(behind < 10, f"{name} waits for {behind} acknowledgements")
        ledger.hold(agent.line is not None, f"{name} has no fleet time")
        if wanted is not None:
            position = agent.switch.position
            order = ledger.order_of(position.by) if position is not None else None
            # 0501: by the clock of the controller that could not record it, it is the later one.
            safe = (
                position is not None and position.stopped and not position.recorded
                and switch is not None and position.at_ns > switch.at_ns
            )  # fmt: skip
            ledger.hold(
                safe or (order is not None and order.number >= wanted.number),
                f"{name} obeys {order}, and {wanted} was acknowledged",
            )
    if leader is None:
        return
    missed = of_others(world.pager.open.keys() - waiting_all_clears(world))
    ledger.hold(not missed, f"these are well, and nobody was told: {missed}")
    ledger.together()
    _check_flows(world)
    ledger.logged_once()
    await _check_gateways(world, leader)
    if ledger.revoked:
        for unit in world.units:
            served = await is_served(world, unit)
            ledger.hold(not served, f"{unit.name} serves an agent whose certificate is revoked")
    if world.settings.hostile and not ledger.revoked:
        return
    status = await ask(world, leader, KeysQuery())
    ledger.hold(
        isinstance(status, KeysStatus)
        and not status.left_behind
        and status.age_ns < (KEY_PERIOD_S + ROTATION_S) * S,
        f"probe keys: {status}",
    )


def losing(process: ControllerUnit | None) -> tuple[str, ...]:
    """NICs at which a leader takes probes for lost."""
    if process is None or process.controller is None:
        return ()
    found = process.controller._locating.fresh.losing
    return found.nics if found is not None else ()


async def watch_losses(world: World) -> None:
    """A leader believes no losses of hosts that have had none lately."""
    last: dict[str, float] = {}
    while True:
        await asyncio.sleep(1)
        last |= world.lossy
        now_s = world.loop.time()
        for process in world.processes:
            node = process.node
            if node is None or node.paused or not node.alive or not (found := losing(process)):
                continue
            recent = [name for name, at_s in last.items() if now_s - at_s < BELIEVED_S]
            world.ledger.hold(
                bool(recent), f"{process.name} takes probes of {found} for lost, and none are"
            )


def waiting_all_clears(world: World) -> set[tuple[str, str]]:
    """(rule, subject) of incidents that are resolved, and may return before their all-clear."""
    if world.leader is None or world.leader.controller is None:
        return set()
    reply = world.leader.controller._alerts.incidents(IncidentsQuery(resolved=True))
    return {(each["rule"], each["subject"]) for each in reply.incidents if each["clear"]}


async def check_losses(world: World) -> None:
    """Lost probes are known within seconds, and their end is."""
    name = world.chance.choice(list(world.hosts))
    world.log.say("world", f"loses the probes of {name}")
    world.lossy[name] = world.loop.time()
    await asyncio.sleep(LOST_S)
    found = losing(world.leader)
    world.ledger.hold(
        f"{name}/rail0" in found, f"all probes of {name} are lost, the leader knows of {found}"
    )
    world.lossy.clear()
    await asyncio.sleep(LOST_S)
    world.ledger.hold(
        not losing(world.leader), f"no probe is lost any more, and {name}'s still are"
    )


async def check_page(world: World) -> None:
    """A host that dies is the only one that is paged, until it is back: also while the store is
    away, and if the leader dies with it, so that no later one has ever heard of it (0577)."""
    ledger, pager = world.ledger, world.pager
    name = world.chance.choice(list(world.hosts))
    place = ("host-silent", name)
    pages = [] if place in pager.open else [place]  # it has returned before (0745)
    pager.paged.clear()
    leader, store = world.leader, world.store
    with_leader = leader is not None and world.chance.random() < 0.5
    store.down = world.chance.random() < 0.5
    store.silent = world.chance.random() < 0.5
    world.log.say("world", f"{name} dies, {with_leader=} {store.down=} {store.silent=}")
    world.kill(world.agents[name].node)
    if with_leader and leader is not None and leader.node is not None:
        world.kill(leader.node)
        await asyncio.sleep(DECIDES_S)
        check_decides(world)
        await asyncio.sleep(MISSED_S - DECIDES_S)
    await asyncio.sleep(PAGED_S)
    store.down = store.silent = False
    paged = of_others(pager.paged)
    ledger.hold(paged == pages, f"{name} is dead, and these were paged: {paged}")
    world.start_agent(name)
    await asyncio.sleep(CLEARED_S)
    paged = of_others(pager.paged)
    ledger.hold(paged == pages, f"{name} was dead, and these were paged: {paged}")
    told = place not in pager.open or place in waiting_all_clears(world)
    ledger.hold(told, f"{name} is back, and nobody was told")


def _check_flows(world: World) -> None:
    """Of the last seconds of the job's flows, each has one row."""
    for name in JOB_HOSTS:
        agent = world.agents.get(name)
        now_ns = agent._fleet_ns if agent is not None else None
        if now_ns is None or len(world.hosts) < len(JOB_HOSTS):
            continue
        last = now_ns // S - FLOWS_LATE_S
        rows = [
            second
            for second in range(last - FLOWS_S, last)
            if (second * S, f"{name}/rail0", JOB_PORT) in world.store.flows
        ]
        measured = sum(
            (second * S, f"{name}/rail0") in world.store.delays
            for second in range(last - FLOWS_S, last)
        )
        world.ledger.hold(
            measured >= FLOWS_S - 4, f"of {FLOWS_S} s of {name}'s segments {measured} have delays"
        )
        # One report a second may come just before its second's end, and the next just after.
        world.ledger.hold(
            len(rows) >= FLOWS_S - 2, f"of {FLOWS_S} s of {name}'s flow {len(rows)} have a row"
        )


async def _check_gateways(world: World, leader: ControllerUnit) -> None:
    """The leader has them all; they pass on nothing that people ask."""
    if not world.gateways:
        return
    found = await ask(world, leader, ControllerQuery())
    assert isinstance(found, ControllerStatus)
    connected = [each.name for each in found.gateways if each.connected]
    world.ledger.hold(
        connected == [each.name for each in world.gateways],
        f"{leader.name} knows these gateways: {connected}",
    )
    world.ledger.hold(
        found.agents >= len(world.agents), f"{leader.name} knows of {found.agents} agents"
    )
    for unit in world.gateways:
        answer = await ask(world, unit, ControllerQuery())
        world.ledger.hold(isinstance(answer, Failure), f"{unit.name} answers people: {answer}")

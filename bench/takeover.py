"""How long a simulated fleet is without decisions when its leader, or its database, is lost.

    python -m bench.takeover                              # every loss, 10 seeds each
    python -m bench.takeover --losses database --seeds 50 --gateways 2

A world (`tests/world`) without other faults: five agents, controllers with control state in
PostgreSQL. Printed, in seconds from the loss: when a standby serves, and when the last agent obeyed
it; of losses that need no new leader, the longest time that an agent was without a controller.
Exit status 1: an agent waited longer than 5 s.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from tests.world import course
from tests.world.faults import node_of
from tests.world.planned import Work
from tests.world.world import ControllerUnit, Settings, World

AIM_S = 5.0
WATCHED_S = 40.0
STEP_S = 0.02


class Lost(NamedTuple):
    """Of one loss, in seconds."""

    serves_s: float | None
    """None: no other controller took over."""
    obeyed_s: float | None
    """By the last agent."""
    alone_s: float
    """The longest time that an agent had no controller."""


async def _kill(world: World, leader: ControllerUnit) -> None:
    world.kill(node_of(leader))


async def _rack(world: World, leader: ControllerUnit) -> None:
    """With a host of the fleet, which stays away."""
    world.kill(node_of(leader))
    name = world.chance.choice(list(world.agents))
    world.kill(world.agents[name].node)
    del world.agents[name]


async def _hang(_: World, leader: ControllerUnit) -> None:
    node_of(leader).paused = True


async def _database(world: World, leader: ControllerUnit) -> None:
    """The leader alone cannot reach it."""
    world.server.unreachable.add(leader.name)


async def _restart(world: World, _: ControllerUnit) -> None:
    """The database is away for a while, for all."""
    world.server.down = True
    world.server.end_all()
    await asyncio.sleep(world.chance.uniform(1, 10))
    world.server.down = False


async def _primary(world: World, _: ControllerUnit) -> None:
    """The database's host is lost; a replica that has all answers in its place a while later."""
    world.server.replicate()
    world.server.lost = True
    await asyncio.sleep(world.chance.uniform(1, 10))
    world.server.promote()


LOSSES: dict[str, Callable[[World, ControllerUnit], Awaitable[None]]] = {
    "kill": _kill, "rack": _rack, "hang": _hang, "database": _database, "restart": _restart,
    "primary": _primary,
}  # fmt: skip


def main() -> int:
    """Run the seeds of each loss."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "bench.takeover", *sys.argv[1:]])  # noqa: S606
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--losses", default=",".join(LOSSES), help="By commas.")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--controllers", type=int, default=2)
    parser.add_argument("--gateways", type=int, default=0)
    parser.add_argument("--statement-ms", type=int, default=0, help="Of each statement; 0: short.")
    options = parser.parse_args()
    settings = Settings(
        hosts=7, controllers=options.controllers, gateways=options.gateways, hostile=False
    )
    late = False
    for name in options.losses.split(","):
        seeds = range(options.first, options.first + options.seeds)
        found = [once(seed, settings, name, options.statement_ms) for seed in seeds]
        print(
            f"{name}: seeds {seeds[0]} to {seeds[-1]}, "
            f"standby serves {_told(each.serves_s for each in found)}, "
            f"last agent obeys it {_told(each.obeyed_s for each in found)}, "
            f"without a controller {_told(each.alone_s for each in found)}",
            flush=True,
        )
        late |= any(max(each.obeyed_s or 0, each.alone_s) > AIM_S for each in found)
    return int(late)


def _told(values: object) -> str:
    known = [value for value in values if value is not None]  # type: ignore[attr-defined]
    if not known:
        return "never"
    return f"{statistics.median(known):.1f} (longest {max(known):.1f}, {len(known)} times)"


def once(seed: int, settings: Settings, name: str, statement_ms: int) -> Lost:
    """One world."""
    found = list[Lost]()

    async def run(world: World) -> None:
        work = Work(world)
        await work.begin()
        await asyncio.sleep(world.chance.uniform(0, 5))
        leader = world.leader or world.processes[0]
        world.server.slow_ns = statement_ms * 1_000_000
        found.append(await _watch(world, leader, name))
        world.loop.resume(node_of(leader))

    with (
        tempfile.TemporaryDirectory(prefix="syntony-takeover-") as folder,
        mock.patch.object(course, "suffer", run),
    ):
        World(seed, Path(folder) / "world", settings).run()
    return found[0]


async def _watch(world: World, before: ControllerUnit, name: str) -> Lost:
    loop = world.loop
    epoch = max(agent.fence.highest for agent in world.agents.values())
    began_s = loop.time()
    lost = loop.spawn(None, LOSSES[name](world, before))
    serves_s = obeyed_s = None
    alone, longest_s = dict.fromkeys(world.agents, began_s), 0.0
    while loop.time() < began_s + WATCHED_S:
        await asyncio.sleep(STEP_S)
        now_s, agents = loop.time(), list(world.agents.values())
        for agent in agents:
            if agent.connection is not None:
                alone[agent.host.name] = now_s
            longest_s = max(longest_s, now_s - alone[agent.host.name])
        if serves_s is None and world.leader not in {None, before}:
            serves_s = now_s - began_s
        if obeyed_s is None and all(agent.fence.highest > epoch for agent in agents):
            obeyed_s = now_s - began_s
    await lost
    return Lost(serves_s, obeyed_s, longest_s)


if __name__ == "__main__":
    sys.exit(main())

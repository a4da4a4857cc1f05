"""Planned work pages nobody and leaves nothing behind; what fails meanwhile is told.

Sequences are drawn, and the seed is printed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest import mock

import pytest
from tests.cases import mostly_slow
from tests.world import course
from tests.world.faults import check_decides
from tests.world.planned import Work
from tests.world.store import WorldStore
from tests.world.world import Settings, World

from syntony.model import MS, S
from syntony.state.database import LOST_EPOCHS

Script = Callable[[Work], Awaitable[None]]


def lived(folder: Path, seed: int, script: Script) -> Work:
    """A world of an operator."""
    world = World(seed, folder / "world", Settings(hosts=7, controllers=2, hostile=False))
    works: list[Work] = []

    async def run(world: World) -> None:
        works.append(Work(world))
        await works[0].begin()
        await script(works[0])

    with mock.patch.object(course, "suffer", run):
        world.run()
    return works[0]


@pytest.mark.parametrize("case", mostly_slow(range(10), {0}))
def test_planned_work_pages_nobody_and_leaves_nothing_behind(tmp_path: Path, case: int) -> None:
    seed = random.randrange(1_000_000) if case else 1
    found: list[str] = []

    async def day(work: Work) -> None:
        kinds = work.kinds()
        for kind in work.chance.sample(sorted(kinds), 4):
            print(f"{work.world.loop.time():.0f} s: {kind}")
            await kinds[kind]()
            await asyncio.sleep(work.chance.uniform(2, 40))
        found.extend(await work.complaints())

    print(f"seed {seed}")
    lived(tmp_path, seed, day)
    assert found == []


@pytest.mark.parametrize("many", [1, 3])
def test_hosts_that_die_while_controllers_are_upgraded_are_missed(
    tmp_path: Path, many: int
) -> None:
    """No controller that is in charge afterwards has ever heard of them."""

    async def script(work: Work) -> None:
        dead = work.living[:many]
        for unit in work.world.processes:
            unit.restart_s = 8.0
            unit.stop()
        for name in dead:
            work.world.kill(work.world.agents[name].node)
        await asyncio.sleep(80)
        assert work.world.pager.paged == {
            ("host-silent", dead[0]) if many == 1 else ("fleet-silent", "all agents")
        }
        for name in dead:
            work.world.start_agent(name)
        await asyncio.sleep(60)
        assert not work.world.pager.open

    lived(tmp_path, 3, script)


@pytest.mark.parametrize("how", ["refuses", "silent", "slow"])
def test_a_standby_takes_over_while_the_store_is_away(tmp_path: Path, how: str) -> None:
    """Once, and a host that died with the leader is paged."""

    async def script(work: Work) -> None:
        world, store = work.world, work.world.store
        before, name = world.leader, work.living[0]
        assert before is not None
        assert before.node is not None
        store.slow_ns = 4 * S * (how == "slow")
        store.down, store.silent = how != "slow", how == "silent"
        world.kill(world.agents[name].node)
        world.kill(before.node)
        await asyncio.sleep(5)
        after = world.leader
        assert after not in {None, before}
        await asyncio.sleep(45)
        assert world.leader is after
        assert world.pager.paged == {("host-silent", name)}
        assert work.controller._leadership.epoch == 2
        store.down = store.silent = False
        store.slow_ns = 0

    lived(tmp_path, 4, script)


def test_the_newest_time_of_the_store_is_asked_for_until_it_answers(tmp_path: Path) -> None:
    """It dates what people ask before an agent is back."""

    async def script(work: Work) -> None:
        world = work.world
        for name in work.living:
            world.kill(world.agents[name].node)
        world.store.down = True
        for unit in world.processes:
            assert unit.node is not None
            world.kill(unit.node)
        await asyncio.sleep(20)
        controller = work.controller
        assert controller._past.now(0) is None
        world.store.down = False
        await asyncio.sleep(11)
        assert work.controller is controller
        leader = world.leader
        assert leader is not None
        assert leader.node is not None
        past_ns = controller._past.now(time.monotonic_ns() + leader.node.boot_ns)
        assert past_ns is not None
        assert 0 <= past_ns - 12_345 * S <= 11 * S

    with mock.patch.object(WorldStore, "latest_ns", _newest):
        lived(tmp_path, 5, script)


def _newest(self: WorldStore, *_: object) -> int:
    self._answers()
    return 12_345 * S


@pytest.mark.parametrize("statement_ms", [100, random.randrange(200, 500)])
def test_a_standby_takes_over_once_while_the_database_is_slow(
    tmp_path: Path, statement_ms: int
) -> None:
    """It executes dozens of statements until it renews its lease for the first time."""
    print(f"{statement_ms} ms for each statement")

    async def script(work: Work) -> None:
        world, before = work.world, work.world.leader
        assert before is not None
        assert before.node is not None
        world.server.slow_ns = statement_ms * MS
        world.kill(before.node)
        await asyncio.sleep(60)
        after = world.leader
        assert after not in {None, before}
        assert work.controller._leadership.epoch == 2
        world.server.slow_ns = 0

    lived(tmp_path, 5, script)


def test_a_leader_that_hangs_while_the_databases_clock_is_set_back_is_replaced(
    tmp_path: Path,
) -> None:
    async def script(work: Work) -> None:
        world, before = work.world, work.world.leader
        assert before is not None
        assert before.node is not None
        world.server.back_ms = 3_600_000
        await asyncio.sleep(20)
        assert world.leader is before, "one that runs renews its lease by the new time"
        world.server.back_ms *= 2
        before.node.paused = True
        await asyncio.sleep(8)
        assert world.leader not in {None, before}
        world.loop.resume(before.node)

    lived(tmp_path, 6, script)


@pytest.mark.parametrize("lacks", [False, True])
def test_no_epoch_is_given_twice_after_a_replica_was_promoted(
    tmp_path: Path, *, lacks: bool
) -> None:
    """It may lack the newest one, which agents have obeyed; otherwise its controller goes on."""

    async def script(work: Work) -> None:
        world, server = work.world, work.world.server
        before = world.leader
        assert before is not None
        assert before.node is not None
        if lacks:
            server.replicate()
        else:
            before.restart_s = 3_600.0
        world.kill(before.node)
        await asyncio.sleep(8)
        leads = work.controller
        assert {agent.fence.highest for agent in world.agents.values()} == {2}
        if not lacks:
            server.replicate()
        server.promote()
        await asyncio.sleep(20)
        check_decides(world)
        assert (work.controller is leads) == (not lacks)
        assert work.controller._leadership.epoch > LOST_EPOCHS

    lived(tmp_path, 8, script)
